"""vLLM in a process of its own: one thread steps the engine, requests join at any time."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from rlgym_llm.config_rollout import RolloutConfig
from rlgym_llm.errors import GeneratorError, WeightSyncError
from rlgym_llm.generate import GenerateRequest
from rlgym_llm.types import Completion
from rlgym_llm_trainers.generators.ray_pool.worker import TransferCall, WorkerSpec
from rlgym_llm_trainers.generators.settle import settle
from rlgym_llm_trainers.generators.vllm_engine.arguments import EngineSettings
from rlgym_llm_trainers.generators.vllm_engine.engine import Engine, open_engine
from rlgym_llm_trainers.generators.weight_sync.update import FileUpdates
from rlgym_llm_trainers.models.token_side import load_token_side

__all__ = ["VLLMWorker", "make_vllm_worker"]

T = TypeVar("T")
_CLOSE_S = 10.0


class VLLMWorker:
    """A `TransferWorker` over an `Engine`, which only the worker's own thread touches.

    New weights come in between two tokens: what is in flight goes on under them, and its version
    spans say where they begin.
    """

    def __init__(self, open_engine: Callable[[], Engine]) -> None:
        """Opens the engine, on the thread that will use it; raises what that raises."""
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._futures: dict[str, Future[Completion]] = {}
        self._keys = itertools.count()
        self._failure: Exception | None = None
        self._is_paused = False  # between start and finish of a transfer
        opened: Future[Engine] = Future()
        self._thread = threading.Thread(
            target=self._live, args=(open_engine, opened), name="rlgym-vllm", daemon=True
        )
        self._thread.start()
        self._engine = opened.result()

    def submit(self, request: GenerateRequest) -> Future[Completion]:
        """The completion, later; the future raises as `SamplingWorker.submit` says."""
        future: Future[Completion] = Future()

        def begin() -> None:
            key = str(next(self._keys))
            try:
                if self._failure is not None:
                    raise self._failure
                self._engine.add(key, request)
            except Exception as error:
                settle(future, error)
            else:
                self._futures[key] = future

        self._jobs.put(begin)
        return future

    def load_weights(self, path: str, version: int) -> dict[str, float]:
        """Takes the weights of a file in; the file before it must still be there.

        Raises WeightSyncError, with the old weights and their version in place.
        """

        def load() -> dict[str, float]:
            started = time.perf_counter()
            self._updates.load(path, version)
            return {"weight_sync/load_s": time.perf_counter() - started}

        return self._do(load)

    def transfer(self, call: TransferCall, info: Any = None) -> None:
        """See `TransferWorker.transfer`; in flight stays in flight, and goes on after finish."""
        engine = self._engine

        def take_part() -> None:
            if call == "init":
                engine.init_weight_transfer(info)
            elif call == "start":
                self._is_paused = True
                engine.start_weight_update()
            elif call == "update":
                engine.update_weights(info)
            else:
                engine.finish_weight_update(int(info))
                if not engine.reset_prefix_cache():
                    raise WeightSyncError(
                        "its prefix cache, which is of old weights, was not reset"
                    )
                self._is_paused = False

        self._do(take_part)

    def score(self, sequences: Sequence[tuple[int, ...]]) -> list[list[float]]:
        """Log-probs of tokens 1.. of each sequence at temperature 1."""
        return self._do(lambda: self._engine.score(sequences))

    def close(self) -> None:
        """Ends the thread and gives the engine's memory back; safe to call twice."""
        self._jobs.put(None)
        self._thread.join(_CLOSE_S)

    def _do(self, work: Callable[[], T]) -> T:
        """Has ``work`` done on the engine's thread, between two steps."""
        future: Future[T] = Future()

        def do() -> None:
            try:
                if self._failure is not None:
                    raise self._failure
                future.set_result(work())
            except Exception as error:
                future.set_exception(error)

        self._jobs.put(do)
        return future.result()

    def _live(self, open_engine: Callable[[], Engine], opened: Future[Engine]) -> None:
        try:
            engine = open_engine()
        except BaseException as error:
            opened.set_exception(error)
            return
        self._engine, self._updates = engine, FileUpdates(engine)
        opened.set_result(engine)
        while True:
            is_idle = self._failure is not None or self._is_paused or not engine.has_work
            try:
                job = self._jobs.get(block=is_idle)
            except queue.Empty:
                self._step(engine)
                continue
            if job is None:
                break
            job()
        self._fail(GeneratorError("the generator was closed"))
        engine.close()

    def _step(self, engine: Engine) -> None:
        try:
            ended = engine.step()
        except Exception as error:  # an engine that failed is not stepped again
            self._fail(error)
            return
        for key, completion in ended:
            settle(self._futures.pop(key), completion)

    def _fail(self, error: Exception) -> None:
        self._failure = error
        futures, self._futures = self._futures, {}
        for future in futures.values():
            settle(future, error)


def make_vllm_worker(spec: WorkerSpec) -> VLLMWorker:
    """The worker of ``rollout.name vllm``; see `WorkerSpec`."""
    rollout = RolloutConfig.model_validate(dict(spec.rollout))
    settings = EngineSettings(
        model_path=spec.model_path,
        dtype="bfloat16" if spec.dtype == "bfloat16" else "float32",
        device="cuda" if spec.device.startswith("cuda") else "cpu",
        rollout=rollout.model_copy(update={"max_num_seqs": spec.max_num_seqs}),
        trust_remote_code=spec.trust_remote_code,
    )
    tokens = load_token_side(spec.model_path, trust_remote_code=spec.trust_remote_code)

    def open_it() -> Engine:
        return open_engine(settings, tokens, policy_version=spec.policy_version)

    return VLLMWorker(open_it)
