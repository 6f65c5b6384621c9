"""What a training run asks of its generator, beside sampling: the learner's newest weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rlgym_llm.generate import Generator

__all__ = ["TrainingGenerator"]


class TrainingGenerator(Generator, Protocol):
    """A `Generator` that a learner gives new weights to; it may be an `AsyncGenerator` as well.

    Made as ``make(policy, config)``, with the `Policy` that is trained and the `TrainConfig`.
    """

    @property
    def has_own_weights(self) -> bool:
        """Whether it samples from a copy of its own, so that it may go on while others learn."""
        ...

    def sync(self, version: int) -> Mapping[str, float]:
        """Samples from the policy's weights as they are now, known as ``version``, from here on.

        Called from the learner's thread, before the first sample of a run and after every update.
        Returns metrics, such as ``timing_s/update_weights``. Raises WeightSyncError, with the old
        weights still sampling under their old version, where that fails.
        """
        ...
