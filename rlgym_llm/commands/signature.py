"""The arguments of a class or function, as lines to read."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

__all__ = ["print_parameters"]


def print_parameters(
    parameters: Mapping[str, inspect.Parameter], defaults: Mapping[str, Any] | None = None
) -> None:
    """Prints ``name: type = default`` per argument; ``defaults`` stand over those in the code."""
    defaults = defaults or {}
    for name, parameter in parameters.items():
        line = f"  {name}"
        if parameter.annotation is not parameter.empty:
            line += f": {inspect.formatannotation(parameter.annotation).strip(chr(39))}"
        default = defaults.get(name, parameter.default)
        print(line if default is parameter.empty else f"{line} = {default!r}")
    if not parameters:
        print("  none")
