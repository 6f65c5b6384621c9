"""Groups of episodes through a generator, handed over as soon as each is complete.

    round: group group group ... --EpisodeRunner--> rollouts --keep--> the caller's thread
           at most `most_groups` at a time, none of which waits for another

A round begins when the one before has ended. A generator of batches gets a round a batch, so that
a batch is always the same; one that makes its own gets everything as one round and is never idle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from rlgym_llm.episodes.callers_thread import CallersThread
from rlgym_llm.episodes.runner import EpisodeRunner
from rlgym_llm.rollout import EpisodeSpec
from rlgym_llm.types import Rollout

__all__ = ["run_rounds"]

Group = Sequence[EpisodeSpec]
Keep = Callable[[Sequence[Sequence[Rollout]]], None]
"""Takes complete groups; what it raises ends the run."""


def run_rounds(
    rounds: Iterable[Sequence[Group]],
    *,
    make_runner: Callable[[CallersThread], EpisodeRunner],
    keep: Keep,
    most_groups: int,
    should_stop: Callable[[], bool],
) -> None:
    """Runs the groups; returns once all are kept, or those under way after ``should_stop()``.

    ``keep`` is called in this thread, one call at a time, with all groups that wait; so memory is
    bounded by ``most_groups``: those that run and those that wait to be kept. ``should_stop`` is
    looked at before a round and whenever a group is done.
    """
    caller = CallersThread()

    async def run() -> None:
        runner = make_runner(caller)
        try:
            await _run(rounds, runner, _Keeper(keep, caller), most_groups, should_stop)
        finally:
            await runner.aclose()

    caller.run(run())


async def _run(
    rounds: Iterable[Sequence[Group]],
    runner: EpisodeRunner,
    keeper: _Keeper,
    most_groups: int,
    should_stop: Callable[[], bool],
) -> None:
    running: set[asyncio.Task[None]] = set()

    async def run_group(group: Group) -> None:
        await keeper.keep(await runner.run_all(group))

    try:
        for round_ in rounds:
            if should_stop():
                return
            for group in round_:
                if len(running) >= most_groups:
                    running = await _wait(running, until=most_groups)
                    if should_stop():
                        break
                running.add(asyncio.create_task(run_group(group)))
            running = await _wait(running, until=1)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _wait(running: set[asyncio.Task[None]], *, until: int) -> set[asyncio.Task[None]]:
    """Those that still run, fewer than ``until``; raises the first failure as it comes."""
    while len(running) >= until:
        done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    return running


class _Keeper:
    """Hands over what is complete: all that waits at a time, one hand-over after the other."""

    def __init__(self, keep: Keep, caller: CallersThread) -> None:
        self._keep = keep
        self._caller = caller
        self._lock = asyncio.Lock()
        self._waiting: list[Sequence[Rollout]] = []

    async def keep(self, group: Sequence[Rollout]) -> None:
        """Returns once the group is kept."""
        self._waiting.append(group)
        async with self._lock:
            if self._waiting:  # else the hand-over before took it along
                groups, self._waiting = self._waiting, []
                await self._caller.do(lambda: self._keep(groups))
