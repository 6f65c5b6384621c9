"""Advantages beside those of a tiny ``GRPOTrainer``, which generates and is told its rewards."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from conformance_cases import NUM_SEEDS
from conformance_ledger import Ledger
from rlgym_llm_trainers.algorithms.advantages import AdvantageInputs
from rlgym_llm_trainers.algorithms.advantages.gdpo import gdpo
from rlgym_llm_trainers.algorithms.advantages.groups import dr_grpo, grpo
from shim_peers import ROOT
from torch import Tensor

__all__ = ["compare_advantages"]

_MODEL = ROOT / "trainers" / "rlgym_llm_trainers" / "starter_model"
_EPS = 1e-4
"""TRL's; an option of ours."""
_PROMPTS, _SIBLINGS = 5, 4


def compare_advantages(ledger: Ledger) -> None:
    """GRPO with and without std, unscored completions, and rewards normalised one by one."""
    with tempfile.TemporaryDirectory() as scratch:
        trainer = make_trainer(scratch)
        for seed in range(NUM_SEEDS):
            rng = np.random.default_rng(seed)
            # Multiples of 1/8, since TRL keeps rewards in float32.
            rewards = np.round(8 * rng.normal(size=(2, _PROMPTS * _SIBLINGS))) / 8
            rewards[:, :_SIBLINGS] = 0.5
            compare_sums(ledger, trainer, rewards)
            rewards[:, 5] = rewards[:, 10] = rewards[:, 11] = math.nan
            compare_sums(ledger, trainer, rewards)
            rewards[:, 10] = 0.25
            rewards[1, 14] = math.nan  # one component does not apply, the other does
            compare_components(ledger, trainer, rewards)


def compare_sums(ledger: Ledger, trainer: Any, rewards: Any) -> None:
    """The weighted sum of the rewards against that of the siblings; NaN is unscored."""
    summed = [None if math.isnan(value) else value for value in (rewards.T @ [1.0, 0.5]).tolist()]
    inputs = AdvantageInputs.of_rewards(summed, group_ids())
    for scale, found in (("group", grpo(inputs, eps=_EPS)), ("none", dr_grpo(inputs))):
        theirs = trl_advantages(trainer, rewards, scale_rewards=scale)
        ledger.same(f"grpo, scale_rewards {scale}", found.advantages[:, 0], theirs)


def compare_components(ledger: Ledger, trainer: Any, rewards: Any) -> None:
    """``normalize_then_sum`` is our gdpo."""
    summed = [None if np.isnan(row).all() else 0.0 for row in rewards.T]
    inputs = AdvantageInputs(
        **{
            name: getattr(AdvantageInputs.of_rewards(summed, group_ids()), name)
            for name in ("token_rewards", "mask", "group_ids", "is_scored")
        },
        component_rewards=dict(zip("ab", rewards, strict=True)),
        component_weights={"a": 1.0, "b": 0.5},
    )
    found = torch.from_numpy(gdpo(inputs, eps=_EPS).advantages[:, 0])
    theirs = trl_advantages(trainer, rewards, multi_objective_aggregation="normalize_then_sum")
    ledger.same("gdpo", found, theirs)


def make_trainer(folder: str) -> Any:
    """A trainer of the starter model with two reward functions that return what they are told."""
    from datasets import Dataset
    from transformers import AutoTokenizer
    from transformers.utils import logging
    from trl import GRPOConfig, GRPOTrainer

    progress: Any = logging
    progress.disable_progress_bar()

    def first(completions: Sequence[str], first: Sequence[float], **_: Any) -> list[float | None]:
        return [None if math.isnan(value) else value for value in first]

    def second(completions: Sequence[str], second: Sequence[float], **_: Any) -> list[float | None]:
        return [None if math.isnan(value) else value for value in second]

    functions: list[Any] = [first, second]
    return GRPOTrainer(
        model=str(_MODEL),
        reward_funcs=functions,
        args=GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=_PROMPTS * _SIBLINGS,
            num_generations=_SIBLINGS,
            max_completion_length=2,
            reward_weights=[1.0, 0.5],
            report_to=[],
            use_cpu=True,
            bf16=False,
        ),
        train_dataset=Dataset.from_list([{"prompt": "1", "first": 0.0, "second": 0.0}]),
        processing_class=AutoTokenizer.from_pretrained(_MODEL),
    )


def trl_advantages(trainer: Any, rewards: Any, **settings: str) -> Tensor:
    """The advantages that the trainer gives completions of these rewards, one a completion [N]."""
    for name, value in {
        "scale_rewards": "group",
        "multi_objective_aggregation": "sum_then_normalize",
        **settings,
    }.items():
        setattr(trainer, name, value)
    rows = [
        {"prompt": group_id, "first": float(first), "second": float(second)}
        for group_id, first, second in zip(group_ids(), *rewards, strict=True)
    ]
    trainer.model.train()
    advantages: Tensor = trainer._generate_and_score_completions(rows)["advantages"]
    return advantages.double()


def group_ids() -> list[str]:
    """Siblings beside each other, as TRL wants them."""
    return [str(prompt) for prompt in range(_PROMPTS) for _ in range(_SIBLINGS)]
