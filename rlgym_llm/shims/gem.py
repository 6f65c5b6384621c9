"""Our environments as GEM's (``gem-llm``), which is imported when one is made."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rlgym_llm.errors import DataError, UserError
from rlgym_llm.types import Message, Prompt

if TYPE_CHECKING:
    from rlgym_llm.env import TextEnv

__all__ = ["gem_entry_point", "to_gem"]


class _AsGem:
    """The methods of a ``gem.Env`` over a `TextEnv`; made by `to_gem`."""

    def __init__(self, env: TextEnv) -> None:
        self.env = env

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        """The prompt in one text; no global generator is seeded."""
        observation, info = self.env.reset(seed=seed)
        return _text(observation), info

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """What the environment says to the action; the composed reward comes with the last."""
        _, reward, terminated, truncated, info = self.env.step(action)
        return _text(info["reply"]), reward, terminated, truncated, info

    def spawn(self, same_state: bool = False, **kwargs: Any) -> Any:
        """Another environment like this one, in the same state if asked. UserError for kwargs."""
        if kwargs:
            raise UserError(f"spawn changes no argument of {type(self.env).__name__}: {kwargs}")
        return type(self)(self.env.clone() if same_state else self.env.fresh())

    def close(self) -> None:
        """Closes the environment."""
        self.env.close()


def to_gem(env: TextEnv | str, **kwargs: Any) -> Any:
    """A `TextEnv`, or the environment that an id names, as a ``gem.Env``.

    ``kwargs`` go to the environment of an id. The observation is text: the prompt's messages,
    then each reply, as GEM's wrappers expect to join them. Raises DataError where GEM is missing,
    UserError for kwargs beside an environment, and what `rlgym_llm.make` raises.
    """
    try:
        base = importlib.import_module("gem.core").Env
    except ImportError as error:
        raise DataError(
            f"to_gem needs the package gem-llm ({error}): pip install gem-llm"
        ) from error
    if isinstance(env, str):
        from rlgym_llm.registry import make

        inner: Any = make(env, **kwargs).unwrapped
    elif kwargs:
        raise UserError(f"an environment that is made takes no more arguments: {kwargs}")
    else:
        inner = env
    return type("RlgymGemEnv", (_AsGem, base), {})(inner)


def gem_entry_point(env: str, **kwargs: Any) -> Callable[..., Any]:
    """What ``gem.register(id, entry_point)`` takes for one of our ids.

    GEM's ``make_vec`` hands every environment a ``seed``; ours take theirs in `reset`, so it is
    passed over.
    """

    def make_one(seed: int | None = None, **more: Any) -> Any:
        return to_gem(env, **{**kwargs, **more})

    return make_one


def _text(said: Prompt | tuple[Message, ...]) -> str:
    if isinstance(said, str):
        return said
    return "\n\n".join(message.content for message in said)
