"""A policy loss with its options filled in from the configuration."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from rlgym_llm.config_schema import ActorConfig
from rlgym_llm.errors import ConfigError, PluginError
from rlgym_llm.plugins import Plugins
from rlgym_llm.specs import Kind
from rlgym_llm_trainers.algorithms.aggregate import masked
from rlgym_llm_trainers.algorithms.losses.inputs import PolicyLossInputs
from rlgym_llm_trainers.algorithms.losses.output import LossOutput
from rlgym_llm_trainers.algorithms.options import bind_options, option_names

__all__ = ["PolicyLoss", "bind_policy_loss", "load_policy_loss"]

PolicyLoss = Callable[..., LossOutput]
"""``loss(inputs, *, reduce) -> LossOutput``."""

_AT_CALL = ("reduce",)
_KWARGS = "actor.policy_loss_kwargs"
_OWN_KEYS = {"clip_low": "clip_ratio_low", "clip_high": "clip_ratio_high", "clip_c": "clip_ratio_c"}
"""Option of a loss to the key of the section ``actor`` that it comes from."""


def load_policy_loss(config: ActorConfig, plugins: Plugins) -> PolicyLoss:
    """The loss that ``actor.policy_loss`` names, its options bound and tried on a few tokens.

    Raises ConfigError for options that it does not have or take, and for a clip that is given and
    that it does not heed; PluginError where what it returns is no `LossOutput`, or where it does
    not call the ``reduce`` it is given.
    """
    loss = plugins.load(plugins.get(Kind.POLICY_LOSS, config.policy_loss))
    bound = bind_policy_loss(loss, config)
    _try_out(bound, config)
    return bound


def bind_policy_loss(loss: PolicyLoss, config: ActorConfig) -> PolicyLoss:
    """The loss with the options that its signature names: clips, and ``policy_loss_kwargs``.

    Raises ConfigError as `load_policy_loss` does, but tries nothing.

    >>> def mine(inputs, *, reduce, clip_low=0.2, width=1): return inputs, clip_low, width
    >>> bind_policy_loss(mine, ActorConfig(policy_loss_kwargs={"width": 3}))("x", reduce=sum)
    ('x', 0.2, 3)
    """
    for option in config.policy_loss_kwargs:
        if option in _OWN_KEYS:
            raise ConfigError(
                f"--{_KWARGS}.{option}: this option has a key of its own; give "
                f"--actor.{_OWN_KEYS[option]}"
            )
    _check_heeded(config, option_names(loss, at_call=_AT_CALL))
    values = {
        "clip_low": config.clip_low,
        "clip_high": config.clip_high,
        "clip_c": config.clip_ratio_c,
    }
    return bind_options(loss, values, config.policy_loss_kwargs, _KWARGS, at_call=_AT_CALL)


def _check_heeded(config: ActorConfig, options: list[str]) -> None:
    """A key that is given and has no effect is a mistake of whoever gave it."""
    sources = {key: [option] for option, key in _OWN_KEYS.items()}
    sources["clip_ratio"] = ["clip_low", "clip_high"]
    for key, feeds in sources.items():
        value = getattr(config, key)
        if value != type(config).model_fields[key].default and not set(feeds) & set(options):
            raise ConfigError(
                f"--actor.{key} {value:g}: has no effect on the policy loss {config.policy_loss}"
            )


def _try_out(loss: PolicyLoss, config: ActorConfig) -> None:
    """Finds now what the first update would find, after the model was loaded and sampled from."""
    zeros = torch.zeros(2, 3)
    inputs = PolicyLossInputs(
        logprobs=zeros.clone().requires_grad_(),
        old_logprobs=zeros,
        advantages=torch.tensor([[1.0], [-1.0]]).expand(2, 3),
        mask=torch.ones(2, 3, dtype=torch.bool),
    )
    was_reduced = False

    def reduce(values: Tensor, mask: Tensor) -> Tensor:
        nonlocal was_reduced
        was_reduced = True
        return masked(values, mask).sum()

    try:
        output = loss(inputs, reduce=reduce)
    except (TypeError, ValueError) as refused:
        raise ConfigError(f"--actor.policy_loss {config.policy_loss}: {refused}") from refused
    if not isinstance(output, LossOutput):
        raise PluginError(
            f"policy loss {config.policy_loss!r} returned a {type(output).__name__}, not LossOutput"
        )
    if not was_reduced:
        raise PluginError(
            f"policy loss {config.policy_loss!r} does not call the reduce it is given: its sum "
            "would change with how a step is split, and samples of another policy would train it "
            "uncorrected"
        )
