"""The canary: the same tokens scored by generator and learner show stale or broken weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from rlgym_llm.errors import WeightSyncError
from rlgym_llm_trainers.algorithms.logprobs import token_logprobs
from rlgym_llm_trainers.models.policy import Policy

__all__ = [
    "CANARY_LENGTH",
    "Scores",
    "canary_sequences",
    "canary_tolerance",
    "check_canary",
    "disagreement",
    "learner_scores",
]

Scores = Sequence[Sequence[float]]
"""Log-probs of tokens 1.. of each sequence: one fewer than the sequence has tokens."""

CANARY_LENGTH = 16
"""Ids in a sequence. Scoring costs as much as sampling them, in the generator and in the learner,
and every matrix of the model shows in every score: more tokens only use more rows of a vocabulary.
"""
_MOVED = 1e-4
"""A change of the learner's log-probs that float32 shows in the generator's, whose unit is 1e-6."""


def canary_sequences(
    vocabulary: int | Any, num: int = 4, length: int = CANARY_LENGTH, seed: int = 0
) -> tuple[tuple[int, ...], ...]:
    """``num`` sequences of ``length`` token ids, the same for the same arguments everywhere.

    Args:
        vocabulary: a tokenizer, whose special ids are left out, or the number of ids.
        num: sequences.
        length: ids in each, at least 2: the first is only context.
        seed: draws others.
    """
    if num < 1 or length < 2:
        raise ValueError(f"a canary needs num >= 1 and length >= 2, got {num} and {length}")
    if isinstance(vocabulary, int):
        ids = np.arange(vocabulary)
    else:
        special = set(vocabulary.all_special_ids)
        ids = np.array(sorted(set(vocabulary.get_vocab().values()) - special))
    drawn = np.random.default_rng(seed).choice(ids, size=(num, length))
    return tuple(tuple(row) for row in drawn.tolist())


def canary_tolerance(
    configured: float | None, *, dtype: torch.dtype, device: torch.device | str
) -> float:
    """Largest difference that passes: what is configured (`WeightSyncConfig.canary_tolerance`).

    None is 0.001 where the generator's weights are float32 on a CPU, where only the order of sums
    differs, and 0.1 elsewhere, where numbers are rounded to 8 or 11 bits.
    """
    if configured is not None:
        return configured
    is_exact = dtype == torch.float32 and torch.device(device).type == "cpu"
    return 0.001 if is_exact else 0.1


@torch.no_grad()
def learner_scores(policy: Policy, sequences: Sequence[tuple[int, ...]]) -> list[list[float]]:
    """The learner's log-probs of tokens 1.. of each sequence, at temperature 1.

    The model runs as it is, in evaluation mode as a generator's does; the log-softmax is float64.
    Over several ranks it is the first one's, which keeps the model whole.
    """
    model: Any = policy.model
    lengths = [len(sequence) for sequence in sequences]
    input_ids = torch.full((len(lengths), max(lengths)), policy.pad_token_id)
    for row, sequence in enumerate(sequences):
        input_ids[row, : lengths[row]] = torch.tensor(sequence)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    input_ids, mask = input_ids.to(policy.device), mask.to(policy.device)
    is_training = model.training
    model.train(False)
    try:
        logits = model(input_ids=input_ids, attention_mask=mask.long(), use_cache=False).logits
    finally:
        model.train(is_training)
    found = token_logprobs(logits.double(), input_ids, mask=mask).cpu()
    return [row[1:length].tolist() for row, length in zip(found, lengths, strict=True)]


def disagreement(ours: Scores, theirs: Scores) -> float:
    """Largest difference of a log-prob; infinite where one is no number or the counts differ.

    >>> disagreement([[-1.0, -2.0]], [[-1.0, -2.5]])
    0.5
    """
    if [len(row) for row in ours] != [len(row) for row in theirs]:
        return math.inf
    gaps = [
        abs(a - b)
        for ours_row, theirs_row in zip(ours, theirs, strict=True)
        for a, b in zip(ours_row, theirs_row, strict=True)
    ]
    return max(gaps, default=0.0) if all(map(math.isfinite, gaps)) else math.inf


def check_canary(
    ours: Scores,
    theirs: Scores,
    *,
    generator: str,
    version: int,
    tolerance: float,
    before: tuple[Scores, Scores] | None = None,
) -> float:
    """The `disagreement` of learner and generator, after a sync to ``version``.

    Args:
        ours: the learner's scores.
        theirs: the generator's, of the same sequences.
        generator: its name, for the message.
        version: what was synced.
        tolerance: the largest difference that passes; see `canary_tolerance`.
        before: both scores after the sync before. A small step moves scores by less than any
            tolerance; but where the learner's moved and the generator's are the same to the last
            bit, it has the old weights. Only for a generator in float32: fewer bits may round a
            step away.

    Raises WeightSyncError, with the generator, the figure and likely causes, where they are apart.
    """
    apart = disagreement(ours, theirs)
    if apart > tolerance:
        raise WeightSyncError(
            f"generator {generator} does not sample from the learner's weights: after the sync to "
            f"version {version} its log-probs of the canary differ by {apart:.3g} (allowed "
            f"{tolerance:g}). Likely causes: a sync that failed half-way, a tied head that kept "
            "its old copy, or weights of another dtype; where the difference is rounding alone, "
            "raise rollout.weight_sync.canary_tolerance"
        )
    if before is not None and disagreement(theirs, before[1]) == 0:
        moved = disagreement(ours, before[0])
        if moved > _MOVED:
            raise WeightSyncError(
                f"generator {generator} still samples from the weights before version {version}: "
                f"its log-probs of the canary did not change at all, the learner's did by "
                f"{moved:.3g}. The sync did not reach it, or it answers from a cache"
            )
    return apart
