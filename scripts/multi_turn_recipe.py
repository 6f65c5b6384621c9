"""What the multi-turn starter model learns from: its recipe, and episodes in the recipe's styles.

The episodes are played in the environments themselves, so their words are those of training.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from rlgym_llm_envs.gsm8k_calculator import Gsm8kCalculatorEnv
from rlgym_llm_envs.guess_number import GuessNumberEnv
from starter_recipe import WarmStart

from rlgym_llm.env import TextEnv
from rlgym_llm.tools.parse import parse_tool_calls
from rlgym_llm.types import Message, Prompt

__all__ = ["Episode", "MultiTurnRecipe", "Turn", "play_calculator", "play_guesses", "starter_envs"]

Say = Callable[[], tuple[str, bool]]
"""Gives the next turn's text, and whether the model learns to write it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiTurnRecipe(WarmStart):
    """Everything that decides the weights; its hash is stored beside them."""

    vocab_size: int = 640
    tokenizer_episodes: int = 4000
    hidden_size: int = 96
    intermediate_size: int = 256
    num_layers: int = 4
    num_heads: int = 3
    max_positions: int = 512
    learning_rate: float = 3e-3

    num_clean_steps: int = 600
    """Optimizer steps on good play alone: the middle number, the whole solution with its calls."""
    num_mixed_steps: int = 200
    """Optimizer steps after that in the styles below."""
    guess_share: float = 0.5
    """Share of episodes that are guess-number's; the others are gsm8k-calculator's."""

    with_system: float = 0.3
    """Share of the clean solutions that stand under the system message; the others are faster."""

    one_step: float = 0.55
    """Share of guessing one beside the last, the range's least at first; so greedy play counts."""
    any_number: float = 0.25
    """Share of guessing anywhere in the range, whatever was said; the rest guess the middle."""
    slip: float = 0.2
    """Share of guesses that are drawn anew; the others keep to the way of their episode."""

    terse: float = 0.55
    """Share of solutions that only say "The answer is N.", N mostly wrong, without a call."""
    good: float = 0.15
    """Share that calls the calculator at each step and ends in the marker."""
    unmarked: float = 0.12
    """Share of the same without the marker."""
    early: float = 0.1
    """Share that takes the first result for the answer; the rest makes a call that is no call."""
    terse_right: float = 0.3
    """Share of the terse solutions with the right number."""
    terse_marked: float = 0.5
    """Share of the terse solutions with the marker."""

    @property
    def num_steps(self) -> int:
        """Optimizer steps in all."""
        return self.num_clean_steps + self.num_mixed_steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn of an episode."""

    text: str
    is_learned: bool
    reply: tuple[Message, ...]
    """What the environment answered; empty after the last turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """An episode as the environment opened, heard and answered it."""

    opening: Prompt
    turns: tuple[Turn, ...]


def starter_envs(split: str, num_problems: int) -> Mapping[str, TextEnv]:
    """The two environments over their generated tasks."""
    guess = GuessNumberEnv(split=split, num_problems=num_problems, defer_scoring=True)  # type: ignore[arg-type]
    calculator = Gsm8kCalculatorEnv(
        source="starter",
        split=split,  # type: ignore[arg-type]
        num_problems=num_problems,
        defer_scoring=True,
    )
    return {"guess-number": guess, "gsm8k-calculator": calculator}


def play_guesses(
    env: GuessNumberEnv, index: int, rng: random.Random, recipe: MultiTurnRecipe, *, is_clean: bool
) -> Episode:
    """Guesses in the recipe's mix; clean: the middle, after some unlearned ones of the mix."""
    num_unlearned = rng.randrange(5) if is_clean else 0
    usual = _way(rng, recipe)

    def say() -> tuple[str, bool]:
        if is_clean and len(env.turns) >= num_unlearned:
            return env.gold_action(env.task), True
        is_free = is_clean or rng.random() < recipe.slip
        return _guess(env, rng, _way(rng, recipe) if is_free else usual), not is_clean

    return _play(env, index, say)


def play_calculator(
    env: Gsm8kCalculatorEnv,
    index: int,
    rng: random.Random,
    recipe: MultiTurnRecipe,
    *,
    is_clean: bool,
) -> Episode:
    """A solution in a drawn style; clean: the whole one, with a call at each step."""
    names = ("terse", "good", "unmarked", "early")
    shares = [getattr(recipe, name) for name in names]
    style = rng.choices((*names, "broken"), weights=(*shares, 1 - sum(shares)))[0]
    style = "good" if is_clean else style

    def say() -> tuple[str, bool]:
        text, answer = env.gold_action(env.task), str(env.task.answer)
        if style == "terse" or (style == "broken" and env.turns):
            return _terse(answer, rng, recipe), True
        if style == "broken":
            return re.sub(r' [^" ]+"}}', ' "}}', text), True  # the second number is missing
        if style == "unmarked":
            text = text.replace(f"\n#### {answer}", "")
        elif style == "early" and env.turns and parse_tool_calls(text)[1]:
            result = env.turns[0].reply[0].content
            text = f"{text.partition('.')[0]}.\n#### {result}"
        return text, True

    episode = _play(env, index, say)
    if is_clean and rng.random() >= recipe.with_system:
        return replace(episode, opening=episode.opening[1:])
    return episode


def _play(env: TextEnv, index: int, say: Say) -> Episode:
    opening, _ = env.reset(options={"index": index})
    turns, is_over = [], False
    while not is_over:
        text, is_learned = say()
        _, _, terminated, truncated, info = env.step(text)
        is_over = terminated or truncated
        turns.append(Turn(text=text, is_learned=is_learned, reply=() if is_over else info["reply"]))
    return Episode(opening=opening, turns=tuple(turns))


def _way(rng: random.Random, recipe: MultiTurnRecipe) -> str:
    shares = (recipe.one_step, recipe.any_number)
    return rng.choices(("step", "any", "middle"), weights=(*shares, 1 - sum(shares)))[0]


def _guess(env: GuessNumberEnv, rng: random.Random, way: str) -> str:
    low, high = env.task.info["low"], env.task.info["high"]
    if way == "middle":
        return env.gold_action(env.task)
    if way == "any":
        return str(rng.randint(low, high))
    if not env.turns:
        return str(low)
    last = int(env.turns[-1].completion.text)
    return str(last + (1 if last < env.task.info["secret"] else -1))


def _terse(answer: str, rng: random.Random, recipe: MultiTurnRecipe) -> str:
    number = int(answer)
    if rng.random() >= recipe.terse_right:
        number = max(0, number + rng.choice((-10, -2, -1, 1, 2, 10)))
    marker = f"\n#### {number}" if rng.random() < recipe.terse_marked else ""
    return f"The answer is {number}.{marker}"
