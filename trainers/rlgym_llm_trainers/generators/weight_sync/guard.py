"""The canary as a run keeps it: made once, asked after every sync."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from rlgym_llm.config_rollout import RolloutConfig
from rlgym_llm_trainers.generators.weight_sync.canary import (
    CANARY_LENGTH,
    Scores,
    canary_sequences,
    canary_tolerance,
    check_canary,
    learner_scores,
)
from rlgym_llm_trainers.models.policy import Policy

__all__ = ["CanaryGuard", "Compare", "Score"]

Score = Callable[[Sequence[tuple[int, ...]]], list[list[float]]]
"""A generator's log-probs of tokens 1.. of each sequence, at temperature 1."""

Compare = Callable[[str, Scores], float]
"""Takes a generator's name and its scores; the largest difference, or WeightSyncError."""


class CanaryGuard:
    """Compares generators with the learner on the same few tokens, `sequences`.

    Args:
        policy: the learner's.
        tolerance: see `canary_tolerance`.
        max_length: tokens that a generator takes, prompt and all.

    On a CPU in float32 it remembers each generator's scores from sync to sync, and so sees one
    that kept its old weights even where the step was smaller than the tolerance.
    """

    def __init__(
        self, policy: Policy, *, tolerance: float | None = None, max_length: int | None = None
    ) -> None:
        dtype, device = policy.model.dtype, policy.device
        length = CANARY_LENGTH
        if max_length is not None:
            length = min(length, max_length - 1)  # a generator samples one more
        self.sequences = canary_sequences(policy.tokenizer, length=max(2, length))
        self._policy = policy
        self._tolerance = canary_tolerance(tolerance, dtype=dtype, device=device)
        self._remembers = dtype == torch.float32 and device.type == "cpu"
        self._before: dict[str, tuple[Scores, Scores]] = {}

    @classmethod
    def from_config(cls, policy: Policy, config: RolloutConfig) -> CanaryGuard | None:
        """The guard that a run asks for; None where it wants none."""
        if not config.weight_sync.canary:
            return None
        tolerance = config.weight_sync.canary_tolerance
        return cls(policy, tolerance=tolerance, max_length=config.max_model_len)

    def expect(self, version: int) -> Compare:
        """Has the learner score now, and returns what compares generators with that.

        Call it while the learner's weights are those of ``version``; what it returns may be called
        later, for any generator, as often as one takes these weights.
        """
        ours = learner_scores(self._policy, self.sequences)

        def compare(name: str, theirs: Scores) -> float:
            apart = check_canary(
                ours,
                theirs,
                generator=name,
                version=version,
                tolerance=self._tolerance,
                before=self._before.get(name),
            )
            if self._remembers:
                self._before[name] = ours, theirs
            return apart

        return compare

    def check(self, scores: Mapping[str, Score], *, version: int) -> dict[str, float]:
        """Asks every generator, by its name; returns ``weight_sync/canary_max_diff``.

        Raises WeightSyncError for the first that does not sample from the learner's weights.
        """
        compare = self.expect(version)
        apart = [compare(name, score(self.sequences)) for name, score in scores.items()]
        return {"weight_sync/canary_max_diff": max(apart, default=0.0)}
