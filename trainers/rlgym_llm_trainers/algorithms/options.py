"""Options of advantage estimators and policy losses: from the configuration, by their names."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from rlgym_llm.call_signature import named_parameters
from rlgym_llm.errors import ConfigError, did_you_mean

__all__ = ["bind_options", "option_names"]

Result = TypeVar("Result")


def bind_options(
    function: Callable[..., Result],
    config_values: Mapping[str, Any],
    extra: Mapping[str, Any],
    key: str,
    *,
    at_call: Collection[str] = (),
    own_keys: Mapping[str, str] | None = None,
) -> Callable[..., Result]:
    """``function(inputs, **options)`` with the options that its signature names filled in.

    Args:
        function: its first argument is what it works on; the others are options.
        config_values: keys of the configuration; those that the function does not name stay out.
        extra: options given by name in the configuration under ``key``, each of which must be one.
            A function with ``**kwargs`` takes any.
        key: how ``extra`` is spelled, such as ``algorithm.adv_kwargs``, for the messages.
        at_call: arguments that the caller gives with each call.
        own_keys: options that come from keys of other names, whether or not these are given now.

    Raises ConfigError for an unknown option, with the nearest one; for one that has a key of its
    own; and for one that is missing.

    >>> def estimate(inputs, *, gamma=1.0, width=3): return inputs, gamma, width
    >>> bind_options(estimate, {"gamma": 0.9, "lam": 0.5}, {"width": 4}, "adv_kwargs")("x")
    ('x', 0.9, 4)
    """
    known, takes_any = _options(function, at_call)
    section = key.rpartition(".")[0]
    keys = {name: f"{section}.{name}" if section else name for name in config_values}
    keys |= own_keys or {}
    for name in extra:
        if name in keys and name in known:
            raise ConfigError(
                f"--{key}.{name}: this option has a key of its own; give --{keys[name]}"
            )
        if name in at_call or (name not in known and not takes_any):
            hint = did_you_mean(name, known)
            listed = ", ".join(n for n in known if n not in keys) or "none"
            raise ConfigError(f"--{key}.{name}: no such option{hint} (options: {listed})")
    options = {name: value for name, value in config_values.items() if name in known} | {**extra}
    for name, is_needed in known.items():
        if is_needed and name not in options:
            where = keys.get(name, f"{key}.{name}")
            raise ConfigError(f"--{where} must be given: this option has no default")
    return functools.partial(function, **options)


def option_names(function: Callable[..., Any], *, at_call: Collection[str] = ()) -> list[str]:
    """The options that the signature of ``function`` names, in order.

    >>> def estimate(inputs, *, gamma=1.0, width=3): ...
    >>> option_names(estimate)
    ['gamma', 'width']
    """
    return list(_options(function, at_call)[0])


def _options(
    function: Callable[..., Any], at_call: Collection[str]
) -> tuple[dict[str, bool], bool]:
    """Whether each option must be given, and whether any other is taken too."""
    parameters, takes_any = named_parameters(function)
    after_inputs = list(parameters.values())[1:]
    return {
        parameter.name: parameter.default is parameter.empty
        for parameter in after_inputs
        if parameter.name not in at_call
    }, takes_any
