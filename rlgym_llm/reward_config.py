"""The ``rewards`` section of a configuration: which rewards, how heavy, and what failures do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, model_validator

from rlgym_llm.errors import ConfigError, UserError, nearest
from rlgym_llm.rewards import Reward, RewardPlugins, build_reward
from rlgym_llm.specs import Kind

__all__ = [
    "ComponentConfig",
    "Const",
    "RewardsConfig",
    "build_rewards",
    "parse_reward_flag",
    "read_rewards",
]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _name_the_nearest_key(cls, data: Any) -> Any:
        for key in data if isinstance(data, Mapping) else ():
            if key not in cls.model_fields:
                guess = nearest(str(key), cls.model_fields)
                hint = f"; did you mean {guess!r}?" if guess else ";"
                raise ValueError(f"unknown key {key!r}{hint} (keys: {', '.join(cls.model_fields)})")
        return data


class ComponentConfig(_Section):
    """One term of the sum: a reward, its weight and its options."""

    reward: str
    """Name of an installed reward."""
    weight: FiniteFloat = 1.0
    """Used as written, never normalised; 0 makes the component a metric."""
    options: Mapping[str, Any] = Field(default_factory=dict)
    """The reward's own options."""
    eval_weight: FiniteFloat | None = None
    """The weight in evaluation; None keeps ``weight``."""

    def weight_in(self, *, evaluation: bool) -> float:
        """The weight that counts in training or in evaluation."""
        return self.eval_weight if evaluation and self.eval_weight is not None else self.weight


class Const(_Section):
    """``{const: x}``: a failed score stands for this raw value."""

    const: FiniteFloat


class RewardsConfig(_Section):
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
    on_truncated: Literal["keep", "zero", "mask"] = "keep"
    """What becomes of a rollout that a budget cut short: ``keep`` its reward, make it ``zero``,
    or ``mask`` it from learning (its components are scored and shown all the same)."""
    clip: tuple[FiniteFloat, FiniteFloat] | None = None
    """Lowest and highest reward, after the sum."""
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


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _expand(name: str, component: Any) -> Any:
    if _is_number(component):
        return {"reward": name, "weight": component}
    if isinstance(component, Mapping) and "reward" not in component:
        return {"reward": name, **component}
    return component


def read_rewards(
    data: Mapping[str, Any] | RewardsConfig, plugins: RewardPlugins | None = None
) -> RewardsConfig:
    """The checked section; raises ConfigError or UnknownNameError in one line.

    With ``plugins`` every reward is looked up and built once, so that unknown names and options
    fail here, before anything is sampled.

    >>> read_rewards({"components": {"math": {"wieght": 1}}})
    Traceback (most recent call last):
        ...
    rlgym_llm.errors.ConfigError: rewards.components.math: unknown key 'wieght'; did you mean \
'weight'? (keys: reward, weight, options, eval_weight)
    """
    try:
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
        found = plugins.load(plugins.get(Kind.REWARD, component.reward))
        try:
            built[name] = build_reward(found, component.options)
        except UserError as wrong:
            raise ConfigError(f"rewards.components.{name}: {wrong}") from wrong
    return built


def parse_reward_flag(flag: str) -> tuple[str, ComponentConfig]:
    """Reads ``--reward NAME=WEIGHT``; a bare ``NAME`` has weight 1, ``file.py:name`` is a function.

    >>> parse_reward_flag("length=-0.001")
    ('length', ComponentConfig(reward='length', weight=-0.001, options={}, eval_weight=None))
    >>> parse_reward_flag("mine.py:brevity=0.5")[1].options
    {'path': 'mine.py:brevity'}
    """
    name, number = (part.strip() for part in flag.rsplit("=", 1)) if "=" in flag else (flag, "1")
    if not name or not number:
        raise ConfigError(f"--reward {flag!r} is no NAME=WEIGHT, such as math=1.0")
    component: dict[str, Any] = {"reward": name, "weight": number}
    if ":" in name:
        component = {"reward": "function", "weight": number, "options": {"path": name}}
        name = name.rpartition(":")[2]
    try:
        return name, ComponentConfig.model_validate(component)
    except ValidationError:
        raise ConfigError(f"--reward {flag!r}: the weight {number!r} is no finite number") from None
