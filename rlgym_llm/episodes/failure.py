"""Whose fault it was that an episode failed."""

from __future__ import annotations

from dataclasses import dataclass

from rlgym_llm.errors import ToolError
from rlgym_llm.types import RolloutStatus

__all__ = ["EpisodeFailure", "environment_failure", "generator_failure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeFailure:
    """How an episode failed."""

    status: RolloutStatus
    error: str
    """Who, and what: ``Echo.step: KeyError: 'no such tool'``."""
    is_env_lost: bool
    """Whether the environment may be broken: it is never used again."""


def environment_failure(who: str, error: BaseException) -> EpisodeFailure:
    """The environment raised; a ToolError is its tool's, a TimeoutError a deadline that was missed.

    >>> environment_failure("Echo.step", ToolError("no sandbox")).status.value
    'tool_error'
    """
    status = RolloutStatus.ENVIRONMENT_ERROR
    if isinstance(error, ToolError):
        status = RolloutStatus.TOOL_ERROR
    return _failure(who, error, status, is_env_lost=True)


def generator_failure(who: str, error: BaseException) -> EpisodeFailure:
    """The generator raised, and the environment is as good as before."""
    return _failure(who, error, RolloutStatus.GENERATOR_ERROR, is_env_lost=False)


def _failure(
    who: str, error: BaseException, status: RolloutStatus, *, is_env_lost: bool
) -> EpisodeFailure:
    if isinstance(error, TimeoutError):  # whoever missed the deadline
        status = RolloutStatus.TIMEOUT
    return EpisodeFailure(
        status=status, error=f"{who}: {type(error).__name__}: {error}", is_env_lost=is_env_lost
    )
