"""What takes a learner's weights in: the four calls of vLLM's protocol and what belongs around."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor

__all__ = ["WeightReceiver"]


class WeightReceiver(Protocol):
    """A generator's engine, as `run_update` drives it.

    ``pause``, ``start_weight_update``, ``update_weights`` (once or more),
    ``finish_weight_update``, ``reset_prefix_cache``, ``resume``: always in this order. One thread
    calls; every method may raise, and `run_update` puts the old weights back.
    """

    def init_weight_transfer(self, info: Mapping[str, Any]) -> None:
        """Makes ready for the transport that ``info`` describes; once, before the first update.

        Nothing to do where weights are handed over in memory or by a file.
        """
        ...

    def pause(self, *, abort: bool = False) -> None:
        """Samples nothing from here until `resume`; returns once nothing is in flight.

        What is in flight ends under its old version first; with ``abort`` it is ended now. Pausing
        what is paused already is no error.
        """
        ...

    def start_weight_update(self) -> None:
        """Opens an update; also where an earlier one broke off half-way."""
        ...

    def update_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Takes in whole tensors under their Hugging Face names, in the order of the modules.

        The engine copies them before it asks for the next: they may lie in memory that is written
        again later. Of tied tensors only one comes, and the engine sets all its copies from it.
        """
        ...

    def finish_weight_update(self, weight_version: int) -> None:
        """Closes the update: every token sampled from here on is of ``weight_version``.

        Raises where a weight of the model has not come.
        """
        ...

    def reset_prefix_cache(self) -> bool:
        """Forgets keys and values of old weights; False where that was refused.

        vLLM refuses while requests run.
        """
        ...

    def resume(self) -> None:
        """Samples again."""
        ...

    def score(self, sequences: Sequence[tuple[int, ...]]) -> list[list[float]]:
        """Log-probs of each sequence's tokens 1.., at temperature 1, for the canary.

        They are computed anew, by the path that sampling takes, never from a cache of prefixes.
        """
        ...
