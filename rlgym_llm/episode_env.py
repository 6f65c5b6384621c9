"""What a text environment keeps of the episode it plays: saved, gone on from, and copied."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Self, cast

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded

from rlgym_llm.compose import RewardComposer
from rlgym_llm.env_state import STATE_VERSION, EnvState
from rlgym_llm.errors import UserError
from rlgym_llm.spaces import unseeded
from rlgym_llm.types import Action, Prompt, Task, Turn

__all__ = ["EpisodeEnv", "copy_attributes", "episode_attributes"]

# What `TextEnv` itself keeps; every other attribute is a subclass's own.
_OPTIONS = ("tasks", "rewards", "plugins", "defer_scoring", "max_turns", "render_mode", "tools")
_SPACES = ("action_space", "observation_space", "spec", "_np_random", "_np_random_seed")
_EPISODE = ("_made", "_composer", "_task", "_index", "_observation", "_turns", "_is_over")
_KEPT = frozenset((*_OPTIONS, *_SPACES, *_EPISODE))


class EpisodeEnv(gymnasium.Env[Prompt, str | Action]):
    """What every text environment keeps of the episode it plays, and how that is copied.

    Whatever attributes a subclass sets or changes from `TextEnv.begin` on are the episode's, and
    are saved and copied with it.
    """

    shared: ClassVar[tuple[str, ...]] = ()
    """Attributes of a subclass that nothing changes, so that copies share them."""

    def __init__(self) -> None:
        self._composer: RewardComposer | None = None
        self._made: Mapping[str, Any] | None = None  # the attributes before the first episode
        self._task: Task | None = None
        self._index: int | None = None
        self._observation: Prompt = ""
        self._turns: tuple[Turn, ...] = ()
        self._is_over = False

    @property
    def task(self) -> Task:
        """The task of this episode. Raises ResetNeeded before the first `reset`."""
        if self._task is None:
            raise ResetNeeded(f"{type(self).__name__} has no task yet; call reset first")
        return self._task

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The turns of this episode so far, without the one being answered."""
        return self._turns

    def own_state(self) -> Any:
        """What `get_state` keeps of a subclass: the attributes that the episode may have changed.

        They are deep-copied but for what ``shared`` names. Override this, with `set_own_state`,
        where an attribute cannot be copied.
        """
        return copy_attributes(self._changed(), self._unchanging())

    def set_own_state(self, own: Any) -> None:
        """The inverse of `own_state`; ``own`` stays as it is."""
        made = self._made or {}
        for name in self._changed():
            if name in made:
                self.__dict__[name] = made[name]
            else:
                del self.__dict__[name]
        self.__dict__.update(copy_attributes(own, self._unchanging()))

    def get_state(self) -> EnvState:
        """Where the episode stands, as data. Raises ResetNeeded before the first `reset`."""
        return EnvState(
            task=self.task,
            index=self._index,
            observation=self._observation,
            turns=self._turns,
            seed=self.np_random_seed,
            rng_state=self.np_random.bit_generator.state,
            is_over=self._is_over,
            own=self.own_state(),
        )

    def set_state(self, state: EnvState) -> None:
        """Goes on where the state stands, whatever was played before.

        Raises UserError for the state of another version.
        """
        if state.schema_version != STATE_VERSION:
            raise UserError(
                f"{type(self).__name__} reads states of version {STATE_VERSION}, got one of "
                f"version {state.schema_version}"
            )
        self._note_made()
        self._task, self._index = state.task, state.index
        self._observation, self._turns = state.observation, state.turns
        self._is_over = state.is_over
        bits = np.random.PCG64(0)
        bits.state = cast("Any", dict(state.rng_state))
        self._np_random, self._np_random_seed = np.random.Generator(bits), state.seed
        self.set_own_state(state.own)

    def fresh(self) -> Self:
        """Another environment like this one, before its first `reset`.

        It shares the tasks, rewards and plugins; episode and random state are its own, that of its
        spaces too.
        """
        other = object.__new__(type(self))
        made = self.__dict__ if self._made is None else self._made
        other.__dict__.update(self.__dict__)
        if made is not self.__dict__:
            for name in self.__dict__.keys() - made.keys() - _KEPT:
                del other.__dict__[name]  # the episode's
        if made.keys() - _KEPT:
            passed_over = _KEPT.union(self.shared)
            own = {name: value for name, value in made.items() if name not in passed_over}
            other.__dict__.update(copy_attributes(own, self._unchanging()))
        other.action_space = unseeded(self.action_space)
        other.observation_space = unseeded(self.observation_space)
        other._made = other._composer = other._task = other._index = None
        other._np_random = other._np_random_seed = None
        other._observation, other._turns, other._is_over = "", (), False
        return other

    def clone(self) -> Self:
        """A copy that goes on from where this episode stands, apart from it."""
        other = self.fresh()
        if self._task is not None:
            other.set_state(self.get_state())
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.clone()

    def __getstate__(self) -> dict[str, Any]:
        # The composer may hold processes and clients; every process makes its own.
        return {**self.__dict__, "_composer": None, "_made": self._made and tuple(self._made)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if (names := state["_made"]) is not None:  # by name: a subclass may leave values out
            self._made = {name: state[name] for name in names if name in state}

    def _note_made(self) -> None:
        if self._made is None:
            self._made = dict(self.__dict__)

    def _changed(self) -> dict[str, Any]:
        return episode_attributes(self.__dict__, self._made or {}, _KEPT.union(self.shared))

    def _unchanging(self) -> tuple[Any, ...]:
        names = ("tasks", "rewards", "plugins", *self.shared)
        return tuple(getattr(self, name) for name in names if hasattr(self, name))


def episode_attributes(
    now: Mapping[str, Any], made: Mapping[str, Any], passed_over: Collection[str]
) -> dict[str, Any]:
    """The attributes that an episode set or may have changed since the environment was made.

    A list, a dictionary or a set counts whether it changed or not: it can change in place.

    >>> made = {"limit": 9, "seen": []}
    >>> episode_attributes({"limit": 9, "seen": [], "secret": 4}, made, ())
    {'seen': [], 'secret': 4}
    """
    return {
        name: value
        for name, value in now.items()
        if name not in passed_over
        and (name not in made or value is not made[name] or isinstance(value, list | dict | set))
    }


def copy_attributes(attributes: Mapping[str, Any], shared: Collection[Any]) -> dict[str, Any]:
    """A deep copy that shares the given objects, and keeps what attributes share among them."""
    memo = {id(one): one for one in shared}
    return {name: copy.deepcopy(value, memo) for name, value in attributes.items()}
