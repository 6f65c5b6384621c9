"""Plain Gymnasium environments that speak in text, as ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium

from rlgym_llm.errors import ConfigError, UserError, one_line
from rlgym_llm.splits import Split
from rlgym_llm_envs.adapters.peer import PeerEnv
from rlgym_llm_envs.adapters.words import name_of

__all__ = ["GymnasiumPeer", "GymnasiumTextEnv"]

Observe = Callable[[Any], str]
"""An observation in words."""
Act = Callable[[str], Any]
"""The action that a text is; ValueError for a text that is none."""


@dataclass(frozen=True, kw_only=True)
class GymnasiumPeer:
    """How a Gymnasium environment is made, read and acted on."""

    env: str | Callable[[], Any]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    observe: Observe | None = None
    action: Act | None = None
    draws_globally: bool = False

    @property
    def name(self) -> str:
        """``gymnasium/<id>``."""
        if isinstance(self.env, str):
            return f"gymnasium/{self.env}"
        return f"gymnasium/{name_of(self.env)}"

    def make(self) -> Any:
        """A new environment; ConfigError where its spaces are not text and nothing translates."""
        try:
            if isinstance(self.env, str):
                env = gymnasium.make(self.env, **self.kwargs)
            else:
                env = self.env(**self.kwargs)
        except (gymnasium.error.Error, ImportError, TypeError) as error:
            raise ConfigError(
                f"environment {self.name!r} cannot be made: {one_line(error, 300)}"
            ) from error
        for space, given, argument in (
            (env.observation_space, self.observe, "observe (observation -> text)"),
            (env.action_space, self.action, "action (text -> action)"),
        ):
            if given is None and not isinstance(space, gymnasium.spaces.Text):
                raise ConfigError(
                    f"environment {self.name!r} has a space of kind {type(space).__name__}, not "
                    f"Text: give a function {argument}"
                )
        return env

    def read(self, env: Any, observation: Any, info: Mapping[str, Any]) -> str:
        """The observation in words; a few words stand for an empty one."""
        words = str(observation) if self.observe is None else self.observe(observation)
        return words or "(nothing)"

    def act(self, env: Any, text: str) -> Any:
        """The action; ValueError for what lies outside the environment's space."""
        move = text.strip() if self.action is None else self.action(text)
        if move not in env.action_space:
            raise ValueError(f"{move!r} is not in {env.action_space}")
        return move


class GymnasiumTextEnv(PeerEnv):
    """Plays any Gymnasium environment whose observations and actions are text, or are made so.

    Args:
        env: A Gymnasium id (``module:id`` imports the module first), or a function that makes the
            environment (module-level, so that it pickles).
        kwargs: Arguments of the environment.
        observe: Says an observation in words; needed where the space is not ``Text``.
        action: Reads an action out of a text, and raises ValueError where it finds none; needed
            where the space is not ``Text``. By default the text without white space around it. A
            text that is no action of the space ends the episode with ``invalid_reward``.
        draws_globally: True for an environment that draws from the global random generators.
        num_tasks, seed, split, system_prompt, invalid_reward, max_turns, options: As in `PeerEnv`.

    Raises ConfigError where the environment cannot be made or its spaces are not text.
    """

    def __init__(
        self,
        *,
        env: str | Callable[[], Any],
        kwargs: Mapping[str, Any] | None = None,
        observe: Observe | None = None,
        action: Act | None = None,
        draws_globally: bool = False,
        num_tasks: int | None = None,
        seed: int = 0,
        split: Split = "train",
        system_prompt: str = "",
        invalid_reward: float = 0.0,
        max_turns: int | None = None,
        **options: Any,
    ) -> None:
        for name, function in (("observe", observe), ("action", action)):
            if function is not None and not callable(function):
                raise UserError(f"{name} must be a function, got {type(function).__name__}")
        peer = GymnasiumPeer(
            env=env,
            kwargs=dict(kwargs or {}),
            observe=observe,
            action=action,
            draws_globally=draws_globally,
        )
        super().__init__(
            peer=peer,
            num_tasks=num_tasks,
            seed=seed,
            split=split,
            system_prompt=system_prompt,
            invalid_reward=invalid_reward,
            max_turns=max_turns,
            **options,
        )
