"""Mixture: several environments as one, with weights."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from gymnasium.error import ResetNeeded

from rlgym_llm.accuracy import accuracy_component
from rlgym_llm.call_signature import check_arguments, named_parameters
from rlgym_llm.curriculum import SuccessCurriculum, read_curriculum
from rlgym_llm.env import TextEnv
from rlgym_llm.env_turn import as_action
from rlgym_llm.errors import ConfigError, UserError
from rlgym_llm.mixed_rewards import mixed_rewards
from rlgym_llm.plugins import Plugins
from rlgym_llm.registry import find_env, make
from rlgym_llm.reward_config import RewardsConfig
from rlgym_llm.rewards import RewardPlugins
from rlgym_llm.splits import Split
from rlgym_llm.tasks import TaskSource
from rlgym_llm.types import Action, Prompt, Task

__all__ = ["MemberSettings", "MixedTasks", "Mixture", "read_members", "validates"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """One environment of a mixture, as it is configured."""

    id: str
    """Id of the environment, as `rlgym_llm.make` takes it."""
    weight: float = 1.0
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of its constructor."""
    val_kwargs: Mapping[str, Any] | None = None
    """Further ones, over ``kwargs``, where the mixture validates: the file of its problems, say."""


class MixedTasks:
    """The tasks of all members, one after the other, each with its member as ``info["env"]``."""

    def __init__(self, sources: Mapping[str, TaskSource]) -> None:
        self._sources = dict(sources)
        self._aliases = tuple(sources)
        self._ends = tuple(itertools.accumulate(len(source) for source in sources.values()))

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int, /) -> Task:
        if not 0 <= index < len(self):
            raise IndexError(f"task {index} of {len(self)}")
        place = bisect.bisect_right(self._ends, index)
        alias = self._aliases[place]
        task = self._sources[alias][index - self.span(alias).start]
        return replace(task, id=f"{alias}/{task.id}", info={**task.info, "env": alias})

    def span(self, alias: str) -> range:
        """The indices of one member's tasks."""
        place = self._aliases.index(alias)
        return range(self._ends[place - 1] if place else 0, self._ends[place])

    def __repr__(self) -> str:
        return f"MixedTasks({len(self)} tasks of {', '.join(self._aliases)})"


class Mixture(TextEnv):
    """Plays the tasks of several environments, each by the rules of its own environment.

    A task says in ``info["env"]`` which member it belongs to. Components of the members' rewards
    are named ``<alias>/<component>`` and apply to the member's own tasks only. `reset` without an
    index draws the member by weight, then one of its tasks.

    Args:
        envs: By alias: a weight, where the alias is the environment's id, or ``{"id", "weight",
            "kwargs", "val_kwargs"}`` (only ``id`` has no default: the alias). Weights are shares:
            3 and 1 are three in four.
        curriculum: Moves the shares in training by success; True or ``{}`` for its defaults.
        seed: Given to members that take a ``seed`` and were given none.
        split: Given to members that take a ``split``. Under ``"val"`` and ``"test"``, members that
            do not and have no ``val_kwargs`` are left out: their tasks are trained on.
        rewards: In place of those of the members; rules alone (``{"on_truncated": "zero"}``) bind
            the members' components.
        plugins: Where the members come from; None is whatever is installed.
        options: Arguments of `TextEnv`: ``defer_scoring``, ``max_turns``, ``render_mode``.

    Raises UserError for a mixture that cannot be, and what `rlgym_llm.make` raises for a member.
    """

    shared: ClassVar[tuple[str, ...]] = ("members", "weights", "curriculum", "accuracies")
    default_rewards: ClassVar[Any] = None
    """Those of the members: they are known once the mixture is made."""

    tasks: MixedTasks

    def __init__(
        self,
        *,
        envs: Mapping[str, float | Mapping[str, Any]],
        curriculum: SuccessCurriculum | Mapping[str, Any] | bool | None = None,
        seed: int = 0,
        split: Split = "train",
        rewards: RewardsConfig | Mapping[str, Any] | None = None,
        plugins: Plugins | None = None,
        max_turns: int | None = None,
        **options: Any,
    ) -> None:
        plugins = Plugins.installed() if plugins is None else plugins
        wanted = read_members(envs)
        self.curriculum = read_curriculum(curriculum)
        self.members: Mapping[str, TextEnv] = {
            alias: _made(alias, settings, split=split, seed=seed, plugins=plugins)
            for alias, settings in wanted.items()
            if split == "train" or validates(settings, plugins)
        }
        if not self.members:
            raise UserError(
                f"no environment of the mixture has tasks of the split {split}: give val_kwargs, "
                "or environments that take split"
            )
        _check_prompts(self.members)
        self.weights: Mapping[str, float] = {alias: wanted[alias].weight for alias in self.members}
        own = mixed_rewards({a: m.rewards for a, m in self.members.items()}, rules=rewards)
        super().__init__(
            tasks=MixedTasks({alias: member.tasks for alias, member in self.members.items()}),
            rewards=own,
            max_turns=max_turns,
            **options,
        )
        self.plugins = plugins
        self.accuracies: Mapping[str, str] = _accuracies(self.members, self.rewards, plugins)
        """Per member, the component that says whether an answer is right, where one does."""
        self._member: TextEnv | None = None
        self._alias = ""
        self._member_seed: int | None = None
        self._member_info: dict[str, Any] = {}
        self._opening: Prompt = ""

    def member_of(self, task: Task) -> str:
        """The alias of the member that a task belongs to. Raises UserError for one of no member."""
        alias = task.info.get("env")
        if alias not in self.members:
            known = ", ".join(self.members)
            raise UserError(f"task {task.id}: info['env'] is {alias!r}, none of {known}")
        return str(alias)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Prompt, dict[str, Any]]:
        """As `TextEnv.reset`; the info is the member's, with the index among all tasks."""
        self._member_seed = seed if options else None
        observation, info = super().reset(seed=seed, options=options)
        return observation, {**self._member_info, **info}

    def begin(self, task: Task) -> None:
        """Begins the episode of the member."""
        alias = self.member_of(task)
        if self._member is None or alias != self._alias:
            if self._member is not None:
                self._member.close()
            self._member, self._alias = self.members[alias].fresh(), alias
            self._member.defer_scoring = True
        seed = self._member_seed
        if seed is None:  # another one than drew the task, or chance would repeat itself
            seed = int(self.np_random.integers(2**32))
        self._opening, self._member_info = self._member.reset(seed=seed, options={"task": task})

    def opening(self, task: Task) -> Prompt:
        """What the member asks first."""
        return self._opening

    def step(self, action: str | Action) -> tuple[Prompt, float, bool, bool, dict[str, Any]]:
        """As `TextEnv.step`, by the rules of the member; the info holds what the member's does."""
        task, member = self.task, self._member
        if self._is_over or member is None:
            raise ResetNeeded(f"the episode of task {task.id} is over; call reset")
        action = as_action(action, type(self).__name__)
        self._observation, _, terminated, truncated, info = member.step(action)
        self._turns = member.turns
        truncated = truncated or (not terminated and self._is_out_of_turns())
        self._is_over = terminated or truncated
        return self._stepped(terminated, truncated, {**info, "index": self._index})

    def gold_action(self, task: Task) -> str | Action | None:
        """The best action, as the member knows it."""
        return self._member.gold_action(task) if self._member is not None else None

    def close(self) -> None:
        """Closes the member under way, and lets go of the rewards' workers."""
        if self._member is not None:
            self._member.close()
        super().close()

    def _choose(self, options: Mapping[str, Any]) -> tuple[Task, int | None]:
        if not options:
            aliases = list(self.weights)
            total = math.fsum(self.weights.values())
            shares = [weight / total for weight in self.weights.values()]
            span = self.tasks.span(aliases[int(self.np_random.choice(len(aliases), p=shares))])
            place = span.start + int(self.np_random.integers(len(span)))
            return self.tasks[place], place
        task, index = super()._choose(options)
        self.member_of(task)
        return task, index


