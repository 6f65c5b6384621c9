"""Annotations as people read them."""

from __future__ import annotations

import inspect
import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

__all__ = ["type_text"]

_BOUNDS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}


def type_text(annotation: Any) -> str:
    """The annotation with choices listed, bounds in brackets and no module names.

    >>> type_text(Literal["words", "chars"] | None)
    "'words' | 'chars' | None"
    >>> type_text(tuple[str, ...]), type_text("Later")
    ('tuple[str, ...]', 'Later')
    """
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        bounds = [bound for item in args[1:] for bound in _bounds(item)]
        return type_text(args[0]) + (f" ({', '.join(bounds)})" if bounds else "")
    if origin is Literal:
        return " | ".join(map(repr, args))
    if origin in (Union, types.UnionType):
        return " | ".join(map(type_text, args))
    if annotation is None or annotation is types.NoneType:
        return "None"
    if annotation is ...:
        return "..."
    if isinstance(annotation, str):
        return annotation.strip("'\"")
    if isinstance(annotation, list):  # the parameters of a Callable
        return f"[{', '.join(map(type_text, annotation))}]"
    if origin is not None and args:
        return f"{getattr(origin, '__name__', origin)}[{', '.join(map(type_text, args))}]"
    name: str | None = getattr(annotation, "__name__", None)
    return name or inspect.formatannotation(annotation)


def _bounds(constraint: Any) -> list[str]:
    """What pydantic's ``Field`` or a constraint of annotated_types asks of a number."""
    found = [
        f"{sign} {value}"
        for name, sign in _BOUNDS.items()
        if (value := getattr(constraint, name, None)) is not None
    ]
    return found + [
        bound for item in getattr(constraint, "metadata", ()) for bound in _bounds(item)
    ]
