"""Frozen records made without their checks, where millions of them are made of checked values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["unchecked", "unchecked_tuple"]

_Record = TypeVar("_Record", bound="DataclassInstance")
_Tuple = TypeVar("_Tuple", bound="tuple[Any, ...]")


def unchecked(record: type[_Record]) -> Callable[..., _Record]:
    """A constructor that takes the fields by position, in order, and checks and copies nothing.

    The last ones may be left out where they have a default that is no factory's.

    A frozen dataclass sets its fields one by one through ``object.__setattr__``, which takes five
    times as long as making an object of the same slots that is not frozen and giving it its class.
    Only for dataclasses with ``slots=True`` and values that their own checks have nothing to say
    to; the result is equal to that of the constructor in all ways.

    >>> from rlgym_llm.types import Message
    >>> make_message = unchecked(Message)
    >>> make_message("user", "2+3?") == Message(role="user", content="2+3?")
    True
    """
    names = [field.name for field in fields(record)]
    thawed = type(f"_{record.__name__}", (), {"__slots__": tuple(names)})
    # Written out, as dataclasses write theirs: one call and no loop.
    lines = [
        f"def make({', '.join(names)}):",
        "    made = thawed()",
        *(f"    made.{name} = {name}" for name in names),
        "    made.__class__ = record",
        "    return made",
    ]
    scope: dict[str, Any] = {"thawed": thawed, "record": record}
    exec("\n".join(lines), scope)
    make: Any = scope["make"]
    backwards = [field.default for field in reversed(fields(record))]
    make.__defaults__ = tuple(takewhile(lambda default: default is not MISSING, backwards))[::-1]
    return make  # type: ignore[no-any-return]


def unchecked_tuple(kind: type[_Tuple]) -> Callable[[tuple[Any, ...]], _Tuple]:
    """A constructor of a NamedTuple out of all its fields in one tuple, which does not count them.

    It runs no Python code, and takes half as long as the constructor that takes arguments.

    >>> from typing import NamedTuple
    >>> class Point(NamedTuple):
    ...     x: int
    ...     y: int = 0
    >>> unchecked_tuple(Point)((1, 2))
    Point(x=1, y=2)
    """
    return partial(tuple.__new__, kind)
