"""How another process comes by a reward: by its name among the plugins, or as a pickle."""

from __future__ import annotations

import base64
import inspect
import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlgym_llm.errors import PluginError
from rlgym_llm.plugins import Plugins
from rlgym_llm.rewards import FunctionReward, Reward, RewardPlugins, build_reward
from rlgym_llm.specs import Kind

__all__ = ["RewardSource", "load_reward", "pack_reward", "reward_source"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardSource:
    """Where a reward comes from: plain JSON data, from which any process builds it again."""

    name: str
    """Of its spec."""
    entry_point: str
    """``"module:attr"``."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The reward's own options, as JSON carries them."""
    extra: tuple[str, ...] = ()
    """Plugin files beside what is installed."""

    def build(self) -> tuple[Reward, Plugins]:
        """The reward, and the plugins among which it was found; raises as those do."""
        plugins = Plugins.discover(self.extra)
        spec = plugins.get(Kind.REWARD, self.name)
        if spec.entry_point != self.entry_point:
            raise PluginError(
                f"reward {self.name!r} is {spec.entry_point} here, {self.entry_point} elsewhere"
            )
        return build_reward(plugins.load(spec), self.options), plugins


def reward_source(
    plugins: RewardPlugins, name: str, options: Mapping[str, Any]
) -> RewardSource | None:
    """The source of the reward of that name; None where another process would not find it.

    That is so of plugins that were not discovered, and of options that JSON cannot carry.

    >>> reward_source(Plugins.discover(), "math", {}).entry_point
    'rlgym_llm_rewards.math:Math'
    """
    if not isinstance(plugins, Plugins):
        return None
    try:
        if json.loads(json.dumps(dict(options))) != dict(options):
            return None
    except (TypeError, ValueError):
        return None
    return RewardSource(
        name=name,
        entry_point=plugins.get(Kind.REWARD, name).entry_point,
        options=dict(options),
        extra=tuple(map(str, plugins.extra)),
    )


def pack_reward(reward: Reward, source: RewardSource | None) -> dict[str, Any]:
    """JSON data of which `load_reward` makes the reward: its source, or a pickle without one.

    Raises PluginError where neither works.
    """
    if source is not None:
        return {
            "name": source.name,
            "entry_point": source.entry_point,
            "options": dict(source.options),
            "extra": list(source.extra),
        }
    named = reward.function if isinstance(reward, FunctionReward) else type(reward)
    way_out = "put it in a module or a plugin file, or use backend 'thread'"
    if getattr(inspect.unwrap(named), "__module__", None) == "__main__":
        raise PluginError(
            f"reward {reward.name!r} is defined in the program itself, which a worker process "
            f"does not import: {way_out}"
        )
    try:
        pickled = pickle.dumps(reward)
    except Exception as failure:
        raise PluginError(
            f"reward {reward.name!r} cannot be sent to a worker process "
            f"({type(failure).__name__}: {failure}): {way_out}"
        ) from failure
    return {"pickle": base64.b64encode(pickled).decode()}


def load_reward(packed: Mapping[str, Any]) -> tuple[Reward, Plugins]:
    """The reward that was packed, and the plugins of this process."""
    if "pickle" in packed:
        reward: Reward = pickle.loads(base64.b64decode(packed["pickle"]))
        return reward, Plugins.discover()
    return RewardSource(**{**packed, "extra": tuple(packed["extra"])}).build()
