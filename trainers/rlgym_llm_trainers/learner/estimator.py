"""Which advantage estimator a run takes, with its options, and what it asks of the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlgym_llm.config_keys import given_values
from rlgym_llm.config_schema import AlgorithmConfig, TrainConfig
from rlgym_llm.errors import ConfigError, PluginError, RlgymError, describe, one_line
from rlgym_llm.plugins import Plugins
from rlgym_llm.reward_config import RewardsConfig
from rlgym_llm.specs import AdvantageSpec, Kind
from rlgym_llm_trainers.algorithms.advantages import AdvantageInputs, Advantages
from rlgym_llm_trainers.algorithms.advantages.inputs import Floats
from rlgym_llm_trainers.algorithms.options import bind_options, option_names
from rlgym_llm_trainers.algorithms.plugin_call import check_metrics, load_function, plugin_call

__all__ = ["Estimator", "load_estimator", "needs_baseline", "needs_critic"]

Estimator = Callable[[AdvantageInputs], Advantages]

_KEYS = ("gamma", "lam", "norm_adv_by_std_in_grpo")
"""Keys of the section ``algorithm`` that are options of estimators."""
_BY_COMPONENT = "gdpo"


def load_estimator(config: TrainConfig, rewards: RewardsConfig, plugins: Plugins) -> Estimator:
    """The estimator that ``algorithm.adv_estimator`` names, its options bound and tried.

    Where the rewards say ``aggregate: normalize_then_sum``, grpo is gdpo: the same by component.
    Raises ConfigError where the run does not give what the estimator asks for, for options that it
    does not have or take, and for keys that it would not heed; PluginError where it fails or what
    it returns is no advantages, now and at every call. It cannot write into what it is given.
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
    estimate = load_function(plugins, spec, _called(name))
    values = {key: getattr(algorithm, key) for key in _KEYS}
    _check_heeded(values, name, option_names(estimate))
    bound = bind_options(estimate, values, algorithm.adv_kwargs, "algorithm.adv_kwargs")
    _try_out(bound, config, spec, components=tuple(rewards.components))
    return _checked(bound, spec)


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


def _called(name: str) -> str:
    return f"advantage estimator {name!r}"


def _try_out(
    estimate: Estimator, config: TrainConfig, spec: AdvantageSpec, *, components: Sequence[str]
) -> None:
    """Finds now what the first step would find, after a model was loaded and sampled from."""
    inputs = _few_rollouts(config.rollout.n, spec, components)
    with plugin_call(_called(spec.name)), _locked(inputs), np.errstate(all="ignore"):
        try:
            found = estimate(inputs)
        except RlgymError:
            raise
        except (TypeError, ValueError) as refused:
            given = ", ".join(
                f"{key} {value}" for key, value in config.algorithm.adv_kwargs.items()
            )
            raise ConfigError(
                f"--algorithm.adv_estimator {spec.name}: {one_line(refused)}"
                + (f" (--algorithm.adv_kwargs: {given})" if given else "")
            ) from refused
    _read(found, inputs, spec)


def _few_rollouts(n: int, spec: AdvantageSpec, components: Sequence[str]) -> AdvantageInputs:
    """Two groups of n siblings, that earned 1, 0, 1... and 0, 1, 0...: two sampled tokens each."""
    num_rollouts = 2 * n
    first = [1.0 - index % 2 for index in range(n)]
    rewards = np.array(first + [1.0 - reward for reward in first])
    mask = np.array([[False, True, True]] * num_rollouts)
    ends = np.array([[False, False, True]] * num_rollouts)
    zeros = np.zeros(num_rollouts)
    return AdvantageInputs(
        token_rewards=np.where(ends, rewards[:, None], 0.0),
        mask=mask,
        group_ids=("a",) * n + ("b",) * n,
        is_scored=np.ones(num_rollouts, dtype=bool),
        rewards=rewards,
        step_ends=ends,
        values=np.where(mask, 0.5, 0.0) if spec.needs_critic else None,
        bootstrap_values=zeros if spec.needs_critic else None,
        baselines=zeros if spec.needs_baseline else None,
        component_rewards={name: rewards.copy() for name in components},
        component_weights=dict.fromkeys(components, 1.0),
    )


def _checked(estimate: Estimator, spec: AdvantageSpec) -> Estimator:
    """The same estimator; PluginError where it fails, or what it gives back is no advantages."""

    def checked(inputs: AdvantageInputs) -> Advantages:
        with plugin_call(_called(spec.name)), _locked(inputs):
            found = estimate(inputs)
        return _read(found, inputs, spec)

    return checked


@contextmanager
def _locked(inputs: AdvantageInputs) -> Iterator[None]:
    """Read-only meanwhile: rewards that an estimator overwrote would be logged as the run's."""
    found = [getattr(inputs, field.name) for field in fields(inputs)]
    arrays = [
        array
        for array in (*found, *inputs.component_rewards.values())
        if isinstance(array, np.ndarray) and array.flags.writeable
    ]
    for array in arrays:
        array.setflags(write=False)
    try:
        yield
    finally:
        for array in arrays:
            array.setflags(write=True)


def _read(found: object, inputs: AdvantageInputs, spec: AdvantageSpec) -> Advantages:
    """What an estimator returned, in float64 and 0 where nothing trains, or PluginError."""
    who = _called(spec.name)
    if not isinstance(found, Advantages):
        raise PluginError(f"{who} returned a {type(found).__name__}, not Advantages")
    is_valid = _array(found.is_valid, who, "is_valid", inputs.is_scored.shape)
    if is_valid.dtype != np.bool_:
        raise PluginError(f"{who} returned is_valid of {is_valid.dtype}; it must be of bool")
    check_metrics(found.metrics, who)
    trained = inputs.mask & is_valid[:, None]
    if found.returns is None and spec.needs_critic:
        raise PluginError(
            f"{who} returned no returns, which a critic is trained towards; take "
            "Advantages.with_returns"
        )
    returns = None
    if found.returns is not None:
        returns = _finite(found.returns, who, "returns", trained)
    advantages = _finite(found.advantages, who, "advantages", trained)
    return replace(found, advantages=advantages, is_valid=is_valid, returns=returns)


def _finite(values: object, who: str, name: str, trained: NDArray[np.bool_]) -> Floats:
    """The values [N, T] of the trained tokens, 0 elsewhere."""
    array = _array(values, who, name, trained.shape)
    if not np.can_cast(array.dtype, np.float64, casting="safe"):
        raise PluginError(f"{who} returned {name} of {array.dtype}; they must be of float64")
    if not np.isfinite(array[trained]).all():
        raise PluginError(f"{who} returned {name} of NaN or infinity for a sampled token")
    return np.where(trained, array, 0.0).astype(np.float64)


def _array(values: object, who: str, name: str, shape: tuple[int, ...]) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except (Exception, SystemExit) as error:  # a tensor on another device, rows of other lengths
        raise PluginError(
            f"{who} returned {name} that are no array of numpy: {describe(error)}"
        ) from error
    if array.shape != shape:
        raise PluginError(
            f"{who} returned {name} of shape {list(array.shape)}; it must be {list(shape)}"
        )
    return array
