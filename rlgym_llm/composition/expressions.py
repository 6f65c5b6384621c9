"""Composition in Python: ``1.0 * R("math") + 0.2 * R("format")`` as a `RewardsConfig`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from rlgym_llm.errors import ConfigError
from rlgym_llm.reward_config import RewardsConfig, read_rewards

__all__ = ["Clip", "Expression", "Gate", "Max", "Min", "Product", "R", "Switch", "Weighted"]


class Expression:
    """Something that a reward may be made of. ``c * e`` weighs it, ``e1 + e2`` adds."""

    def __mul__(self, weight: float) -> Weighted:
        return Weighted(tuple((e, w * _number(weight)) for e, w in _terms(self)))

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Weighted:
        return self * (1.0 / _number(divisor))

    def __neg__(self) -> Weighted:
        return -1.0 * self

    def __add__(self, other: Expression | int) -> Weighted:
        if other == 0:  # where `sum` begins
            return Weighted(_terms(self))
        if not isinstance(other, Expression):
            raise ConfigError(f"{other!r} cannot be added to a reward: only rewards can")
        return Weighted((*_terms(self), *_terms(other)))

    __radd__ = __add__

    def __sub__(self, other: Expression) -> Weighted:
        return self + -1.0 * other

    def to_config(self, **rules: Any) -> RewardsConfig:
        """The same as configuration; ``rules`` are its top keys, such as ``on_truncated="mask"``.

        Equal leaves are one component, scored once; two different rewards of one name are a
        ConfigError that asks for ``name=``. A `Clip` around the whole is the section's own clip.

        >>> config = (1.0 * R("math") + 0.2 * R("format", style="boxed")).to_config()
        >>> {name: part.weight for name, part in config.components.items()}
        {'math': 1.0, 'format': 0.2}
        """
        whole: Expression = self
        if isinstance(whole, Clip) and isinstance(whole.of, Weighted):
            if "clip" in rules:
                raise ConfigError("the expression is a Clip already; give no clip beside it")
            rules = {"clip": (whole.low, whole.high), **rules}
            whole = whole.of
        table = _Table()
        for expression, weight in _terms(whole):
            name = table.add(expression)
            table.components[name]["weight"] += weight
        return read_rewards({"components": table.components, **rules})


@dataclass(frozen=True, slots=True)
class Weighted(Expression):
    """A weighted sum."""

    terms: tuple[tuple[Expression, float], ...]


@dataclass(frozen=True, slots=True, init=False)
class R(Expression):
    """A reward by its name, with its options; ``name`` is what the component is called."""

    reward: str
    name: str
    options: Mapping[str, Any]
    rules: Mapping[str, Any] = field(default_factory=dict)

    def __init__(
        self,
        reward: str,
        *,
        name: str | None = None,
        rules: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """``rules`` are further keys of the component: schedule, when, placement, backend..."""
        for key in ("weight", "reward", "options"):
            if key in (rules or {}):
                raise ConfigError(f"R({reward!r}): {key} is no rule; to weigh it, 2.0 * R(...)")
        object.__setattr__(self, "reward", reward)
        object.__setattr__(self, "name", name or reward)
        object.__setattr__(self, "options", options)
        object.__setattr__(self, "rules", dict(rules or {}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate(Expression):
    """``of`` where the raw score of the reward ``on`` passes ``op value``, else 0.

    >>> config = (R("math") + 0.1 * Gate(of=R("length"), on=R("math"))).to_config()
    >>> config.components["length"].gate[0].on
    'math'
    """

    of: Expression
    on: R
    op: str = ">="
    value: float = 1.0


@dataclass(frozen=True, slots=True)
class Clip(Expression):
    """``min(max(of, low), high)``."""

    of: Expression
    low: float
    high: float


@dataclass(frozen=True, slots=True, init=False)
class _Several(Expression):
    of: tuple[Expression, ...]

    def __init__(self, *of: Expression) -> None:
        if not of:
            raise ConfigError(f"{type(self).__name__} needs at least one expression")
        object.__setattr__(self, "of", of)


class Product(_Several):
    """The product; not applicable where one factor is not."""


class Min(_Several):
    """The smallest of those that apply."""


class Max(_Several):
    """The largest of those that apply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch(Expression):
    """One expression by the value of a column, such as ``data_source``."""

    on: str
    cases: Mapping[str, Expression]
    default: Expression | None = None


