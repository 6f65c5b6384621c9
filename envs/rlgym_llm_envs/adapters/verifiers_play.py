"""Play: an episode of verifiers whose model is asked by hand, one turn at a time.

A verifiers environment calls its agents and awaits their turns. Here a stand-in sits in the
agent's seat: its turn hands the messages out and waits for `Play.say`. No server and no harness is
in between. All episodes of a process share one event loop in a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections.abc import AsyncIterator, Sequence
from typing import Any

from rlgym_llm.errors import UserError
from rlgym_llm.scorers.loop import LoopThread
from rlgym_llm.types import Message
from rlgym_llm_envs.adapters.installed import installed

__all__ = ["Play", "require_verifiers"]


def require_verifiers() -> Any:
    """The module ``verifiers.v1``; DataError where it is missing."""
    return installed("verifiers.v1", pip="verifiers", who="environment 'verifiers'")


@functools.cache
def _loop(pid: int) -> LoopThread:
    """The loop of this process; a fork has none of its parent's."""
    return LoopThread(1)


class Play:
    """One episode: `open` gives the first messages, `say` what comes after a reply.

    Args:
        environment: A verifiers ``Env``.
        task: One of its tasks.
        agent: Whose replies `say` gives; any other agent that is asked is a UserError.
    """

    def __init__(self, environment: Any, task: Any, agent: str) -> None:
        self.environment, self.task, self.agent = environment, task, agent
        self.traces: list[Any] = []
        """The finished traces of verifiers, with their named rewards and metrics."""
        self._episode: asyncio.Task[None]
        self._asked: asyncio.Future[tuple[Message, ...]]
        self._answer: asyncio.Future[str] | None = None

    def open(self) -> tuple[Message, ...]:
        """Starts the episode. Raises UserError where it ends before the model is asked."""
        asked: list[tuple[Message, ...] | None] = []
        self._on_loop(self._start(asked))
        if asked[0] is None:
            raise UserError(f"task {self.task.key}: the episode ends before the model is asked")
        return asked[0]

    def say(self, text: str) -> tuple[Message, ...] | None:
        """Gives the model's reply; what it is asked next, None where the episode is over.

        What the environment raises passes through.
        """
        asked: list[tuple[Message, ...] | None] = []
        self._on_loop(self._go_on(text, asked))
        return asked[0]

    def close(self) -> None:
        """Ends an episode that is under way; safe to call twice."""
        self._on_loop(self._cancel())

    def abandon(self) -> None:
        """As `close`, without waiting: for whoever is collected as garbage, in any thread."""
        episode = self.__dict__.get("_episode")
        if episode is not None and not episode.done():
            with contextlib.suppress(RuntimeError):  # the loop has ended
                episode.get_loop().call_soon_threadsafe(episode.cancel)

    def _on_loop(self, work: Any) -> None:
        _loop(os.getpid()).run(work)

    async def _start(self, asked: list[tuple[Message, ...] | None]) -> None:
        self._asked = asyncio.get_running_loop().create_future()
        self._episode = asyncio.create_task(self._play())
        asked.append(await self._next())

    async def _go_on(self, text: str, asked: list[tuple[Message, ...] | None]) -> None:
        assert self._answer is not None, "open first"
        self._asked = asyncio.get_running_loop().create_future()
        self._answer.set_result(text)
        asked.append(await self._next())

    async def _next(self) -> tuple[Message, ...] | None:
        ends: set[asyncio.Future[Any]] = {self._episode, self._asked}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if self._asked.done():
            return self._asked.result()
        self._episode.result()  # raises what the episode raised
        return None

    async def _cancel(self) -> None:
        self._episode.cancel()
        with contextlib.suppress(BaseException):  # how it ended has been told, or does not matter
            await self._episode

    async def ask(self, messages: Sequence[Message]) -> str:
        """What the stand-in calls: hands the messages out and waits for the reply."""
        if self._asked.done():
            raise UserError(
                f"agent {self.agent!r} is asked twice at once, and an episode here is one "
                "conversation"
            )
        self._answer = asyncio.get_running_loop().create_future()
        self._asked.set_result(tuple(messages))
        return await self._answer

    async def _play(self) -> None:
        """What ``Env.run_episode`` of verifiers does, with the stand-in for its agents."""
        vf = require_verifiers()
        agents = _Agents(self)
        await self.environment.setup(agents)
        await self.environment.run(self.task, agents)
        if not self.traces:
            raise UserError(f"{type(self.environment).__name__}.run() ran no agent")
        episode = vf.Episode(
            env=vf.EnvInfo(id=self.environment.config.env_id),
            task=_trace_task(vf, self.task),
            traces=self.traces,
        )
        await self.environment.finalize(self.task, episode)