def read_members(envs: Mapping[str, float | Mapping[str, Any]]) -> dict[str, MemberSettings]:
    """The members by alias. Raises ConfigError for what is none.

    >>> read_members({"easy": {"id": "arithmetic", "kwargs": {"level": 1}}})["easy"].weight
    1.0
    """
    if not isinstance(envs, Mapping) or not envs:
        raise ConfigError(f"a mixture needs envs such as {{'math-gsm8k': 1.0}}, got {envs!r}")
    found = {}
    for alias, value in envs.items():
        where = f"mixture, envs.{alias}"
        if not alias or "." in alias or "/" in alias:
            raise ConfigError(f"{where}: an alias has neither a dot nor a slash; name it by `id`")
        settings = dict(value) if isinstance(value, Mapping) else {"weight": value}
        check_arguments(where, MemberSettings, {"id": alias, **settings})
        found[alias] = member = MemberSettings(**{"id": alias, **settings})
        is_number = isinstance(member.weight, int | float) and not isinstance(member.weight, bool)
        if not (is_number and math.isfinite(member.weight) and member.weight > 0):
            raise ConfigError(f"{where}: weight must be a number above 0, got {member.weight!r}")
        for key in ("kwargs", "val_kwargs"):
            if not isinstance(getattr(member, key), Mapping | None):
                raise ConfigError(f"{where}: {key} must be a mapping")
    return found


def validates(settings: MemberSettings, plugins: Plugins) -> bool:
    """Whether a member has tasks that it is not trained on."""
    taken = named_parameters(plugins.load(find_env(settings.id, plugins)))[0]
    return settings.val_kwargs is not None or "split" in taken


def _made(
    alias: str, settings: MemberSettings, *, split: Split, seed: int, plugins: Plugins
) -> TextEnv:
    taken = named_parameters(plugins.load(find_env(settings.id, plugins)))[0]
    kwargs: dict[str, Any] = {"split": split, "seed": seed}
    kwargs = {name: value for name, value in kwargs.items() if name in taken}
    kwargs |= settings.kwargs
    if split != "train":
        kwargs |= settings.val_kwargs or {}
    env = make(settings.id, plugins=plugins, **kwargs).unwrapped
    if not isinstance(env, TextEnv):
        raise UserError(f"mixture, {alias}: {type(env).__name__} is no TextEnv")
    if isinstance(env, Mixture):
        raise UserError(f"mixture, {alias}: a mixture holds no mixture; name its environments")
    return env


def _check_prompts(members: Mapping[str, TextEnv]) -> None:
    """One space of observations holds text or conversations, not both."""
    kinds = {alias: type(member.observation_space) for alias, member in members.items()}
    if len(set(kinds.values())) > 1:
        told = ", ".join(f"{alias} {kind.__name__}" for alias, kind in kinds.items())
        raise UserError(f"a mixture has prompts of one kind, text or messages: {told}")


def _accuracies(
    members: Mapping[str, TextEnv], rewards: RewardsConfig, plugins: RewardPlugins
) -> dict[str, str]:
    found = {}
    for alias, member in members.items():
        name = accuracy_component(member.rewards, plugins, member.accuracy)
        if name is not None and f"{alias}/{name}" in rewards.components:
            found[alias] = f"{alias}/{name}"
    return found
