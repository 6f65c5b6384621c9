"""Which component of a composed reward says right or wrong."""

from __future__ import annotations

from rlgym_llm.reward_config import RewardsConfig
from rlgym_llm.rewards import RewardPlugins
from rlgym_llm.specs import Kind, RewardSpec

__all__ = ["accuracy_component"]


def accuracy_component(
    rewards: RewardsConfig, plugins: RewardPlugins, name: str | None = None
) -> str | None:
    """The component whose mean is the accuracy; None where there is none.

    That of the given name (an environment names its own), else the first that scores with the
    reward of that name, else the first whose reward is a verdict.

    >>> from rlgym_llm.plugins import Plugins
    >>> from rlgym_llm.reward_config import read_rewards
    >>> rewards = read_rewards({"components": {"format": {}, "maths": {"reward": "math"}}})
    >>> accuracy_component(rewards, Plugins.discover())
    'maths'
    """
    components = rewards.components
    if name in components:
        return name
    for component, settings in components.items():
        if name is not None and settings.reward == name:
            return component
    for component, settings in components.items():
        if settings.reward is not None and _is_verdict(settings.reward, plugins):
            return component
    return None


def _is_verdict(reward: str, plugins: RewardPlugins) -> bool:
    spec = plugins.get(Kind.REWARD, reward)
    return isinstance(spec, RewardSpec) and spec.is_verdict
