"""Weights from GPU to GPU: one sender, and all processes at once, by vLLM's own four calls."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from rlgym_llm.errors import WeightSyncError
from rlgym_llm_trainers.generators.ray_pool.handle import DeadlineError, in_words
from rlgym_llm_trainers.generators.ray_pool.place import Actor
from rlgym_llm_trainers.generators.ray_pool.worker import TransferCall
from rlgym_llm_trainers.generators.weight_sync.cuda import TransferClient

__all__ = ["OpenSender", "PoolTransfer", "Sender"]


class Sender(Protocol):
    """The learner's side, as `GpuTransfer` is."""

    def send(self, version: int) -> None:
        """Sends every weight, as ``version``, and returns once all processes have them."""
        ...

    def close(self) -> None:
        """Leaves the transport, also while a `send` hangs."""
        ...


OpenSender = Callable[[TransferClient, int], Sender]
"""``open_sender(client, num_gpus)``: returns once all processes, with that many GPUs, have joined.
"""


class PoolTransfer:
    """The processes as one receiver: the same ones from the first `send` on, all of them or none.

    Args:
        name: of the transport, for messages.
        open_sender: called at the first `send`.
        gpus_each: GPUs of one process.
    """

    def __init__(self, name: str, open_sender: OpenSender, *, gpus_each: int = 1) -> None:
        self.is_broken = False
        """Whether an update broke off: what the processes have then is of no one version."""
        self._name = name
        self._open_sender = open_sender
        self._gpus_each = gpus_each
        self._client: _Client | None = None
        self._sender: Sender | None = None

    async def send(self, actors: Sequence[Actor], version: int, *, timeout_s: float) -> None:
        """Has all of ``actors`` sample from the learner's weights as ``version``.

        Call it on the pool's event loop. Raises WeightSyncError: before anything was touched where
        a process has gone since the last time, else with `is_broken` set.
        """
        if self._client is None:
            self._client = _Client(actors, self._gpus_each)
        client = self._client
        self._check_members(actors)
        self.is_broken = True  # until all of it is through
        # In a thread: it waits for the processes, and where one has died perhaps for ever.
        work = asyncio.wrap_future(_in_thread(lambda: self._send(client, version)))
        await asyncio.wait(
            {work, client.failure}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
        )
        if client.failure.done():
            cause = client.failure.result()
        elif work.done():
            cause = work.result()
        else:
            cause = DeadlineError(f"the weights did not arrive within {timeout_s:g} s")
            client.failure.set_result(cause)
        if cause is not None:
            if self._sender is not None:
                _in_thread(self._sender.close)  # ends a broadcast that waits for the dead
            raise WeightSyncError(
                f"the {self._name} transfer broke off and cannot be used again: {in_words(cause)}"
            ) from cause
        self.is_broken = False

    def close(self) -> None:
        """Leaves the transport; safe to call twice."""
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.close()

    def _send(self, client: _Client, version: int) -> None:
        if self._sender is None:
            self._sender = self._open_sender(client, len(client.actors) * self._gpus_each)
        self._sender.send(version)

    def _check_members(self, actors: Sequence[Actor]) -> None:
        assert self._client is not None, "it was made before"
        for actor in self._client.actors:
            if actor not in actors:
                why = f" ({in_words(actor.lost.result())})" if actor.is_lost else ""
                raise WeightSyncError(
                    f"{actor.name} was lost{why}, and {self._name} cannot take a new process in: "
                    "resume the run, or take --rollout.weight_sync.transport shared_memory, with "
                    "which lost processes are replaced"
                )


class _Client:
    """A `TransferClient`: each call goes to every process at once, from whatever thread it comes.

    ``failure`` is set to the first error: the sender may wait elsewhere and never learn of it.
    """

    def __init__(self, actors: Sequence[Actor], gpus_each: int) -> None:
        self.actors = tuple(actors)
        self._gpus_each = gpus_each
        self._loop = asyncio.get_running_loop()
        self.failure: asyncio.Future[Exception | None] = self._loop.create_future()

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        infos = [dict(init_info) for _ in self.actors]
        if "rank_offset" in init_info:  # of nccl: vLLM gives one, as if all were one engine
            for place, info in enumerate(infos):
                info["rank_offset"] += place * self._gpus_each
        self._ask("init", infos)

    def start_weight_update(self) -> None:
        self._ask("start", [None] * len(self.actors))

    def update_weights(self, update_info: Any) -> None:
        self._ask("update", [update_info] * len(self.actors))

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self._ask("finish", [weight_version] * len(self.actors))

    def _ask(self, call: TransferCall, infos: Sequence[Any]) -> None:
        if self.failure.done():
            raise WeightSyncError("the transfer broke off")
        asyncio.run_coroutine_threadsafe(self._ask_all(call, infos), self._loop).result()

    async def _ask_all(self, call: TransferCall, infos: Sequence[Any]) -> None:
        asked = zip(self.actors, infos, strict=True)
        try:
            await asyncio.gather(*(actor.handle.transfer(call, info) for actor, info in asked))
        except Exception as error:
            if not self.failure.done():
                self.failure.set_result(error)
            raise


def _in_thread(work: Callable[[], None]) -> Future[Exception | None]:
    """Runs ``work`` in a thread that keeps no process alive; the error it ended with, or None."""
    ended: Future[Exception | None] = Future()

    def run() -> None:
        try:
            work()
        except Exception as error:
            ended.set_result(error)
        else:
            ended.set_result(None)

    threading.Thread(target=run, name="rlgym-transfer", daemon=True).start()
    return ended
