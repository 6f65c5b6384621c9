"""What a reward is: a class with a `score`, or a plain function made one by `@reward`."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from pydantic import TypeAdapter, ValidationError

from rlgym_llm.errors import ConfigError, PluginError, UserError, nearest
from rlgym_llm.inject import Injection
from rlgym_llm.specs import Kind, Spec
from rlgym_llm.types import Rollout, RolloutGroup, Score, ScoreCard

__all__ = [
    "Backend",
    "FunctionReward",
    "Granularity",
    "RawScore",
    "Reward",
    "RewardContext",
    "RewardPlugins",
    "Scope",
    "build_reward",
    "reward",
]

Scope = Literal["sample", "group", "batch"]
Granularity = Literal["sequence", "turn", "step", "token"]
Backend = Literal["inline", "thread", "process", "async"]
RawScore = Score | float | bool | None
"""What a reward may return: a number, None for "does not apply here", or a whole `Score`."""

_SUPPORTED: Mapping[str, tuple[str, ...]] = {
    "scope": ("sample", "group"),
    "granularity": ("sequence",),
    "backend": ("inline",),
}


class RewardPlugins(Protocol):
    """What scoring asks of the plugins: a reward by its name, and the observers' ear."""

    def get(self, kind: Kind, name: str, /) -> Spec:
        """The spec of that name; raises UnknownNameError with the nearest one, or PluginError."""
        ...

    def load(self, spec: Spec, /) -> Any:
        """What the spec points to; raises PluginError where it does not import."""
        ...

    def scored(self, cards: Sequence[ScoreCard]) -> None:
        """Tells the observers that these cards were made."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardContext:
    """What a reward may know beside the rollout."""

    plugins: RewardPlugins | None = None
    """The installed plugins, None where a reward is scored by itself."""
    evaluation: bool = False
    """Whether the scores are for evaluation rather than for learning."""


class Reward:
    """A raw, unweighted judgement of rollouts. Subclasses override one of the three scorers.

    Options are the fields of a dataclass (or the arguments of ``__init__``), checked when the
    reward is built; building is cheap, and what costs (a model, a client) is made in `setup`.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True, kw_only=True)
    ... class Shortness(Reward):
    ...     name = "shortness"
    ...     limit: int = 100
    ...     def score(self, rollout, ctx):
    ...         return max(0.0, 1 - len(rollout.text) / self.limit)
    >>> build_reward(Shortness, {"limit": 50}).limit
    50
    """

    name: str = ""
    version: int = 1
    """Bumped when the same rollout would get another score."""
    scope: Scope = "sample"
    """What one call sees: one rollout, the G siblings of a group, or the whole batch."""
    granularity: Granularity = "sequence"
    backend: Backend = "inline"
    timeout_s: float | None = None
    """Seconds one call may take. Inline calls cannot be cut short: an overrun is found when the
    call returns, and its score becomes a ``timeout``."""
    range: tuple[float, float] = (0.0, 1.0)
    """Smallest and largest value, both included; infinities where there is no bound."""
    needs: tuple[str, ...] = ()
    """Columns without which the reward cannot judge; a rollout that lacks one is an error."""

    def setup(self, ctx: RewardContext) -> None:
        """Makes what scoring needs; called once before the first score."""

    def score(self, rollout: Rollout, ctx: RewardContext) -> RawScore:
        """The score of one rollout, of scope ``sample``; None where it does not apply."""
        raise NotImplementedError(f"reward {self.name!r} has no score method")

    def score_batch(self, rollouts: Sequence[Rollout], ctx: RewardContext) -> Sequence[RawScore]:
        """One score per rollout, in order; override it where judging many at once is cheaper."""
        return [self.score(rollout, ctx) for rollout in rollouts]

    def score_group(self, group: RolloutGroup, ctx: RewardContext) -> Sequence[RawScore]:
        """One score per sibling, in order, of scope ``group``."""
        raise NotImplementedError(f"reward {self.name!r} has no score_group method")

    def close(self) -> None:
        """Gives back what `setup` made; safe to call twice."""


class FunctionReward(Reward):
    """A plain function as a reward: its arguments are taken by name from the rollout's columns.

    Of scope ``group`` the function sees ``group``, ``rollouts``, ``completions``, ``prompts`` and
    ``answers`` (lists over the siblings) and returns one score per sibling.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        options: Mapping[str, Any] | None = None,
        **declared: Any,
    ) -> None:
        """Takes the declarations of `reward` by keyword; options are arguments given fixed."""
        self.function = function
        self.options = dict(options or {})
        vars(self).update(declared)
        self._injection = Injection(self.name, function, self.scope, self.options)

    def score(self, rollout: Rollout, ctx: RewardContext) -> RawScore:
        """The function's value on the rollout's columns."""
        value: RawScore = self._injection.call(rollout)
        return value

    def score_group(self, group: RolloutGroup, ctx: RewardContext) -> Sequence[RawScore]:
        """The function's values on the siblings' columns."""
        values: Sequence[RawScore] = self._injection.call(group)
        return values


