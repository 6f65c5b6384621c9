"""The arguments of a class or function, as lines to read."""

from __future__ import annotations

import dataclasses
import inspect
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from rlgym_llm.attribute_docs import class_docs
from rlgym_llm.commands.type_text import type_text

__all__ = ["print_parameters"]

_WIDTH = 100


def print_parameters(
    what: Callable[..., Any],
    parameters: Mapping[str, inspect.Parameter],
    defaults: Mapping[str, Any] | None = None,
) -> None:
    """Prints ``name: type = default`` and what it means of each of the parameters of ``what``.

    ``defaults`` stand over those in the code. What an argument means is the string under the
    attribute of its name, where the class has one.
    """
    defaults = defaults or {}
    hints = _hints(what)
    docs = class_docs(what) if inspect.isclass(what) else {}
    for name, parameter in parameters.items():
        line = f"  {name}"
        if parameter.annotation is not parameter.empty:
            line += f": {type_text(hints.get(name, parameter.annotation))}"
        default = defaults.get(name, _default(what, parameter))
        print(line if default is parameter.empty else f"{line} = {default!r}")
        text = docs.get(name, "").replace("``", "")
        for part in textwrap.wrap(text, _WIDTH - 6, break_on_hyphens=False):
            print(f"      {part}")
    if not parameters:
        print("  none")


def _default(what: Any, parameter: inspect.Parameter) -> Any:
    """The default; of a field with a factory what that makes, for the signature has a mark."""
    if dataclasses.is_dataclass(what):
        for field in dataclasses.fields(what):
            if field.name == parameter.name and field.default_factory is not dataclasses.MISSING:
                return field.default_factory()
    return parameter.default


def _hints(what: Any) -> dict[str, Any]:
    """The annotations, aliases resolved; those that name what is not there at run time left out."""
    if not inspect.isclass(what) or dataclasses.is_dataclass(what):
        return _resolved(what)
    found: dict[str, Any] = {}
    for cls in reversed(what.__mro__):
        if inspect.isfunction(init := vars(cls).get("__init__")):
            found |= _resolved(init)
    return found


def _resolved(what: Any) -> dict[str, Any]:
    try:
        return get_type_hints(what, include_extras=True)
    except (NameError, TypeError, AttributeError):  # imported for the type checker alone
        return {}
