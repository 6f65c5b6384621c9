"""Rewards on the command line: ``--reward NAME=WEIGHT`` and ``--option COMPONENT.KEY=VALUE``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from rlgym_llm.component_config import ComponentConfig
from rlgym_llm.errors import ConfigError, did_you_mean
from rlgym_llm.yaml_text import load_scalar

__all__ = ["parse_reward_flag", "read_component", "with_options"]


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


def with_options(
    components: Mapping[str, ComponentConfig], flags: Sequence[str]
) -> dict[str, ComponentConfig]:
    """The components with ``COMPONENT.KEY=VALUE`` options, values as YAML reads them.

    >>> found = with_options({"length": ComponentConfig(reward="length")}, ["length.unit=chars"])
    >>> found["length"].options
    {'unit': 'chars'}
    """
    found = dict(components)
    for flag in flags:
        key, equals, text = flag.partition("=")
        name, dot, option = key.strip().partition(".")
        if not equals or not dot or not option:
            raise ConfigError(f"--option {flag!r} is no COMPONENT.KEY=VALUE, as length.unit=chars")
        if name not in found:
            hint = did_you_mean(name, found)
            raise ConfigError(
                f"--option {flag!r}: no component {name!r}{hint} (components: {', '.join(found)})"
            )
        options = {**found[name].options, option: load_scalar(text)}
        found[name] = found[name].model_copy(update={"options": options})
    return found


def read_component(name: str, options: Sequence[str] = ()) -> ComponentConfig:
    """One reward by its name (or ``file.py:function``), with ``KEY=VALUE`` options.

    >>> read_component("length", ["unit=chars"]).options
    {'unit': 'chars'}
    """
    component_name, component = parse_reward_flag(name)
    flags = [f"{component_name}.{option}" for option in options]
    return with_options({component_name: component}, flags)[component_name]
