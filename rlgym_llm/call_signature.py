"""What a constructor takes by name, through the base classes that it hands the rest to."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from rlgym_llm.errors import ConfigError, did_you_mean

__all__ = ["check_arguments", "named_parameters"]


def named_parameters(what: Callable[..., Any]) -> tuple[dict[str, inspect.Parameter], bool]:
    """The arguments that can be given by name, in order, and whether any other is taken too.

    A constructor with ``**kwargs`` hands them on to its base class, so that is read as well.

    >>> class Base:
    ...     def __init__(self, *, max_turns=1): ...
    >>> class Child(Base):
    ...     def __init__(self, path, **kwargs): ...
    >>> parameters, takes_any = named_parameters(Child)
    >>> list(parameters), takes_any
    (['path', 'max_turns'], False)
    """
    chain: list[Callable[..., Any]] = [what]
    if inspect.isclass(what):
        chain = [vars(cls)["__init__"] for cls in what.__mro__ if "__init__" in vars(cls)]
    found: dict[str, inspect.Parameter] = {}
    for function in chain:
        if function is object.__init__:  # takes nothing, whatever its signature says
            return found, False
        parameters = list(inspect.signature(function).parameters.values())
        for parameter in parameters[1:] if inspect.isclass(what) else parameters:
            if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                found.setdefault(parameter.name, parameter)
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            return found, False
    return found, True


def check_arguments(who: str, what: Callable[..., Any], kwargs: Mapping[str, Any]) -> None:
    """Raises ConfigError for an argument too many, with the nearest name, or one that is missing.

    >>> check_arguments("environment 'x'", lambda *, source, seed=0: None, {"sead": 1})
    Traceback (most recent call last):
        ...
    rlgym_llm.errors.ConfigError: environment 'x' has no argument 'sead'; did you mean 'seed'? \
(arguments: source, seed)
    """
    known, takes_any = named_parameters(what)
    for name in kwargs:
        if name not in known and not takes_any:
            hint = did_you_mean(name, known)
            listed = ", ".join(known) or "none"
            raise ConfigError(f"{who} has no argument {name!r}{hint} (arguments: {listed})")
    # Of the outermost only: a constructor gives its base class what that one needs.
    for name, parameter in inspect.signature(what).parameters.items():
        if name in known and parameter.default is parameter.empty and name not in kwargs:
            raise ConfigError(f"{who} needs the argument {name!r}")