def _terms(expression: Expression) -> tuple[tuple[Expression, float], ...]:
    return expression.terms if isinstance(expression, Weighted) else ((expression, 1.0),)


def _number(weight: Any) -> float:
    if isinstance(weight, Expression):
        raise ConfigError("rewards are not multiplied or divided by *: take Product(a, b)")
    if isinstance(weight, bool) or not isinstance(weight, Real):
        raise ConfigError(f"a reward is weighed by a number, not by {weight!r}")
    return float(weight)


class _Table:
    """The components that an expression needs, by name; all of weight 0 until they are weighed."""

    def __init__(self) -> None:
        self.components: dict[str, dict[str, Any]] = {}

    def add(self, expression: Expression) -> str:
        """Adds the expression and what it is made of; returns its component's name."""
        if isinstance(expression, R):
            body = {"reward": expression.reward, "options": dict(expression.options)}
            return self._put(expression.name, {**body, **expression.rules}, may_number=False)
        if isinstance(expression, Gate):
            gate = {
                "on": self.add(expression.on),
                "op": expression.op,
                "value": expression.value,
            }
            return self._with_rule(expression.of, "gate", gate)
        if isinstance(expression, Clip):
            bounds = {"clip": [expression.low, expression.high]}
            return self._with_rule(expression.of, "transform", bounds)
        if isinstance(expression, Weighted):
            factors: dict[str, float] = {}
            for term, weight in expression.terms:
                name = self.add(term)
                factors[name] = factors.get(name, 0.0) + weight
            return self._put("sum", {"combine": {"sum": factors}})
        if isinstance(expression, Switch):
            switch: dict[str, Any] = {
                "on": expression.on,
                "cases": {value: self.add(case) for value, case in expression.cases.items()},
            }
            if expression.default is not None:
                switch["default"] = self.add(expression.default)
            return self._put("switch", {"combine": {"switch": switch}})
        if isinstance(expression, _Several):
            kind = type(expression).__name__.lower()
            return self._put(kind, {"combine": {kind: [self.add(part) for part in expression.of]}})
        raise ConfigError(f"{expression!r} is no expression of rewards, such as R('math')")

    def _with_rule(self, of: Expression, rule: str, value: Mapping[str, Any]) -> str:
        """``of`` under one more rule: on a leaf the leaf's own, else around a sum of one."""
        if isinstance(of, R) and not (rule == "gate" and "transform" in of.rules):
            rules = {**of.rules, rule: [*of.rules.get(rule, ()), value]}
            return self.add(_ruled(of, rules))
        inner = self.add(of)
        return self._put(f"{rule}_{inner}", {"combine": {"sum": {inner: 1.0}}, rule: [value]})

    def _put(self, name: str, body: dict[str, Any], *, may_number: bool = True) -> str:
        body = {**body, "weight": 0.0}
        names = [name, *(f"{name}_{number}" for number in range(2, 100))]
        for candidate in names if may_number else names[:1]:
            known = self.components.get(candidate)
            if known is None:
                self.components[candidate] = body
                return candidate
            if _same({**known, "weight": 0.0}, body):
                return candidate
        raise ConfigError(
            f"two different rewards are named {name!r}; give one of them another, as "
            f"R({body.get('reward')!r}, name='other')"
        )


def _ruled(leaf: R, rules: Mapping[str, Any]) -> R:
    """The same leaf under other rules."""
    return R(leaf.reward, name=leaf.name, rules=rules, **leaf.options)


def _same(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    return json.dumps(left, sort_keys=True, default=repr) == json.dumps(
        right, sort_keys=True, default=repr
    )
