"""What a batch of rollouts looked like, under verl's metric names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import torch

from rlgym_llm.drift import has_drift
from rlgym_llm.failures import FAILURES, failure_of
from rlgym_llm.scores import ScoreCard
from rlgym_llm.types import Rollout, RolloutStatus
from rlgym_llm_trainers.algorithms.advantages import AdvantageInputs, Advantages
from rlgym_llm_trainers.algorithms.advantages.inputs import Bools
from rlgym_llm_trainers.algorithms.losses.value import ExplainedVariance
from rlgym_llm_trainers.algorithms.metrics import finalize, length_metrics, summary

__all__ = ["rollout_metrics"]


def rollout_metrics(
    rollouts: Sequence[Rollout],
    cards: Sequence[ScoreCard],
    inputs: AdvantageInputs,
    advantages: Advantages,
    *,
    encode: Callable[[str], Sequence[int]] | None = None,
) -> dict[str, float]:
    """Lengths, turns, failures, scores, rewards and advantages of one step, in float64.

    ``critic/score/*`` is the composed score of the cards, ``critic/rewards/*`` what the advantages
    were made of: the score minus the KL penalty where that is part of the reward. Advantages,
    returns and values are those of the tokens that are trained, over the whole step. ``encode`` is
    the tokenizer without special tokens, for ``rollout/retokenization_drift_ratio``: the share of
    turns whose text encodes to other ids than were sampled.
    """
    lengths = [rollout.num_tokens for rollout in rollouts]
    truncated = [rollout.truncated for rollout in rollouts]
    prompts = [
        sum(len(turn.new_prompt_token_ids) for turn in rollout.turns) for rollout in rollouts
    ]
    trained = inputs.mask & advantages.is_valid[:, None]
    failed = [rollout.status is not RolloutStatus.OK for rollout in rollouts]
    return {
        **summary("critic/score", [card.reward for card in cards]),
        **summary("critic/rewards", inputs.sequence_rewards[inputs.is_scored].tolist()),
        **summary("critic/advantages", advantages.advantages[trained].tolist()),
        **_values(inputs, advantages, trained),
        **finalize(advantages.metrics),
        **finalize(length_metrics(lengths, truncated=truncated)),
        **summary("prompt_length", prompts),
        **summary("num_turns", [rollout.num_turns for rollout in rollouts]),
        "response/aborted_ratio": float(np.mean(failed)),
        **_failure_ratios(rollouts, cards),
        **_drift_ratio(rollouts, encode),
    }


def _values(inputs: AdvantageInputs, advantages: Advantages, trained: Bools) -> dict[str, float]:
    """The returns, the values before the update, and what the one explain of the other."""
    returns, values = advantages.returns, inputs.values
    found: dict[str, float] = {}
    if returns is not None:
        found |= summary("critic/returns", returns[trained].tolist())
    if values is not None:
        found |= summary("critic/values", values[trained].tolist())
    if returns is not None and values is not None:
        streams = (torch.from_numpy(stream) for stream in (values, returns, trained))
        found["critic/vf_explained_var"] = ExplainedVariance.of(*streams).result()
    return found


def _failure_ratios(rollouts: Sequence[Rollout], cards: Sequence[ScoreCard]) -> dict[str, float]:
    """``rollout/failed_ratio/<cause>``: shares of the rollouts that came to nothing."""
    found = Counter(map(failure_of, rollouts, cards))
    return {f"rollout/failed_ratio/{cause}": found[cause] / len(rollouts) for cause in FAILURES}


def _drift_ratio(
    rollouts: Sequence[Rollout], encode: Callable[[str], Sequence[int]] | None
) -> dict[str, float]:
    completions = [turn.completion for rollout in rollouts for turn in rollout.turns]
    if encode is None or not completions:
        return {}
    share = float(np.mean([has_drift(encode, completion) for completion in completions]))
    return {"rollout/retokenization_drift_ratio": share}
