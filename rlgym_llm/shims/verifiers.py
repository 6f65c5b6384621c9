"""Our environments as those of verifiers (``verifiers.v1``), imported when they are made."""

from __future__ import annotations

import asyncio
import importlib
import types
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rlgym_llm.errors import DataError
from rlgym_llm.types import Message

if TYPE_CHECKING:
    from rlgym_llm.env import TextEnv

__all__ = ["to_verifiers"]


class _TasksetMethods:
    """What a ``Taskset`` adds; made by `to_verifiers`."""

    rlgym_env: TextEnv
    rlgym_task: type[Any]
    config: Any

    def load(self) -> Iterator[Any]:
        """A task of verifiers for each of ours, in their order."""
        vf = _verifiers()
        for index in range(len(self.rlgym_env.tasks)):
            task = self.rlgym_env.tasks[index]
            prompt = self.rlgym_env.opening(task)
            messages = [Message(role="user", content=prompt)] if isinstance(prompt, str) else prompt
            system = messages[0].content if messages[0].role == "system" else None
            data = vf.TaskData(
                id=task.id,
                prompt=_to_theirs(vf, messages[system is not None :]),
                system_prompt=system,
            )
            yield self.rlgym_task(data, self.config.task)


class _EnvMethods:
    """What an ``Env`` adds; made by `to_verifiers`."""

    rlgym_env: TextEnv

    async def run(self, task: Any, agents: Any) -> None:
        """One episode: our environment plays the user, and scores at the end."""
        vf = _verifiers()
        env = self.rlgym_env.fresh()
        try:
            env.reset(options={"index": task.data.idx})
            card = None
            async with agents.agent.interaction(task) as talk:
                said = await talk.turn()
                while not said.terminated:
                    # What scores may take its time, and this loop is everybody's.
                    *_, terminated, truncated, info = await asyncio.to_thread(
                        env.step, said.last_reply
                    )
                    if terminated or truncated:
                        card = info["score"]
                        break
                    said = await talk.turn(_to_theirs(vf, info["reply"]))
            trace = talk.trace
            trace.rewards["rlgym"] = None
            if card is not None and card.reward is not None:
                trace.record_reward("rlgym", card.reward)
                for name, component in card.components.items():
                    if component.raw is not None:
                        trace.record_metric(name, component.raw)
        finally:
            env.close()


def to_verifiers(env: TextEnv | str, **kwargs: Any) -> tuple[type[Any], type[Any]]:
    """A ``Taskset`` and an ``Env`` class of verifiers that play a `TextEnv`, or an id's.

    A module whose ``__all__`` names the two is a taskset to verifiers: its name is the id. The
    composed reward is the trace's reward ``rlgym``, None (not scored) where verifiers' own limits
    ended the episode first; the components' raw scores are metrics. Raises DataError where
    verifiers is missing, and what `rlgym_llm.make` raises; ``kwargs`` go to it.
    """
    vf = _verifiers()
    inner: Any = env
    if isinstance(env, str):
        from rlgym_llm.registry import make

        inner = make(env, **kwargs).unwrapped

    def body(methods: dict[str, Any]) -> Any:
        return lambda namespace: namespace.update(methods)

    task = types.new_class("RlgymTask", (vf.Task[vf.TaskData, vf.State, vf.TaskConfig],))
    taskset = types.new_class(
        "RlgymTaskset",
        (_TasksetMethods, vf.Taskset[task, vf.TasksetConfig]),
        exec_body=body({"rlgym_env": inner, "rlgym_task": task}),
    )
    environment = types.new_class(
        "RlgymEnv",
        (_EnvMethods, vf.Env[vf.SingleAgentEnvConfig]),
        exec_body=body({"rlgym_env": inner}),
    )
    return taskset, environment


def _verifiers() -> Any:
    try:
        return importlib.import_module("verifiers.v1")
    except ImportError as error:
        raise DataError(
            f"to_verifiers needs the package verifiers ({error}): pip install verifiers"
        ) from error


def _to_theirs(vf: Any, messages: Sequence[Message]) -> list[Any]:
    kinds = {"system": vf.SystemMessage, "user": vf.UserMessage, "assistant": vf.AssistantMessage}
    theirs = []
    for message in messages:
        if message.role not in kinds:
            raise DataError(f"verifiers takes no {message.role} message from an environment")
        theirs.append(kinds[message.role](content=message.content))
    return theirs
