"""The rewards of several environments as one section, each for its own tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlgym_llm.composition.combine import Combine
from rlgym_llm.composition.component import ComponentConfig
from rlgym_llm.errors import UserError
from rlgym_llm.reward_config import RewardsConfig, read_rewards

__all__ = ["mixed_rewards"]


def mixed_rewards(
    members: Mapping[str, RewardsConfig], *, rules: RewardsConfig | Mapping[str, Any] | None = None
) -> RewardsConfig:
    """Components ``<alias>/<component>``, which apply where a task's ``env`` is the alias.

    ``rules`` are rewards with components, which are taken as they are, or without: then they bind
    the members' components. Without any the members' own rules must agree, or UserError.

    >>> members = {"a": read_rewards({"math": 1.0}), "b": read_rewards({"math": 2.0})}
    >>> mixed = mixed_rewards(members).components
    >>> {name: (one.weight, dict(one.when)) for name, one in mixed.items()}
    {'a/math': (1.0, {'env': 'a'}), 'b/math': (2.0, {'env': 'b'})}
    """
    given = None if rules is None else read_rewards(rules)
    if given is not None and given.components:
        return given
    components = {
        f"{alias}/{name}": _within(alias, component)
        for alias, rewards in members.items()
        for name, component in rewards.components.items()
    }
    if given is None:
        given = _common_rules(members)
    return given.model_copy(update={"components": components})


def _common_rules(members: Mapping[str, RewardsConfig]) -> RewardsConfig:
    first_alias, first = next(iter(members.items()))
    for alias, rewards in members.items():
        for rule in RewardsConfig.model_fields.keys() - {"components"}:
            ours, theirs = getattr(first, rule), getattr(rewards, rule)
            if ours != theirs:
                raise UserError(
                    f"mixture: {first_alias} and {alias} differ in rewards.{rule} ({ours} and "
                    f"{theirs}); give the mixture rewards with the {rule} of all"
                )
    return first


def _within(alias: str, component: ComponentConfig) -> ComponentConfig:
    """The component under the names of the mixture, for the tasks of one member."""
    if "env" in component.when:
        raise UserError(f"mixture, {alias}: its rewards go by a column 'env', which is taken")
    update: dict[str, Any] = {
        "when": {**component.when, "env": alias},
        "gate": tuple(
            gate.model_copy(update={"on": f"{alias}/{gate.on}"}) for gate in component.gate
        ),
    }
    if component.combine is not None:
        update["combine"] = _combine_within(alias, component.combine)
    return component.model_copy(update=update)


def _combine_within(alias: str, combine: Combine) -> Combine:
    update: dict[str, Any] = {}
    if combine.sum is not None:
        update["sum"] = {f"{alias}/{name}": factor for name, factor in combine.sum.items()}
    for way in ("product", "min", "max"):
        if (names := getattr(combine, way)) is not None:
            update[way] = tuple(f"{alias}/{name}" for name in names)
    if (switch := combine.switch) is not None:
        update["switch"] = switch.model_copy(
            update={
                "cases": {value: f"{alias}/{name}" for value, name in switch.cases.items()},
                "default": switch.default and f"{alias}/{switch.default}",
            }
        )
    return combine.model_copy(update=update)
