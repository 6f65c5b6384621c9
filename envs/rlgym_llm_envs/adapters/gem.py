"""Environments of GEM (``gem-llm``) as ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlgym_llm.errors import ConfigError, DataError, UnknownNameError, one_line
from rlgym_llm.splits import Split
from rlgym_llm_envs.adapters.installed import installed
from rlgym_llm_envs.adapters.peer import PeerEnv
from rlgym_llm_envs.adapters.words import name_of

__all__ = ["GemEnv", "GemPeer"]


@dataclass(frozen=True, kw_only=True)
class GemPeer:
    """How GEM's environments are made, read and acted on."""

    env: str | Callable[[], Any]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    draws_globally: bool = True
    """GEM seeds ``random`` and NumPy's global generator in `reset`, and draws from them."""

    @property
    def name(self) -> str:
        """``gem/<id>``."""
        return f"gem/{self.env if isinstance(self.env, str) else name_of(self.env)}"

    def make(self) -> Any:
        """A new environment. Raises as `GemEnv` says."""
        if not isinstance(self.env, str):
            return self.env(**self.kwargs)
        who = f"environment {self.name!r}"
        gem = installed("gem", pip="gem-llm", who=who)
        installed("gem.envs", pip="gem-llm", who=who)  # registers them
        known = installed("gem.envs.registration", pip="gem-llm", who=who).ENV_REGISTRY
        if self.env not in known:
            raise UnknownNameError("environment of GEM", self.env, known)
        try:
            return gem.make(self.env, **self.kwargs)
        except ImportError as error:  # of what this one environment needs
            raise DataError(f"{who} does not import: {one_line(error, 300)}") from error
        except TypeError as error:
            raise ConfigError(
                f"{who} does not take {dict(self.kwargs)}: {one_line(error, 300)}"
            ) from error
        except Exception as error:  # data that is not there, say
            raise DataError(f"{who} cannot be made: {one_line(error, 300)}") from error

    def read(self, env: Any, observation: Any, info: Mapping[str, Any]) -> str:
        """The observation, with the board before or after it where ``info`` holds one."""
        parts = (info.get("prefix"), observation, info.get("suffix"))
        return "\n".join(str(part).rstrip("\n") for part in parts if part) or "(nothing)"

    def act(self, env: Any, text: str) -> str:
        """The text itself; GEM's environments find the action in it."""
        return text


class GemEnv(PeerEnv):
    """Plays an environment of GEM, such as ``game:GuessTheNumber-v0-easy``.

    GEM seeds and draws from the global random generators: it is lent them as it left them, one
    environment at a time, and nobody else sees a change. Its final steps say terminated and
    truncated at once; the task is then over (terminated).

    Args:
        env: GEM's id, or a function that makes an environment with GEM's ``reset`` and ``step``
            (module-level, so that it pickles).
        kwargs: Arguments of the environment, over those that GEM registered.
        draws_globally: False for an environment of your own that draws from a generator of its
            own, so that its steps need not wait for another's.
        num_tasks, seed, split, system_prompt, invalid_reward, max_turns, options: As in `PeerEnv`.

    Raises DataError where GEM, or something that the environment needs, is missing,
    UnknownNameError for an unknown id and ConfigError for arguments that it does not take.
    """

    def __init__(
        self,
        *,
        env: str | Callable[[], Any],
        kwargs: Mapping[str, Any] | None = None,
        draws_globally: bool = True,
        num_tasks: int | None = None,
        seed: int = 0,
        split: Split = "train",
        system_prompt: str = "",
        max_turns: int | None = None,
        **options: Any,
    ) -> None:
        peer = GemPeer(env=env, kwargs=dict(kwargs or {}), draws_globally=draws_globally)
        super().__init__(
            peer=peer,
            num_tasks=num_tasks,
            seed=seed,
            split=split,
            system_prompt=system_prompt,
            max_turns=max_turns,
            **options,
        )
