"""A worker over transformers: one thread, the whole batch that waits at a time, its own weights."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from rlgym_llm.errors import GeneratorError, WeightSyncError
from rlgym_llm.generate import GenerateRequest
from rlgym_llm.types import Completion
from rlgym_llm_trainers.generators.hf_generator import HFGenerator
from rlgym_llm_trainers.generators.ray_pool.worker import WorkerSpec
from rlgym_llm_trainers.generators.settle import settle
from rlgym_llm_trainers.models.policy import Policy, load_policy, pick_device

__all__ = ["HFWorker"]

T = TypeVar("T")

_LINGER_S = 0.01
"""A batch that is not full is sampled once nothing new has come for this long: requests arrive one
by one, and those of one batch within a few milliseconds."""


@dataclass(slots=True, eq=False)
class _Turn:
    request: GenerateRequest
    future: Future[Completion]


@dataclass(slots=True, eq=False)
class _Call:
    """Work between two batches."""

    work: Callable[[], Any]
    future: Future[Any]


class HFWorker:
    """A `SamplingWorker` whose thread does all that touches the model, first come, first served.

    So new weights come between two batches: what was asked for before them is sampled from the old
    ones, what is asked for after them from the new ones.
    """

    def __init__(self, policy: Policy, *, max_num_seqs: int = 256, policy_version: int = 0) -> None:
        self._policy = policy
        self._generator = HFGenerator(
            policy, max_num_seqs=max_num_seqs, policy_version=policy_version
        )
        self._max_num_seqs = max_num_seqs
        embedding: Any = policy.model.get_input_embeddings()
        self._num_ids: int = embedding.num_embeddings
        self._queue: queue.SimpleQueue[_Turn | _Call | None] = queue.SimpleQueue()
        self._held: _Turn | _Call | None = None  # the first that did not fit into the last batch
        self._is_closed = False
        self._thread = threading.Thread(target=self._serve, name="rlgym-hf-worker", daemon=True)
        self._thread.start()

    @classmethod
    def from_spec(cls, spec: WorkerSpec) -> HFWorker:
        """Loads the model. Raises UserError where it does not load."""
        policy = load_policy(
            spec.model_path,
            device=pick_device(spec.device),
            dtype=spec.dtype,  # type: ignore[arg-type]  # from a config that was checked
            trust_remote_code=spec.trust_remote_code,
        )
        return cls(policy, max_num_seqs=spec.max_num_seqs, policy_version=spec.policy_version)

    def submit(self, request: GenerateRequest) -> Future[Completion]:
        """The completion, later; ValueError in the future for ids that the model does not have."""
        future: Future[Completion] = Future()
        ids = request.prompt_token_ids
        if not ids or min(ids) < 0 or max(ids) >= self._num_ids:
            what = "is empty" if not ids else f"has ids outside 0..{self._num_ids - 1}"
            future.set_exception(ValueError(f"the prompt {what}"))
        else:
            self._put(_Turn(request, future))
        return future

    def load_weights(self, path: str, version: int) -> dict[str, float]:
        """Takes the weights of a file over, between two batches.

        Names and shapes are compared before anything is written. Raises WeightSyncError, with the
        old weights in place, where the file is not of this model.
        """
        self._call(lambda: self._load(path, version))
        return {}

    def score(self, sequences: Sequence[tuple[int, ...]]) -> list[list[float]]:
        """Log-probs of tokens 1.. of each sequence at temperature 1."""
        from rlgym_llm_trainers.generators.weight_sync.canary import learner_scores

        return self._call(lambda: learner_scores(self._policy, sequences))

    def close(self) -> None:
        """Ends the thread after what it does now; what waits fails with GeneratorError."""
        if not self._is_closed:
            self._is_closed = True
            self._queue.put(None)
        self._thread.join(timeout=30)

    def _put(self, item: _Turn | _Call) -> None:
        if self._is_closed:
            item.future.set_exception(GeneratorError("the generator is closed"))
        else:
            self._queue.put(item)

    def _call(self, work: Callable[[], T]) -> T:
        call = _Call(work, Future())
        self._put(call)
        found: T = call.future.result()
        return found

    def _serve(self) -> None:
        """The thread's life: a batch or a call at a time, until None comes."""
        while True:
            item, self._held = self._held or self._queue.get(), None
            if item is None:
                break
            if isinstance(item, _Call):
                settle(item.future, _result(item.work))
            else:
                self._sample(self._batch_from(item))
        while not self._queue.empty():
            if (left := self._queue.get()) is not None:
                settle(left.future, GeneratorError("the generator is closed"))

    def _batch_from(self, first: _Turn) -> list[_Turn]:
        """``first`` and those behind it that go with it, up to the first that does not."""
        batch = [first]
        while len(batch) < self._max_num_seqs:
            try:
                item = self._queue.get(timeout=_LINGER_S)
            except queue.Empty:
                break
            if item is None:
                self._queue.put(None)  # ends the thread after this batch
                break
            if isinstance(item, _Call) or _cut(item.request) != _cut(first.request):
                self._held = item
                break
            batch.append(item)
        return batch

    def _sample(self, batch: Sequence[_Turn]) -> None:
        batch = [turn for turn in batch if not turn.future.cancelled()]
        if not batch:
            return
        try:
            completions = self._generator.generate([turn.request for turn in batch])
        except Exception as error:
            if len(batch) == 1:
                settle(batch[0].future, error)
            for turn in batch if len(batch) > 1 else ():
                self._sample([turn])  # alone, so that only those fail that cannot be sampled
            return
        for turn, completion in zip(batch, completions, strict=True):
            settle(turn.future, completion)

    @torch.no_grad()
    def _load(self, path: str, version: int) -> None:
        from rlgym_llm_trainers.generators.weight_sync.files import read_weights

        weights = dict(read_weights(path, version=version))
        targets = self._policy.model.state_dict()
        _check(weights, targets, path)
        for name, tensor in weights.items():
            targets[name].copy_(tensor)
        self._generator.sync(version)


def _check(weights: Mapping[str, Tensor], targets: Mapping[str, Tensor], path: str) -> None:
    """Raises WeightSyncError unless ``weights`` set every tensor of the model, tied ones once."""
    for name, tensor in weights.items():
        target = targets.get(name)
        if target is None:
            raise WeightSyncError(f"{path}: the generator's model has no weight {name}")
        if target.shape != tensor.shape:
            raise WeightSyncError(
                f"{path}: {name} has the shape {tuple(tensor.shape)}, the generator's "
                f"{tuple(target.shape)}"
            )
    written = {targets[name].data_ptr() for name in weights}
    for name, target in targets.items():
        if target.numel() and target.data_ptr() not in written:
            raise WeightSyncError(f"{path}: lacks the weight {name}")


def _cut(request: GenerateRequest) -> tuple[object, ...]:
    """What all requests of one batch must share: nothing, unless a tail is cut off."""
    params = request.params
    if params.top_k == -1 and params.top_p == 1:
        return ()
    return params.top_k, params.top_p, params.temperature


def _result(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Exception as error:
        return error
