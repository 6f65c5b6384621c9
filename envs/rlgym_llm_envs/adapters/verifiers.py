"""Environments of verifiers as ours: its tasks, its turns, its named rewards."""

from __future__ import annotations

import copy
import inspect
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlgym_llm.env import TurnOutcome
from rlgym_llm.errors import ConfigError, DataError, UserError, one_line
from rlgym_llm.multi_turn import MultiTurnEnv
from rlgym_llm.tasks import ListTasks
from rlgym_llm.types import Action, Message, Task
from rlgym_llm_envs.adapters.installed import installed
from rlgym_llm_envs.adapters.own_random import OwnRandom
from rlgym_llm_envs.adapters.verifiers_play import Play, require_verifiers
from rlgym_llm_envs.adapters.words import name_of

__all__ = ["VerifiersEnv", "VerifiersState"]


class _Live:
    """An episode under way; a copy has none and plays its turns again."""

    def __init__(self, play: Play | None = None, random: OwnRandom | None = None) -> None:
        self.play, self.random = play, random

    def __del__(self) -> None:
        if self.play is not None:
            self.play.abandon()

    def __deepcopy__(self, memo: Any) -> _Live:
        return _Live()

    def __reduce__(self) -> tuple[type[_Live], tuple[()]]:
        return _Live, ()


@dataclass(kw_only=True)
class VerifiersState:
    """Where an episode stands: what was said so far, from which a copy plays it again."""

    task: Task
    said: list[str] = field(default_factory=list)
    live: _Live = field(default_factory=_Live, compare=False)


