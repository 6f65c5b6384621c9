"""The ``rewards`` section of a configuration: which rewards, how heavy, and what failures do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Protocol, Self

from pydantic import Field, FiniteFloat, ValidationError, model_validator

from rlgym_llm.component_config import ComponentConfig
from rlgym_llm.component_order import check_dependencies
from rlgym_llm.errors import ConfigError, UserError
from rlgym_llm.rewards import Reward, RewardPlugins, build_reward
from rlgym_llm.section import Section
from rlgym_llm.specs import Kind

__all__ = [
    "ComponentConfig",
    "Composition",
    "Const",
    "RewardsConfig",
    "Soft",
    "build_rewards",
    "read_rewards",
]


class Const(Section):
    """``{const: x}``: a failed score stands for this raw value."""

    const: FiniteFloat


class Soft(Section):
    """``{soft: p}``: a truncated rollout's reward is p lower."""

    soft: FiniteFloat = 1.0


class RewardsConfig(Section):
    """The components of the reward and the rules that bind them.

    A component may be written short: ``math: 1.0`` is ``math: {reward: math, weight: 1.0}``, and
    a component without ``reward`` is named after its reward. A section of numbers alone is a
    section of components.

    >>> RewardsConfig.model_validate({"math": 1.0, "format": 0.2}).components["format"].weight
    0.2
    """

    components: Mapping[str, ComponentConfig] = Field(default_factory=dict)
    on_error: Literal["mask", "raise", "zero"] | Const = "mask"
    """What a failed score makes of its rollout: ``mask`` leaves it unscored, ``raise`` stops,
    ``zero`` and ``{const: x}`` count that raw value in its place."""
    on_truncated: Literal["keep", "zero", "soft", "mask"] | Soft = "keep"
    """What becomes of a rollout that a budget cut short: ``keep`` its reward, make it ``zero``,
    lower it by 1 (``soft``; by p under ``{soft: p}``), or ``mask`` it from learning (its components
    are scored and shown all the same)."""
    clip: tuple[FiniteFloat, FiniteFloat] | None = None
    """Lowest and highest reward, after the sum."""
    aggregate: Literal["sum_then_normalize", "normalize_then_sum"] = "sum_then_normalize"
    """What group advantages compare: the rewards of siblings, or (GDPO, arXiv 2601.05242) each
    component by itself before the weighted sum. The reward on a card is the sum either way."""
    max_error_rate: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Scoring stops when more than this share of a component's recent scores failed."""

    @model_validator(mode="before")
    @classmethod
    def _expand_shorthand(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        if data and not set(data) & set(cls.model_fields) and all(map(_is_number, data.values())):
            data = {"components": data}
        components = data.get("components")
        if isinstance(components, Mapping):
            expanded = {name: _expand(name, value) for name, value in components.items()}
            data = {**data, "components": expanded}
        return data

    @model_validator(mode="after")
    def _check_clip(self) -> Self:
        if self.clip is not None and self.clip[0] > self.clip[1]:
            raise ValueError(f"clip {list(self.clip)} is empty: the lower bound comes first")
        return self

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        check_dependencies({name: c.depends_on for name, c in self.components.items()})
        return self


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _expand(name: str, component: Any) -> Any:
    if _is_number(component):
        return {"reward": name, "weight": component}
    if isinstance(component, Mapping) and not {"reward", "combine"} & set(component):
        return {"reward": name, **component}
    return component


class Composition(Protocol):
    """A composition written in Python; see `rlgym_llm.expressions`."""

    def to_config(self) -> RewardsConfig:
        """The same as configuration."""
        ...


def read_rewards(
    data: Mapping[str, Any] | RewardsConfig | Composition, plugins: RewardPlugins | None = None
) -> RewardsConfig:
    """The checked section; raises ConfigError or UnknownNameError in one line.

    ``data`` may be a composition in Python too (see `rlgym_llm.expressions`). With ``plugins``
    every reward is looked up and built once, so that unknown names and options fail here, before
    anything is sampled.

    >>> read_rewards({"components": {"math": {"weight": float("nan")}}})
    Traceback (most recent call last):
        ...
    rlgym_llm.errors.ConfigError: rewards.components.math.weight: Input should be a finite number
    """
    try:
        if not isinstance(data, RewardsConfig | Mapping) and hasattr(data, "to_config"):
            data = data.to_config()
        config = RewardsConfig.model_validate(data)
    except ValidationError as invalid:
        first = invalid.errors()[0]
        where = ".".join(["rewards", *map(str, first["loc"])])
        reason = first["msg"].removeprefix("Value error, ")
        raise ConfigError(f"{where}: {reason}") from None
    if plugins is not None:
        for built in build_rewards(config, plugins).values():
            built.close()
    return config


def build_rewards(config: RewardsConfig, plugins: RewardPlugins) -> dict[str, Reward]:
    """Every component's reward by component name, built but not set up.

    Raises UnknownNameError with the nearest name, PluginError for a plugin that is broken, and
    ConfigError naming the component.
    """
    built = {}
    for name, component in config.components.items():
        if component.reward is None:
            continue  # a combination is not scored
        found = plugins.load(plugins.get(Kind.REWARD, component.reward))
        try:
            built[name] = build_reward(found, component.options)
        except UserError as wrong:
            raise ConfigError(f"rewards.components.{name}: {wrong}") from wrong
    return built
