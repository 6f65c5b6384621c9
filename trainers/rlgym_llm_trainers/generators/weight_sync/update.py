"""One update of a receiver's weights, in the only right order, whole or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path

from torch import Tensor

from rlgym_llm.errors import WeightSyncError
from rlgym_llm_trainers.generators.weight_sync.files import read_weights
from rlgym_llm_trainers.generators.weight_sync.receiver import WeightReceiver

__all__ = ["FileUpdates", "Weights", "run_update"]

Weights = Iterable[tuple[str, Tensor]]


def run_update(
    receiver: WeightReceiver,
    weights: Weights,
    version: int,
    *,
    previous: Callable[[], tuple[Weights, int]] | None = None,
) -> None:
    """Gives ``receiver`` the weights of ``version``: paused, updated, cache forgotten, resumed.

    The prefix cache is reset after the update is finished, never inside it, and must say that it
    was: after a refusal what is in flight is ended and it is asked once more. Whatever fails, the
    receiver never samples from weights that are not one whole version.

    Args:
        receiver: see `WeightReceiver`.
        weights: what `policy_weights` or `read_weights` yields.
        version: the number of learner updates that they have seen.
        previous: opens the weights that the receiver has now, with their version. They are put
            back where the update fails; without it, or where that fails too, the receiver stays
            paused.

    Raises WeightSyncError with the cause; it says what the receiver samples from now.
    """
    try:
        receiver.pause()
    except Exception as error:
        with contextlib.suppress(Exception):  # it may have paused half-way
            receiver.resume()
        raise WeightSyncError(
            f"version {version} did not reach the generator: it cannot be paused: {error}; "
            "its old weights are in place"
        ) from error
    try:
        _install(receiver, weights, version)
        _reset_prefix_cache(receiver)
    except Exception as error:
        now = _restore(receiver, previous)
        raise WeightSyncError(
            f"version {version} did not reach the generator: {error or type(error).__name__}; {now}"
        ) from error
    receiver.resume()


class FileUpdates:
    """Gives a receiver file after file; where one fails, what it had before is put back.

    That file must still be there, so whoever publishes gives it up only after the next update.
    """

    def __init__(self, receiver: WeightReceiver) -> None:
        self._receiver = receiver
        self._installed: tuple[str | Path, int] | None = None

    def load(self, path: str | Path, version: int) -> None:
        """The weights of a file of `WeightFiles`. Raises WeightSyncError as `run_update` does."""
        before = self._installed
        run_update(
            self._receiver,
            read_weights(path, version=version),
            version,
            previous=None if before is None else lambda: (read_weights(before[0]), before[1]),
        )
        self._installed = path, version


def _install(receiver: WeightReceiver, weights: Weights, version: int) -> None:
    receiver.start_weight_update()
    receiver.update_weights(weights)
    receiver.finish_weight_update(version)


def _reset_prefix_cache(receiver: WeightReceiver) -> None:
    if receiver.reset_prefix_cache():
        return
    receiver.pause(abort=True)
    if not receiver.reset_prefix_cache():
        raise WeightSyncError(
            "its prefix cache, which is of old weights, was not reset, though nothing is in flight"
        )


def _restore(receiver: WeightReceiver, previous: Callable[[], tuple[Weights, int]] | None) -> str:
    """Puts the old weights back and says what the receiver samples from now.

    Its cache needs no reset: nothing was computed since it was paused, under any weights.
    """
    if previous is None:
        return "it stays paused: its weights are of no one version"
    try:
        weights, version = previous()
        _install(receiver, weights, version)
        receiver.resume()
    except Exception as error:
        return f"it stays paused: its old weights could not be put back either ({error})"
    return f"it samples on from version {version}"
