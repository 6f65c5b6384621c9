"""Rewards on the command line: ``--reward NAME=WEIGHT`` and ``--option COMPONENT.KEY=VALUE``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rlgym_llm.composition.component import ComponentConfig
from rlgym_llm.errors import ConfigError, did_you_mean
from rlgym_llm.reward_config import RewardsConfig, read_rewards
from rlgym_llm.yaml_text import load_value, read_yaml_file

__all__ = [
    "parse_reward_flag",
    "read_component",
    "read_reward_flags",
    "read_rewards_file",
    "with_options",
]


def parse_reward_flag(flag: str) -> tuple[str, ComponentConfig]:
    """Reads ``--reward NAME=WEIGHT``; a bare ``NAME`` has weight 1, ``file.py:name`` is a function.

    >>> name, component = parse_reward_flag("length=-0.001")
    >>> name, component.reward, component.weight
    ('length', 'length', -0.001)
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


def read_reward_flags(flags: Sequence[str]) -> dict[str, ComponentConfig]:
    """The components of several flags. Raises ConfigError where two of them have one name.

    >>> list(read_reward_flags(["math=1.0", "mine.py:brevity=0.5"]))
    ['math', 'brevity']
    """
    found: dict[str, ComponentConfig] = {}
    spellings: dict[str, str] = {}
    for flag in flags:
        name, component = parse_reward_flag(flag)
        if name in found:
            raise ConfigError(
                f"reward {name!r} is given twice, as {spellings[name]!r} and as {flag!r}; keep "
                "one, or give each a name of its own in a YAML file"
            )
        found[name], spellings[name] = component, flag
    return found


def read_rewards_file(path: str | Path) -> RewardsConfig:
    """The section of a YAML file; of one with a key ``rewards``, as a run's ``config.yaml``, that.

    Raises ConfigError where the file cannot be read or is wrong.
    """
    found = read_yaml_file(str(path))
    if not isinstance(found, Mapping):
        raise ConfigError(f"{path}: a rewards file holds a mapping, such as 'math: 1.0'")
    section = found.get("rewards", found)
    if not isinstance(section, Mapping):
        raise ConfigError(f"{path}: its key 'rewards' holds no mapping, such as 'math: 1.0'")
    return read_rewards(section)


def with_options(
    components: Mapping[str, ComponentConfig], flags: Sequence[str]
) -> dict[str, ComponentConfig]:
    """The components with ``COMPONENT.KEY=VALUE`` options, values as YAML reads them.

    >>> found = with_options({"length": ComponentConfig(reward="length")}, ["length.unit=chars"])
    >>> found["length"].options
    {'unit': 'chars'}
    >>> tagged = with_options({"f": ComponentConfig(reward="format")}, ["f.tags=[think, answer]"])
    >>> tagged["f"].options
    {'tags': ['think', 'answer']}
    """
    found = dict(components)
    spellings: dict[tuple[str, str], str] = {}
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
        if (other := spellings.get((name, option))) is not None:
            raise ConfigError(
                f"--option {name}.{option} is given twice, as {other!r} and as {flag!r}; keep one"
            )
        spellings[name, option] = flag
        options = _placed(found[name].options, option.split("."), load_value(text), flag)
        found[name] = found[name].model_copy(update={"options": options})
    return found


def _placed(
    options: Mapping[str, Any], path: Sequence[str], value: Any, flag: str
) -> dict[str, Any]:
    """The options with the value at ``kwargs.limit``."""
    first, *rest = path
    if not rest:
        return {**options, first: value}
    inner = options.get(first, {})
    if not isinstance(inner, Mapping) or not all(path):
        raise ConfigError(f"--option {flag!r}: {first!r} is no mapping with keys of its own")
    return {**options, first: _placed(inner, rest, value, flag)}


def read_component(name: str, options: Sequence[str] = ()) -> ComponentConfig:
    """One reward by its name (or ``file.py:function``), with ``KEY=VALUE`` options.

    >>> read_component("length", ["unit=chars"]).options
    {'unit': 'chars'}
    """
    component_name, component = parse_reward_flag(name)
    flags = [f"{component_name}.{option}" for option in options]
    return with_options({component_name: component}, flags)[component_name]
