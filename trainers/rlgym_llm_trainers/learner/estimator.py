"""Which advantage estimator a run takes, with its options, and what it asks of the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlgym_llm.config_keys import given_values
from rlgym_llm.config_schema import AlgorithmConfig, TrainConfig
from rlgym_llm.errors import ConfigError, PluginError
from rlgym_llm.plugins import Plugins
from rlgym_llm.reward_config import RewardsConfig
from rlgym_llm.specs import AdvantageSpec, Kind
from rlgym_llm_trainers.algorithms.advantages import AdvantageInputs, Advantages
from rlgym_llm_trainers.algorithms.options import bind_options, option_names

__all__ = ["Estimator", "load_estimator", "needs_baseline", "needs_critic"]

Estimator = Callable[[AdvantageInputs], Advantages]

_KEYS = ("gamma", "lam", "norm_adv_by_std_in_grpo")
"""Keys of the section ``algorithm`` that are options of estimators."""
_BY_COMPONENT = "gdpo"


def load_estimator(config: TrainConfig, rewards: RewardsConfig, plugins: Plugins) -> Estimator:
    """The estimator that ``algorithm.adv_estimator`` names, its options bound.

    Where the rewards say ``aggregate: normalize_then_sum``, grpo is gdpo: the same by component.
    Raises ConfigError where the run does not give what the estimator asks for, for unknown options,
    and for keys that it would not heed.
    """
    algorithm, name = config.algorithm, config.algorithm.adv_estimator
    if rewards.aggregate == "normalize_then_sum":
        if name not in ("grpo", _BY_COMPONENT):
            raise ConfigError(
                f"--algorithm.adv_estimator {name}: rewards.aggregate normalize_then_sum is the "
                f"estimator {_BY_COMPONENT}; keep one of the two"
            )
        name = _BY_COMPONENT
    if name == _BY_COMPONENT and algorithm.use_kl_in_reward:
        raise ConfigError(
            f"--algorithm.use_kl_in_reward: {_BY_COMPONENT} (rewards.aggregate normalize_then_sum) "
            "normalises components one by one, and the KL penalty is none of them; take "
            "--actor.use_kl_loss"
        )
    spec = plugins.get(Kind.ADVANTAGE, name)
    assert isinstance(spec, AdvantageSpec), "the hook returns no other"
    _check_run(config, spec)
    estimate = plugins.load(spec)
    values = {key: getattr(algorithm, key) for key in _KEYS}
    _check_heeded(values, name, option_names(estimate))
    bound = bind_options(estimate, values, algorithm.adv_kwargs, "algorithm.adv_kwargs")
    return _checked(bound, name)


def needs_baseline(config: TrainConfig, plugins: Plugins) -> bool:
    """Whether the estimator of the run reads the rewards of greedy siblings."""
    spec = plugins.get(Kind.ADVANTAGE, config.algorithm.adv_estimator)
    return isinstance(spec, AdvantageSpec) and spec.needs_baseline


def needs_critic(config: TrainConfig, plugins: Plugins) -> bool:
    """Whether the estimator of the run reads the values of a critic."""
    spec = plugins.get(Kind.ADVANTAGE, config.algorithm.adv_estimator)
    return isinstance(spec, AdvantageSpec) and spec.needs_critic


def _check_run(config: TrainConfig, spec: AdvantageSpec) -> None:
    if spec.needs_groups and config.rollout.n == 1:
        raise ConfigError(
            f"--rollout.n 1: {spec.name} compares the responses to a prompt with each other; take "
            "2 or more"
        )
    if not spec.needs_critic:
        for name, value in given_values(config, ("critic", "trainer.critic_warmup")).items():
            raise ConfigError(
                f"--{name} {value}: has no effect on the estimator {spec.name}, which needs no "
                "critic; take --algorithm.adv_estimator gae"
            )
    if spec.needs_groups and config.algorithm.use_pf_ppo:
        raise ConfigError(
            f"--algorithm.use_pf_ppo: {spec.name} compares siblings, whose advantages add up to 0 "
            "only where each trains once; take an estimator that does not, such as gae"
        )
    if config.algorithm.filter_groups.enable and config.rollout.n == 1:
        raise ConfigError(
            "--algorithm.filter_groups.enable: a lone response has no other to differ from; take "
            "--rollout.n 2 or more"
        )


def _check_heeded(values: Mapping[str, Any], name: str, options: list[str]) -> None:
    """A key that is given and has no effect is a mistake of whoever gave it."""
    for key, value in values.items():
        default = AlgorithmConfig.model_fields[key].default
        if value != default and key not in options:
            raise ConfigError(
                f"--algorithm.{key} {str(value).lower()}: has no effect on the estimator {name}"
            )


def _checked(estimate: Callable[..., Advantages], name: str) -> Estimator:
    """The same estimator; PluginError where what it gives back is no advantages."""

    def checked(inputs: AdvantageInputs) -> Advantages:
        found = estimate(inputs)
        who = f"advantage estimator {name!r}"
        if not isinstance(found, Advantages):
            raise PluginError(f"{who} returned a {type(found).__name__}, not Advantages")
        shapes = (found.advantages.shape, found.is_valid.shape)
        if shapes != (inputs.mask.shape, inputs.is_scored.shape):
            raise PluginError(f"{who} returned shapes {shapes}, for streams {inputs.mask.shape}")
        trained = inputs.mask & found.is_valid[:, None]
        if not np.isfinite(found.advantages[trained]).all():
            raise PluginError(f"{who} returned NaN or infinity for a sampled token")
        return found

    return checked
