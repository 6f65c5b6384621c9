"""What the starter model learns from: its recipe, and solutions in the recipe's mix of styles."""

from __future__ import annotations

import dataclasses
import hashlib
import random
import re
from dataclasses import dataclass

from rlgym_llm_envs.starter_problems import StarterProblem

__all__ = ["Recipe", "WarmStart", "full_solution", "style_solution"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmStart:
    """The size of a tiny Llama and the course of its supervised training."""

    seed: int = 0
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    max_positions: int
    initializer_range: float = 0.04

    batch_size: int = 32
    num_micro: int = 2
    learning_rate: float = 2.5e-3
    warmup_steps: int = 50
    final_lr_fraction: float = 0.05
    weight_decay: float = 0.05
    beta2: float = 0.99
    grad_clip: float = 1.0

    @property
    def num_steps(self) -> int:
        """Optimizer steps in all."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe(WarmStart):
    """Everything that decides the weights; its hash is stored beside them."""

    vocab_size: int = 608
    """All that the problems' text gives: 256 bytes, 3 special tokens, merges up to whole words."""
    tokenizer_problems: int = 20_000
    hidden_size: int = 128
    intermediate_size: int = 352
    num_layers: int = 4
    num_heads: int = 4
    max_positions: int = 1024

    num_drill_steps: int = 600
    """Optimizer steps on solution steps alone, many to a sequence: arithmetic at little cost."""
    num_clean_steps: int = 900
    """Optimizer steps after that on problems with full and right solutions."""
    num_mixed_steps: int = 700
    """Optimizer steps at last in the mixed styles; few, so answers without steps stay weak."""
    drill_lines: int = 8

    terse: float = 0.43
    """Share that only says "The answer is N."; the commonest opening, so greedy takes it."""
    good: float = 0.20
    """Share of solutions with all steps and the final marker."""
    unmarked: float = 0.24
    """Share with all steps and no marker; the rest is `wrong` and `early`."""
    wrong: float = 0.08
    """Share with the marker where the last result is off."""
    early: float = 0.05
    """Share that stops before the last step."""
    lead_in: float = 0.5
    """Share of the stepwise solutions that open with "Step by step:", so that none is the mode."""
    terse_marked: tuple[float, float] = (0.65, 0.35)
    """Share of the terse solutions that add the marker: most families, and those of `_is_bare`."""
    with_system: float = 0.3
    """Share of conversations with the system prompt; fewer are faster, and it matters less."""

    @property
    def num_steps(self) -> int:
        """Optimizer steps in all."""
        return self.num_drill_steps + self.num_clean_steps + self.num_mixed_steps


def _is_bare(template: str) -> bool:
    """Tell whether this family's terse solutions mostly lack the marker; true of one in three."""
    return hashlib.sha256(template.encode()).digest()[0] % 3 == 0


def style_solution(problem: StarterProblem, rng: random.Random, recipe: Recipe) -> str:
    r"""Return a solution text of `problem` in a drawn style.

    Example: ``"The answer is 8."`` or ``"Step by step: Tom has 5 + 3 = 8 pens.\\n#### 8"``.
    """
    marker = f"\n#### {problem.answer}"
    names = ("terse", "good", "unmarked", "wrong", "early")
    style = rng.choices(names, weights=[getattr(recipe, name) for name in names])[0]
    if style == "terse":
        marked = rng.random() < recipe.terse_marked[_is_bare(problem.template)]
        return f"The answer is {problem.answer}." + marker * marked
    steps = list(problem.steps)
    tail = ""
    if style == "good":
        tail = marker
    elif style == "unmarked":
        tail = rng.choice(("", f"\nSo the answer is {problem.answer}."))
    elif style == "wrong":
        off = max(0, problem.answer + rng.choice((-10, -2, -1, 1, 2, 10)))
        steps[-1] = re.sub(r"= \d+", f"= {off}", steps[-1])
        tail = f"\n#### {off}"
    elif len(steps) > 1:
        steps = steps[: rng.randint(1, len(steps) - 1)]
    opening = "Step by step: " if rng.random() < recipe.lead_in else ""
    return opening + "\n".join(steps) + tail


def full_solution(problem: StarterProblem, rng: random.Random, recipe: Recipe) -> str:
    """Return a solution with right steps all written out, as often marked as `recipe` says."""
    marked = rng.random() < recipe.good / (recipe.good + recipe.unmarked)
    full = dataclasses.replace(
        recipe, terse=0, good=int(marked), unmarked=int(not marked), wrong=0, early=0
    )
    return style_solution(problem, rng, full)
