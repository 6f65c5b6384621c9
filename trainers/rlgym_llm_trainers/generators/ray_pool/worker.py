"""What a generator's process holds: a worker, made from plain data that crosses to the process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from rlgym_llm.errors import UserError
from rlgym_llm.generate import GenerateRequest
from rlgym_llm.types import Completion

__all__ = ["SamplingWorker", "TransferCall", "TransferWorker", "WorkerSpec", "open_worker"]

TransferCall = Literal["init", "start", "update", "finish"]
"""vLLM's four calls, by which its own transports bring weights in."""


class SamplingWorker(Protocol):
    """What a generator's process does: samples at any time, takes new weights in between.

    Made as ``make(spec)`` with a `WorkerSpec`. Every method may be called from any thread.
    """

    def submit(self, request: GenerateRequest) -> Future[Completion]:
        """The completion, later.

        The future raises ValueError for a request that nobody can sample, and GeneratorError for
        what failed here.
        """
        ...

    def load_weights(self, path: str, version: int) -> Mapping[str, float]:
        """Samples from the weights of a file of `WeightFiles` from here on; returns metrics.

        What is in flight ends under its old version first, or its version spans say where the new
        one begins. Raises WeightSyncError with the old weights and their version in place.
        """
        ...

    def score(self, sequences: Sequence[tuple[int, ...]]) -> list[list[float]]:
        """Log-probs of tokens 1.. of each sequence at temperature 1, for the canary."""
        ...

    def close(self) -> None:
        """Gives back memory and threads; safe to call twice."""
        ...


class TransferWorker(SamplingWorker, Protocol):
    """One that takes weights from another GPU as well, without a file."""

    def transfer(self, call: TransferCall, info: Any = None) -> None:
        """Does its part of a transfer: ``init`` once, then start, update (or more), finish.

        Nothing is sampled from start to finish. Where one raises, the worker is of no more use.

        Args:
            call: what to do.
            info: what vLLM's sender says with it; for finish the version, in digits.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """All that a process needs to know to sample, as plain data."""

    entry_point: str
    """``module:attr`` that makes the worker; see `GeneratorSpec.worker`."""
    model_path: str
    dtype: str = "auto"
    trust_remote_code: bool = False
    device: str = "cpu"
    """Of the process: ``cuda`` is the GPU that it was given."""
    num_threads: int | None = None
    """Threads of a matrix product on a CPU; None leaves it to the library."""
    max_num_seqs: int = 256
    """Sequences sampled at once."""
    rollout: Mapping[str, Any] = field(default_factory=dict)
    """The `RolloutConfig`, for ``RolloutConfig.model_validate``."""
    plugins: tuple[str, ...] = ()
    """Plugin files of the run, whole paths."""
    policy_version: int = 0
    """Of the weights at ``model_path``."""


def open_worker(spec: WorkerSpec) -> SamplingWorker:
    """Makes the worker, in the process that is to sample.

    The plugin files are read first, so that a worker may come from one. Raises UserError for a
    plugin, a worker or a model that does not load.
    """
    # Before torch is loaded: waiting threads would spin otherwise.
    from rlgym_llm_trainers.models.torch_setup import set_up_torch

    set_up_torch(num_threads=spec.num_threads, seed=0)
    from rlgym_llm.entry_point import load_entry_point
    from rlgym_llm.plugins import Plugins

    if spec.plugins:
        Plugins.discover(spec.plugins)
    try:
        make = load_entry_point(spec.entry_point)
    except (ImportError, AttributeError) as error:
        raise UserError(
            f"the generator's worker {spec.entry_point} cannot be imported in its process: {error}"
        ) from error
    worker: SamplingWorker = make(spec)
    return worker
