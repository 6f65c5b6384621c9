"""What a reward is: a class with a `score`, or a plain function made one by `@reward`."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar, get_args

from pydantic import TypeAdapter, ValidationError

from rlgym_llm.errors import ConfigError, PluginError, UserError, did_you_mean
from rlgym_llm.inject import Injection
from rlgym_llm.scores import Score, ScoreCard
from rlgym_llm.specs import Kind, Spec
from rlgym_llm.types import Rollout, RolloutGroup

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
    "check_backend",
    "full_mark",
    "reward",
]

Scope = Literal["sample", "group", "batch"]
Granularity = Literal["sequence", "turn", "step", "token"]
Backend = Literal["inline", "thread", "process", "async"]
RawScore = Score | float | bool | None
"""What a reward may return: a number, None for "does not apply here", or a whole `Score`."""

_SUPPORTED: Mapping[str, tuple[str, ...]] = {
    "scope": get_args(Scope),
    "granularity": get_args(Granularity),
    "backend": get_args(Backend),
}

_SCORERS: Mapping[str, tuple[str, ...]] = {
    "sample": ("score", "score_batch"),
    "group": ("score_group",),
    "batch": ("score_batch",),
}


def full_mark(bounds: tuple[float, float]) -> float:
    """The raw score from which an answer is right: the top of the range, 1 where it has none.

    >>> full_mark((0.0, 2.0)), full_mark((0.0, math.inf))
    (2.0, 1.0)
    """
    return bounds[1] if math.isfinite(bounds[1]) else 1.0


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
    step: int | None = None
    """Training step, None outside training."""
    components: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    """Raw values of the components that the reward names in ``uses`` (of scope ``group``: of all
    sample components), one per rollout of this call and in its order; None where unscored."""


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
    steps_are: Literal["shares", "potentials"] = "shares"
    """What `Score.steps` hold: shares of the value, or the potential after each step."""
    backend: Backend = "inline"
    timeout_s: float | None = None
    """Seconds one call may take. Inline calls cannot be cut short: an overrun is found when the
    call returns, and its score becomes a ``timeout``."""
    range: tuple[float, float] = (0.0, 1.0)
    """Smallest and largest value, both included; infinities where there is no bound."""
    needs: tuple[str, ...] = ()
    """Columns without which the reward cannot judge; a rollout that lacks one is an error."""
    uses: tuple[str, ...] = ()
    """Components whose raw values it reads from ``ctx.components``; they are scored before it."""
    memory_mb: int | None = None
    """Bound on the memory of a worker of backend ``process``; None for its default."""
    is_bounded: bool = False
    """Whether no text can make it hang, fill the memory or end the process, so that scoring a few
    rows needs no process of its own."""
    concurrency: int = 8
    """How many calls may run side by side under the backends ``thread``, ``process``, ``async``."""

    def setup(self, ctx: RewardContext) -> None:
        """Makes what scoring needs; called once before the first score.

        Under the backends ``process`` and ``async`` a setup that takes longer than 60 s, and longer
        than ``timeout_s``, has failed; without a ``timeout_s`` it has 600 s in a process, and no
        bound elsewhere.
        """

    def score(self, rollout: Rollout, ctx: RewardContext) -> RawScore:
        """The score of one rollout, of scope ``sample``; None where it does not apply."""
        raise NotImplementedError(f"reward {self.name!r} has no score method")

    async def ascore(self, rollout: Rollout, ctx: RewardContext) -> RawScore:
        """The score of one rollout under backend ``async``: awaits, and never blocks the loop."""
        raise NotImplementedError(f"reward {self.name!r} has no ascore method")

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

    Of scope ``group`` the function sees ``group``, ``rollouts``, ``completions``, ``prompts``,
    ``answers`` and ``group_ids`` (lists over the siblings) and returns one score per sibling; of
    scope ``batch`` the same lists over all rollouts, without ``group``. A parameter
    ``components`` gets the raw values of those that it ``uses``: of scope ``sample`` one number
    (or None) each, otherwise tuples. An ``async def`` has backend ``async``.
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

    @property
    def is_async(self) -> bool:
        """Whether the function is an ``async def``."""
        return self._injection.is_async

    def score(self, rollout: Rollout, ctx: RewardContext) -> RawScore:
        """The function's value on the rollout's columns."""
        value: RawScore = self._injection.call(rollout, _first(ctx.components))
        return value

    async def ascore(self, rollout: Rollout, ctx: RewardContext) -> RawScore:
        """The value of a function that is an ``async def``."""
        value: RawScore = await self._injection.call(rollout, _first(ctx.components))
        return value

    def score_batch(self, rollouts: Sequence[Rollout], ctx: RewardContext) -> Sequence[RawScore]:
        """Of scope ``batch`` the function's values on the columns of all rollouts."""
        if self.scope != "batch":
            return super().score_batch(rollouts, ctx)
        values: Sequence[RawScore] = self._injection.call(rollouts, ctx.components)
        return values

    def score_group(self, group: RolloutGroup, ctx: RewardContext) -> Sequence[RawScore]:
        """The function's values on the siblings' columns."""
        values: Sequence[RawScore] = self._injection.call(group, ctx.components)
        return values


def _first(
    components: Mapping[str, tuple[float | None, ...]],
) -> Mapping[str, float | None]:
    return {name: values[0] for name, values in components.items()} if components else {}


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
    uses: Sequence[str] = (),
    memory_mb: int | None = None,
    concurrency: int = Reward.concurrency,
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
        "uses": tuple(uses),
        "memory_mb": memory_mb,
        "concurrency": concurrency,
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
            hint = did_you_mean(option, known)
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
    except (UserError, KeyboardInterrupt):
        raise
    except BaseException as failure:
        kind = type(failure).__name__
        raise PluginError(f"reward {label!r} cannot be built: {kind}: {failure}") from failure


def check_backend(built: Reward, backend: Backend) -> None:
    """Raises PluginError where the reward cannot be scored under that backend, with the way out."""
    if isinstance(built, FunctionReward):
        can_await, can_block = built.is_async, not built.is_async
    else:
        cls = type(built)
        can_await = cls.ascore is not Reward.ascore
        own = (getattr(cls, name) is not getattr(Reward, name) for name in _SCORERS[built.scope])
        can_block = any(own) or not can_await
    if backend == "async" and built.scope != "sample":
        raise PluginError(
            f"reward {built.name!r} is of scope {built.scope!r}, which backend 'async' does not "
            "know: it awaits one rollout at a time; use 'thread'"
        )
    if backend == "async" and not can_await:
        raise PluginError(
            f"reward {built.name!r} cannot be awaited: backend 'async' takes an async function or "
            "a Reward with ascore; use 'thread'"
        )
    if backend != "async" and not can_block:
        raise PluginError(
            f"reward {built.name!r} is an async function, which backend {backend!r} cannot call; "
            "declare backend='async'"
        )


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
    check_backend(built, built.backend)
    low, high = built.range
    if math.isnan(low) or math.isnan(high) or low > high:
        raise PluginError(f"reward {built.name!r} declares the empty range {built.range}")