class VerifiersEnv(MultiTurnEnv[VerifiersState]):
    """Plays an environment of verifiers (``verifiers.v1``), of one turn or many.

    The reward is that of verifiers, the sum of its rewards by their weights; the last step's
    ``info["verifiers"]`` names them: ``{"rewards": {name: {"score": ..., "weight": ...}},
    "metrics": {name: ...}}``. Tasks that need a container, tools or a second model are refused:
    here a text is scored, and nothing is run for it.

    Args:
        env: The id of an installed taskset, or a module-level function that returns a verifiers
            ``Env`` (it is called with ``kwargs``).
        kwargs: Fields of the environment's configuration beside the taskset's id, such as
            ``{"taskset": {"split": "test"}}``.
        num_tasks: How many tasks to take; needed where there are infinitely many.
        skip: How many tasks to pass over first.
        agent: The seat that the policy takes, where there are several.
        draws_globally: True for an environment that draws from the global random generators: it
            is lent them, one episode at a time.
        options: Arguments of `MultiTurnEnv`, such as ``rewards`` and ``max_turns``.

    Raises DataError where verifiers or the taskset is missing, and ConfigError for what cannot be
    played here.
    """

    shared = ("environment", "template")

    def __init__(
        self,
        *,
        env: str | Callable[..., Any],
        kwargs: Mapping[str, Any] | None = None,
        num_tasks: int | None = None,
        skip: int = 0,
        agent: str | None = None,
        draws_globally: bool = False,
        max_turns: int | None = None,
        **options: Any,
    ) -> None:
        self.source = (env, dict(kwargs or {}))
        self.draws_globally = draws_globally
        self.environment = _environment(*self.source)
        self.name = f"verifiers/{self.environment.config.env_id or name_of(env)}"
        seats = list(self.environment._agent_specs)
        if agent is None and len(seats) > 1:
            raise ConfigError(f"{self.name} has the agents {', '.join(seats)}: give agent=...")
        self.agent = agent or seats[0]
        if self.agent not in seats:
            raise ConfigError(f"{self.name} has no agent {agent!r} (agents: {', '.join(seats)})")
        theirs = self._their_tasks(num_tasks, skip)
        self.data_type = type(theirs[0].data)
        self.template = theirs[0]
        super().__init__(
            tasks=ListTasks([self._our_task(number, one) for number, one in enumerate(theirs)]),
            max_turns=max_turns,
            **options,
        )

    def start(self, task: Task) -> VerifiersState:
        """An episode at its first question. Raises UserError for a task that is not verifiers'."""
        if "data" not in task.info:
            raise UserError(
                f"task {task.id}: {self.name} needs info['data'], as its own tasks hold"
            )
        self._end()
        state = VerifiersState(task=task)
        self._revive(state)
        return state

    def respond(self, state: VerifiersState, action: Action) -> TurnOutcome:
        """What the environment says to the text; at the end its reward."""
        self._revive(state)
        asked = self._say(state, action.text)
        if asked is not None:
            state.said.append(action.text)
            return TurnOutcome(reply=asked)
        assert state.live.play is not None
        trace = state.live.play.traces[-1]
        missing = [name for name, reward in trace.rewards.items() if reward is None]
        if missing:
            raise RuntimeError(f"{self.name}: reward {missing[0]!r} was not scored")
        return TurnOutcome(env_reward=trace.reward, terminated=True)

    def step(self, action: str | Action) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """As `TextEnv.step`, with verifiers' named rewards in ``info["verifiers"]`` at the end."""
        observation, reward, terminated, truncated, info = super().step(action)
        play = self.state.live.play
        if terminated and play is not None and play.traces:
            trace = play.traces[-1]
            info["verifiers"] = {
                "rewards": {
                    name: {"score": one.score, "weight": one.weight}
                    for name, one in trace.rewards.items()
                    if one is not None
                },
                "metrics": dict(trace.metrics),
            }
        return observation, reward, terminated, truncated, info

    def close(self) -> None:
        """Ends the episode under way, too."""
        self._end()
        super().close()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "environment": None, "template": None, "data_type": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.environment = _environment(*self.source)
        self.template = next(iter(self.environment.taskset))
        self.data_type = type(self.template.data)

    def _their_tasks(self, num_tasks: int | None, skip: int) -> list[Any]:
        taskset = self.environment.taskset
        if num_tasks is None and not taskset.bounded:
            raise ConfigError(f"{self.name} has infinitely many tasks: give num_tasks=...")
        stop = None if num_tasks is None else skip + num_tasks
        tasks = list(itertools.islice(taskset, skip, stop))
        if not tasks:
            raise DataError(f"{self.name} has no task after the first {skip}")
        _check_playable(self.name, self.environment, tasks[0])
        return tasks

    def _our_task(self, number: int, theirs: Any) -> Task:
        play = Play(self.environment, theirs, self.agent)
        prompt = self._open(play, OwnRandom(number))
        play.close()
        answer = getattr(theirs.data, "answer", None)
        return Task(
            prompt=prompt,
            answer=answer if isinstance(answer, str) else None,
            data_source=self.name,
            info={"data": theirs.data.model_dump(mode="json"), "number": number},
            id=f"{self.name}/{theirs.key}",
        )

    def _revive(self, state: VerifiersState) -> None:
        """Plays again what was said, where the episode under way is another copy's."""
        if state.live.play is not None:
            return
        data = self.data_type.model_validate(state.task.info["data"])
        theirs = copy.copy(self.template)
        theirs.data = data
        play = Play(self.environment, theirs, self.agent)
        random = OwnRandom(int(state.task.info.get("number", 0)))
        state.live.play, state.live.random = play, random
        if self._open(play, random) != state.task.prompt:
            raise UserError(f"task {state.task.id}: {self.name} opens otherwise each time")
        for text in state.said:
            self._say(state, text)

    def _open(self, play: Play, random: OwnRandom) -> tuple[Message, ...]:
        if not self.draws_globally:
            return play.open()
        with random.lent():
            return play.open()

    def _say(self, state: VerifiersState, text: str) -> tuple[Message, ...] | None:
        assert state.live.play is not None
        assert state.live.random is not None
        if not self.draws_globally:
            return state.live.play.say(text)
        with state.live.random.lent():
            return state.live.play.say(text)

    def _end(self) -> None:
        state = self.__dict__.pop("state", None)
        if state is not None and state.live.play is not None:
            state.live.play.close()


def _environment(env: str | Callable[..., Any], kwargs: Mapping[str, Any]) -> Any:
    """The verifiers ``Env`` that an id or a function names."""
    require_verifiers()
    if not isinstance(env, str):
        return env(**kwargs)
    loaders = installed("verifiers.v1.utils.loaders", pip="verifiers", who=f"environment {env!r}")
    data = {**kwargs, "taskset": {**kwargs.get("taskset", {}), "id": env}}
    try:
        return loaders.load_environment(loaders.resolve_env_config(data))
    except ModuleNotFoundError as error:
        raise DataError(f"verifiers/{env} is not installed: {one_line(error, 300)}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"verifiers/{env} cannot be made: {one_line(error, 300)}") from error


def _check_playable(name: str, environment: Any, task: Any) -> None:
    """Raises ConfigError for what needs more than a text."""
    needs = []
    if task.NEEDS_CONTAINER or task.data.image:
        needs.append("a container")
    if task.toolsets(task.config) or environment.taskset.toolsets(environment.taskset.config):
        needs.append("tools")
    for hook in (*task.hooks("reward"), *task.hooks("metric")):
        runtime = inspect.signature(hook).parameters.get("runtime")
        if runtime is not None and runtime.default is inspect.Parameter.empty:
            needs.append(f"a runtime for {hook.__name__!r}")
    if needs:
        raise ConfigError(f"{name} needs {', '.join(needs)}, which only verifiers itself has")
