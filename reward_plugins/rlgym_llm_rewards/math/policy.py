"""What the verifier takes for an answer, and what it takes for equal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Literal, get_args, get_type_hints

from rlgym_llm.errors import ConfigError, UnknownNameError

__all__ = ["POLICIES", "Extraction", "Policy", "get_policy"]

Extraction = Literal["strict", "standard", "lenient"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Every choice that a verdict rests on; mathematically equal is right unless one says no."""

    extraction: Extraction = "standard"
    """``strict``: marked answers only (box, ``####``, answer tags, "the answer is"); ``standard``:
    else the text as a whole, or the last math span or number before at most 300 characters of other
    text; ``lenient``: else the last number."""
    thinking: Literal["strip", "keep", "require"] = "strip"
    """``strip``: what stands in a closed ``<think>`` block is no answer; ``keep``: it is text like
    any other; ``require``: without a closed block there is no answer."""
    require_box: bool = False
    r"""Whether only ``\boxed{}`` and ``\fbox{}`` count."""
    form: Literal["value", "reduced", "evaluated"] = "value"
    """``reduced``: fractions in lowest terms (2/4 is not 1/2); ``evaluated``: no sum, product or
    power of numbers left to work out (17 x 23 is not 391)."""
    min_digits: int = 6
    """Significant digits from which a decimal may stand for an exact value that has no finite
    one (3.14159 for pi), within half a unit of its last digit; 0: never. Between two exact
    numbers there is no tolerance."""
    gold_rounding: bool = False
    """Whether a gold decimal of 3 significant digits or more takes any value that rounds to it."""
    percent_bare: bool = True
    """Whether 25 and 25% accept each other (0.25 and 25% always do, 0.25 and 25 never)."""
    units: Literal["strip", "match", "require"] = "strip"
    """``strip``: a unit on one side only is ignored, on both it must agree; ``match``: both or
    neither; ``require``: the answer must carry the gold's unit."""
    decimal_comma: Literal["auto", "never", "always"] = "auto"
    """``auto``: 3,5 may be 3.5 where one number is asked for and the group is not of three."""
    list_order: Literal["auto", "strict"] = "auto"
    """``auto``: lists without brackets are unordered; ``strict``: their order counts."""
    strict_variables: bool = True
    """Whether y = 5 differs from x = 5, and f(y) from f(x)."""
    imaginary_unit: Literal["i", "ij"] = "i"
    """Which letters are the square root of -1."""

    def __post_init__(self) -> None:
        """Raises ConfigError for a value that no option has."""
        _check(self)


def _check(policy: Policy) -> None:
    hints = get_type_hints(Policy)
    for field in fields(Policy):
        value, allowed = getattr(policy, field.name), get_args(hints[field.name])
        if allowed and value not in allowed:
            raise ConfigError(
                f"policy, {field.name}: {value!r} is none of {', '.join(map(repr, allowed))}"
            )
        if hints[field.name] is bool and not isinstance(value, bool):
            raise ConfigError(f"policy, {field.name}: {value!r} is neither True nor False")
    if type(policy.min_digits) is not int or policy.min_digits < 0:
        raise ConfigError(
            f"policy, min_digits: must be a whole number from 0 up, not {policy.min_digits!r}"
        )


POLICIES: Mapping[str, Policy] = MappingProxyType(
    {name: Policy(extraction=name) for name in ("strict", "standard", "lenient")}
)
"""The policies that have a name."""


def get_policy(policy: str | Policy) -> Policy:
    """The policy itself, or that of the name; raises UnknownNameError for another name.

    >>> get_policy("strict").extraction
    'strict'
    """
    if isinstance(policy, Policy):
        return policy
    if policy not in POLICIES:
        raise UnknownNameError("policy", policy, list(POLICIES))
    return POLICIES[policy]
