"""EpisodeRunner: episodes side by side on an event loop, none of which holds up another.

    open: reset -> ids ----------> sample ---------> Completion
          (thread)       ^       (generator)             |
                         |                               v
                         +--- ids of the reply <------ step          over -> Rollout
                                    (thread)         (thread)

Scoring is deferred: the composer scores once, when the groups are complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Unpack

from rlgym_llm.env_pool import EnvPool, MakeEnv
from rlgym_llm.episodes.batching import Batching, BatchingGenerator, CallOff, Sample
from rlgym_llm.episodes.encoder import Encoder
from rlgym_llm.episodes.env_calls import EnvCalls
from rlgym_llm.episodes.episode import Episode
from rlgym_llm.episodes.failure import generator_failure
from rlgym_llm.episodes.spec import EpisodeLimits, EpisodeSpec
from rlgym_llm.episodes.threads import DeadlineThreads
from rlgym_llm.errors import GeneratorError, UserError, did_you_mean
from rlgym_llm.generate import AsyncGenerator, Generator, SamplingParams
from rlgym_llm.types import Action, Rollout

__all__ = ["EpisodeRunner"]


class EpisodeRunner:
    """Runs episodes on one event loop; made once and used for many.

    Each episode is a task of its own. Synchronous environments run in at most ``num_threads``
    threads. A generator with ``sample`` is awaited for every turn; one with ``generate`` gets
    batches, and so does one with both where ``batching`` is given; ``call_generator`` says how
    `generate` is called off the loop, by default in threads.

    Give an `EnvPool` as ``make_env`` to keep environments when the runner is closed; otherwise
    ``make_env`` is called here, once. Raises UserError for a limit that does not exist.
    """

    def __init__(
        self,
        *,
        make_env: MakeEnv,
        generator: Generator | AsyncGenerator,
        params: SamplingParams,
        batching: Batching | None = None,
        num_threads: int | None = 32,
        call_generator: CallOff | None = None,
        **limits: Unpack[EpisodeLimits],
    ) -> None:
        _check(limits)
        self._params = params
        self._limits = limits
        self._owns_pool = not isinstance(make_env, EnvPool)
        self._pool = make_env if isinstance(make_env, EnvPool) else EnvPool(make_env)
        self._threads = DeadlineThreads(num_threads)
        name = type(generator).__name__
        self._env_calls = EnvCalls(
            self._pool,
            Encoder(generator),
            self._threads,
            encodes=f"{name}.encode",
            timeout_s=limits.get("step_timeout_s"),
        )
        self._generator_threads: DeadlineThreads | None = None
        self._slot: Callable[[], AbstractContextManager[Sample]]
        if isinstance(generator, AsyncGenerator) and (
            batching is None or not isinstance(generator, Generator)
        ):
            self._slot = lambda: nullcontext(generator.sample)
            self._samples = f"{name}.sample"
        else:
            batching = batching or Batching()
            if call_generator is None:
                self._generator_threads = DeadlineThreads(
                    batching.max_in_flight, name="rlgym-generator"
                )
                call_generator = self._generator_threads.do
            self._slot = BatchingGenerator(generator, batching, call_generator).slot
            self._samples = f"{name}.generate"

    async def run(self, spec: EpisodeSpec) -> Rollout:
        """One episode, unscored. What fails in it is told by its status; it raises nothing of that.

        What a generator raises beside GeneratorError and TimeoutError is a mistake and raised.
        """
        episode = Episode(spec=spec, params=self._params, limits=self._limits)
        with self._slot() as sample:
            episode.begin(await self._env_calls.open(spec))
            while (request := episode.next_request()) is not None:
                try:
                    completion = await sample(request)
                except (GeneratorError, TimeoutError) as error:
                    episode.fail(generator_failure(self._samples, error))
                    break
                result = await self._env_calls.step(
                    episode.env,
                    Action.from_completion(completion),
                    tools=episode.tools,
                    is_last=episode.is_last_turn,
                )
                episode.take(completion, result)
        if episode.env is not None:
            self._pool.release(episode.env)
        return episode.to_rollout()

    async def stream(self, specs: Iterable[EpisodeSpec]) -> AsyncIterator[Rollout]:
        """The rollouts of all specs, run side by side, as they come in."""
        tasks = [asyncio.create_task(self.run(spec)) for spec in specs]
        try:
            for done in asyncio.as_completed(tasks):
                yield await done
        finally:
            await _cancel(tasks)

    async def run_all(
        self,
        specs: Iterable[EpisodeSpec],
        *,
        on_rollout: Callable[[Rollout], None] | None = None,
    ) -> list[Rollout]:
        """The rollouts of all specs, run side by side, in the order of the specs.

        ``on_rollout`` hears of each as it ends.
        """

        async def run(spec: EpisodeSpec) -> Rollout:
            rollout = await self.run(spec)
            if on_rollout is not None:
                on_rollout(rollout)
            return rollout

        tasks = [asyncio.create_task(run(spec)) for spec in specs]
        try:
            return await asyncio.gather(*tasks)
        finally:
            await _cancel(tasks)

    async def aclose(self) -> None:
        """Ends the threads and closes environments that are its own; safe to call twice.

        The generator is the caller's to close.
        """
        self._threads.stop()
        if self._generator_threads is not None:
            self._generator_threads.stop()
        if self._owns_pool:
            self._pool.close()


async def _cancel(tasks: Sequence[asyncio.Task[Rollout]]) -> None:
    if left := [task for task in tasks if not task.done()]:
        for task in left:
            task.cancel()
        await asyncio.wait(left)


def _check(limits: EpisodeLimits) -> None:
    known = sorted(EpisodeLimits.__annotations__)
    for name, value in limits.items():
        if name not in known:
            hint = did_you_mean(name, known)
            raise UserError(f"unknown limit {name!r}{hint} (known: {', '.join(known)})")
        if value is None:
            continue
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if name.endswith(("_seconds", "_s")):
            if not (is_number and value > 0):  # type: ignore[operator]
                raise UserError(f"{name} must be above 0 or None, got {value!r}")
        elif not (isinstance(value, int) and is_number and value >= 1):
            raise UserError(f"{name} must be a whole number of at least 1 or None, got {value!r}")