_Function = TypeVar("_Function", bound=Callable[..., Any])


def reward(
    name: str,
    *,
    version: int = 1,
    scope: Scope = "sample",
    granularity: Granularity = "sequence",
    backend: Backend = "inline",
    timeout_s: float | None = None,
    range: tuple[float, float] = (0.0, 1.0),  # noqa: A002  the field's word for it
    needs: Sequence[str] = (),
) -> Callable[[_Function], _Function]:
    """Declares a plain function to be a reward; the function itself stays as it was.

    Its arguments are injected by name: ``completion`` (all sampled text), ``answer``, ``prompt``
    (text; conversations joined by newlines), ``info``, ``data_source``, ``rollout``, and any
    column of ``task.info``; ``**columns`` catches the rest. It returns a float, a bool, a `Score`,
    or None for "does not apply". The keywords are the attributes of `Reward` of the same names.

    >>> @reward("brevity", range=(0, 1))
    ... def brevity(completion, *, limit=10):
    ...     return len(completion) <= limit
    >>> brevity("short")
    True
    >>> build_reward(brevity, {"limit": 3}).name
    'brevity'
    """
    if not isinstance(name, str) or not name:
        raise PluginError("@reward needs a name: @reward('brevity')")
    declared: dict[str, Any] = {
        "name": name,
        "version": version,
        "scope": scope,
        "granularity": granularity,
        "backend": backend,
        "timeout_s": timeout_s,
        "range": (float(range[0]), float(range[1])),
        "needs": tuple(needs),
    }

    def mark(function: _Function) -> _Function:
        _check_supported(FunctionReward(function, **declared))
        function.__rlgym_reward__ = declared  # type: ignore[attr-defined]
        return function

    return mark


def build_reward(
    what: Spec | type[Reward] | Reward | Callable[..., Any],
    options: Mapping[str, Any] | None = None,
) -> Reward:
    """The reward that a spec, a `Reward` class or a function marked `@reward` stands for.

    Raises ConfigError for options that the reward does not take or whose values are wrong, and
    PluginError for things that are no reward or declare what is not supported.
    """
    found: Any = what.load() if isinstance(what, Spec) else what
    label = getattr(what, "name", "") or getattr(what, "__name__", repr(what))
    options = dict(options or {})
    built: Reward
    if isinstance(found, Reward):
        if options:
            raise ConfigError(f"reward {label!r} is built already and takes no options")
        built = found
    elif isinstance(found, type) and issubclass(found, Reward):
        built = _construct(label, found, options)
    elif declared := getattr(found, "__rlgym_reward__", None):
        built = FunctionReward(found, options, **declared)
    else:
        raise PluginError(
            f"reward {label!r} is a {type(found).__name__}, no reward; "
            "subclass Reward, or mark a function with @reward(name)"
        )
    _check_supported(built)
    return built


def _construct(label: str, cls: type[Reward], options: dict[str, Any]) -> Reward:
    known = [
        parameter.name
        for parameter in inspect.signature(cls).parameters.values()
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    for option in options:
        if option not in known:
            guess = nearest(option, known)
            hint = f"; did you mean {guess!r}?" if guess else ";"
            raise ConfigError(
                f"reward {label!r} has no option {option!r}{hint} "
                f"(options: {', '.join(known) or 'none'})"
            )
    try:
        if dataclasses.is_dataclass(cls):
            return TypeAdapter(cls).validate_python(options)
        return cls(**options)
    except ValidationError as invalid:
        first = invalid.errors()[0]
        cause = first.get("ctx", {}).get("error")
        if isinstance(cause, UserError):  # the reward's own words, from its __post_init__
            raise cause from None
        where = ".".join(map(str, first["loc"])) or "options"
        raise ConfigError(
            f"reward {label!r}, option {where!r}: {first['msg']}, got {first['input']!r}"
        ) from None
    except TypeError as wrong:
        raise ConfigError(f"reward {label!r}: {wrong}") from wrong


def _check_supported(built: Reward) -> None:
    if not built.name:
        raise PluginError(f"{type(built).__name__} is a reward without a name; set `name`")
    for what, supported in _SUPPORTED.items():
        declared = getattr(built, what)
        if declared not in supported:
            raise PluginError(
                f"reward {built.name!r} declares {what} {declared!r}, which is not supported; "
                f"use {' or '.join(map(repr, supported))}"
            )
    low, high = built.range
    if math.isnan(low) or math.isnan(high) or low > high:
        raise PluginError(f"reward {built.name!r} declares the empty range {built.range}")