class _Agents:
    """The seats of an episode, by name."""

    def __init__(self, play: Play) -> None:
        for name, spec in play.environment._agent_specs.items():
            setattr(self, name, _Seat(play, name, spec))


class _Seat:
    """A stand-in for an ``Agent``."""

    def __init__(self, play: Play, name: str, config: Any) -> None:
        self.play, self.name, self.config = play, name, config
        self.trainable = True

    async def run(self, task: Any) -> Any:
        async with self.interaction(task) as talk:
            await talk.turn()
        return talk.trace

    @contextlib.asynccontextmanager
    async def interaction(self, task: Any) -> AsyncIterator[_Interaction]:
        play = self.play
        if self.name != play.agent:
            raise UserError(
                f"{type(play.environment).__name__} asks agent {self.name!r} too, and only "
                f"{play.agent!r} is played here; another model has no seat"
            )
        if play.traces:
            raise UserError(
                f"agent {self.name!r} plays a second time, and an episode here is one conversation"
            )
        talk = _Interaction(self, task)
        await task.setup(talk.trace, None)
        yield talk
        await talk.finish()


class _Interaction:
    """A stand-in for an ``Interaction``: the exchange of one seat."""

    def __init__(self, seat: _Seat, task: Any) -> None:
        self.vf = vf = require_verifiers()
        self.seat, self.task = seat, task
        state = installed("verifiers.v1.state", pip="verifiers", who="it").state_cls
        self.trace = vf.Trace(
            task=_trace_task(vf, task),
            state=state(type(task))(),
            agent=vf.AgentInfo(config=seat.config, name=seat.name),
        )
        self.unsaid: list[Message] = []
        if task.data.system_prompt:
            self._hear(vf.SystemMessage(content=task.data.system_prompt))
        self._hear_all(task.data.prompt)

    async def turn(self, message: Any = None) -> Any:
        """One reply of the model, to the message if there is one."""
        limit = self.seat.config.max_turns
        if limit is not None and self.trace.num_turns >= limit:
            self.trace.stop("max_turns")
            return self.vf.Segment(messages=[], terminated=True)
        self._hear_all(message)
        asked, self.unsaid = self.unsaid, []
        text = await self.seat.play.ask(asked)
        reply = self.vf.AssistantMessage(content=text)
        self._add(reply, sampled=True)
        return self.vf.Segment(messages=[reply])

    async def finish(self) -> None:
        """What a rollout of verifiers does at its end: the hook, and the scores."""
        if self.trace.stop_condition is None:
            self.trace.stop("agent_completed")
        await self.task.finalize(self.trace, None)
        await self.task.score(self.trace, None)
        self.trace.is_completed = self.trace.ok = True
        self.seat.play.traces.append(self.trace)

    def _hear_all(self, prompt: Any) -> None:
        if isinstance(prompt, str):
            self._hear(self.vf.UserMessage(content=prompt))
        else:
            for message in prompt or ():
                self._hear(message)

    def _hear(self, message: Any) -> None:
        self._add(message, sampled=False)
        content = message.content if message.content is not None else ""
        if not isinstance(content, str):
            kinds = {part.type for part in content}
            if kinds - {"text"}:
                raise UserError(f"task {self.task.key}: a message holds {kinds}, not text alone")
            content = "".join(part.text for part in content)
        self.unsaid.append(Message(role=message.role, content=content))

    def _add(self, message: Any, *, sampled: bool) -> None:
        nodes = self.trace.nodes
        parent = len(nodes) - 1 if nodes else None
        nodes.append(self.vf.MessageNode(parent=parent, message=message, sampled=sampled))


def _trace_task(vf: Any, task: Any) -> Any:
    return vf.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
