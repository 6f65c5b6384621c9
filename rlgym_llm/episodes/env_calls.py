"""The calls that an episode makes on its environment, each with a deadline, off the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import gymnasium

from rlgym_llm.env_pool import EnvPool
from rlgym_llm.episodes.encoder import Encoder, Tools
from rlgym_llm.episodes.failure import EpisodeFailure, environment_failure, generator_failure
from rlgym_llm.episodes.spec import EpisodeSpec
from rlgym_llm.episodes.threads import Call, DeadlineThreads
from rlgym_llm.types import Action, Message

__all__ = ["Env", "EnvCalls", "StepResult"]

T = TypeVar("T")
Env = gymnasium.Env[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What came of one call: what the environment says, and the ids that this adds."""

    env: Env | None = None
    """The environment of a `EnvCalls.open`."""
    tools: Tools = ()
    token_ids: tuple[int, ...] = ()
    """Of the opening prompt or the reply; none where no further turn follows."""
    reply: tuple[Message, ...] = ()
    env_reward: float | None = None
    terminated: bool = False
    truncated: bool = False
    failure: EpisodeFailure | None = None


class EnvCalls:
    """Environments, the threads that they run in, and the encoder of what they say.

    A synchronous environment runs in one of the threads, another one at every call if it so
    happens; one with ``async def areset`` and ``astep`` (its own, past its wrappers) on the loop.
    """

    def __init__(
        self,
        pool: EnvPool,
        encoder: Encoder,
        threads: DeadlineThreads,
        *,
        encodes: str,
        timeout_s: float | None,
    ) -> None:
        prototype = pool.prepare().unwrapped  # a wrapper would hide what is asynchronous
        self._pool = pool
        self._encoder = encoder
        self._threads = threads
        self._encodes = encodes
        self._timeout_s = timeout_s
        self._name = type(prototype).__name__
        self._is_async = hasattr(prototype, "astep")

    async def open(self, spec: EpisodeSpec) -> StepResult:
        """Resets an environment in the task and encodes its prompt. Raises nothing."""
        options = {"task": spec.task}
        try:
            if self._is_async:
                env: Any = await self._threads.call(lambda call: self._pool.acquire())
                prompt, info = await self._in_time(
                    env.unwrapped.areset(seed=spec.seed, options=options)
                )
                return await self._threads.call(lambda call: self._opening(env, prompt, info))

            def work(call: Call[StepResult]) -> StepResult:
                env = self._pool.acquire()
                with call.within(self._timeout_s):
                    prompt, info = env.reset(seed=spec.seed, options=options)
                return self._opening(env, prompt, info)

            return await self._threads.call(work)
        except Exception as error:
            return StepResult(failure=environment_failure(f"{self._name}.reset", error))

    async def step(self, env: Any, action: Action, *, tools: Tools, is_last: bool) -> StepResult:
        """Steps the environment and encodes its reply, if another turn follows. Raises nothing."""
        try:
            if self._is_async:
                step = await self._in_time(env.unwrapped.astep(action))
                return await self._threads.call(lambda call: self._answer(step, tools, is_last))

            def work(call: Call[StepResult]) -> StepResult:
                with call.within(self._timeout_s):
                    step = env.step(action)
                return self._answer(step, tools, is_last)

            return await self._threads.call(work)
        except Exception as error:
            return StepResult(failure=environment_failure(f"{self._name}.step", error))

    async def _in_time(self, work: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._timeout_s) as deadline:
                return await work
        except TimeoutError as error:
            if not deadline.expired():  # the environment's own
                raise
            raise TimeoutError(f"no answer within {self._timeout_s:g} s") from error

    def _opening(self, env: Env, prompt: Any, info: dict[str, Any]) -> StepResult:
        tools = tuple(info.get("tools", ()))
        token_ids, failure = self._encoded(self._encoder.prompt, prompt, tools)
        return StepResult(env=env, tools=tools, token_ids=token_ids, failure=failure)

    def _answer(self, step: Any, tools: Tools, is_last: bool) -> StepResult:
        _, _, terminated, truncated, info = step
        reply = info["reply"]
        token_ids: tuple[int, ...] = ()
        failure: EpisodeFailure | None = None
        if not (is_last or terminated or truncated):
            token_ids, failure = self._encoded(self._encoder.reply, reply, tools)
        return StepResult(
            token_ids=token_ids,
            reply=reply,
            env_reward=info["env_reward"],
            terminated=bool(terminated),
            truncated=bool(truncated),
            failure=failure,
        )

    def _encoded(
        self, encode: Callable[[Any, Tools], tuple[int, ...]], text: Any, tools: Tools
    ) -> tuple[tuple[int, ...], EpisodeFailure | None]:
        try:
            return encode(text, tools), None
        except Exception as error:
            return (), generator_failure(self._encodes, error)
