"""The ``rewards`` section of a configuration: which rewards, how heavy, and what failures do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Protocol, Self

from pydantic import (
    Field,
    FiniteFloat,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from rlgym_llm.composition.component import ComponentConfig
from rlgym_llm.composition.order import check_dependencies
from rlgym_llm.composition.section import Section
from rlgym_llm.errors import ConfigError, UserError
from rlgym_llm.rewards import Reward, RewardPlugins, build_reward
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

    soft: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0


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

    @field_validator("on_error", "on_truncated", mode="wrap")
    @classmethod
    def _say_what_is_taken(cls, value: Any, check: Any, info: ValidationInfo) -> Any:
        words, key = _POLICIES[str(info.field_name)]
        try:
            return check(value)
        except ValidationError:
            taken = f"{', '.join(words)} or {{{key}: number}}"
            raise ValueError(f"takes {taken}, got {value!r}") from None

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
    def _check_aggregate(self) -> Self:
        if self.aggregate == "normalize_then_sum":
            is_soft = self.on_truncated == "soft" or isinstance(self.on_truncated, Soft)
            for rule, is_given in {"clip": self.clip, "on_truncated soft": is_soft}.items():
                if is_given:
                    raise ValueError(
                        f"aggregate normalize_then_sum never looks at the sum, so {rule} would do "
                        "nothing; give the components a transform: [{clip: [low, high]}]"
                    )
        return self

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        for name in self.components:
            if not name or "." in name or name != name.strip():
                raise ValueError(f"component name {name!r} is empty, or has a dot or white space")
        return self

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        check_dependencies({name: c.depends_on for name, c in self.components.items()})
        return self


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_POLICIES = {
    "on_error": (("mask", "raise", "zero"), "const"),
    "on_truncated": (("keep", "zero", "soft", "mask"), "soft"),
}


def _expand(name: str, component: Any) -> Any:
    if _is_number(component):
        return {"reward": name, "weight": component}
    if not isinstance(component, Mapping):
        return component
    if not {"reward", "combine"} & set(component):
        component = {"reward": name, **component}
    path = component.get("reward")
    if isinstance(path, str) and ".py:" in path:  # as on the command line
        options = {"path": path, **(component.get("options") or {})}
        component = {**component, "reward": "function", "options": options}
    return component


class Composition(Protocol):
    """A composition written in Python; see `rlgym_llm.composition.expressions`."""

    def to_config(self) -> RewardsConfig:
        """The same as configuration."""
        ...


def read_rewards(
    data: Mapping[str, Any] | RewardsConfig | Composition, plugins: RewardPlugins | None = None
) -> RewardsConfig:
    """The checked section; raises ConfigError or UnknownNameError in one line.

    ``data`` may be a composition in Python too (`rlgym_llm.composition.expressions`). With
    ``plugins`` every reward is looked up and built once, so that unknown names and options fail
    here, before anything is sampled.

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
            _check_placement(component, built[name])
        except UserError as wrong:
            raise ConfigError(f"rewards.components.{name}: {wrong}") from wrong
    return built


def _check_placement(component: ComponentConfig, reward: Reward) -> None:
    """Refuses what would land elsewhere, in silence."""
    placement = component.placement
    if placement != "last_token" and reward.granularity == "sequence":
        raise ConfigError(
            f"placement {placement}: reward {reward.name!r} gives one score for the whole rollout "
            f"(its granularity is sequence), which lands on the last token"
        )
    if (placement == "potential") != (reward.steps_are == "potentials"):
        if placement == "last_token":
            return
        raise ConfigError(
            f"placement {placement}: the steps of reward {reward.name!r} are {reward.steps_are}; "
            "potentials take placement potential, and shares any other"
        )
