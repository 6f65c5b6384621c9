"""Checks of the arguments that environments take, each one clear line."""

from __future__ import annotations

from collections.abc import Iterable

from rlgym_llm.errors import UserError

__all__ = ["check_choice", "check_number"]


def check_choice(name: str, value: str, choices: Iterable[str]) -> None:
    """Raises UserError, with the choices, for a value that is none of them.

    >>> check_choice("split", "dev", ["train", "val"])
    Traceback (most recent call last):
        ...
    rlgym_llm.errors.UserError: split must be one of train, val, got 'dev'
    """
    if value not in (known := tuple(choices)):
        raise UserError(f"{name} must be one of {', '.join(known)}, got {value!r}")


def check_number(name: str, value: int | None, *, least: int | None = None) -> None:
    """Raises UserError for what is no whole number, or is below ``least``; None passes.

    >>> check_number("seed", 1.5)
    Traceback (most recent call last):
        ...
    rlgym_llm.errors.UserError: seed must be a whole number, got 1.5
    """
    if value is not None and type(value) is not int:
        raise UserError(f"{name} must be a whole number, got {value!r}")
    if value is not None and least is not None and value < least:
        raise UserError(f"{name} must be {least} or more, got {value}")
