"""A policy loss with its options filled in from the configuration."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from rlgym_llm.config_schema import ActorConfig
from rlgym_llm.errors import ConfigError, PluginError, RlgymError, one_line
from rlgym_llm.plugins import Plugins
from rlgym_llm.specs import Kind
from rlgym_llm_trainers.algorithms.aggregate import Reduce, masked
from rlgym_llm_trainers.algorithms.losses.inputs import PolicyLossInputs
from rlgym_llm_trainers.algorithms.losses.output import LossOutput
from rlgym_llm_trainers.algorithms.options import bind_options, option_names
from rlgym_llm_trainers.algorithms.plugin_call import check_metrics, load_function, plugin_call

__all__ = ["PolicyLoss", "bind_policy_loss", "load_policy_loss"]

PolicyLoss = Callable[..., LossOutput]
"""``loss(inputs, *, reduce) -> LossOutput``."""

_AT_CALL = ("reduce",)
_KWARGS = "actor.policy_loss_kwargs"
_OF_PPO = {"clip_ratio": 0.2, "clip_ratio_c": 3.0}
"""What PPO takes, and verl gives whatever the loss."""
_OWN_KEYS = {
    "clip_low": "actor.clip_ratio_low",
    "clip_high": "actor.clip_ratio_high",
    "clip_c": "actor.clip_ratio_c",
}
"""Option of a loss to the key that it comes from; ``actor.clip_ratio`` gives the first two."""


def load_policy_loss(config: ActorConfig, plugins: Plugins) -> PolicyLoss:
    """The loss that ``actor.policy_loss`` names, its options bound and tried on a few tokens.

    Raises ConfigError for options that it does not have or take, and for a clip that is given and
    that it does not heed; PluginError where its loss is not the sum of what the ``reduce`` it is
    given makes of its token losses, and, now and at every call, where it fails or what it returns
    is no `LossOutput` of a scalar with a gradient.
    """
    spec = plugins.get(Kind.POLICY_LOSS, config.policy_loss)
    loss = load_function(plugins, spec, _called(config))
    bound = bind_policy_loss(loss, config)
    _try_out(bound, config)
    return _checked(bound, config)


def bind_policy_loss(loss: PolicyLoss, config: ActorConfig) -> PolicyLoss:
    """The loss with the options that its signature names: clips, and ``policy_loss_kwargs``.

    A clip that the configuration does not give keeps the loss's own default. Raises ConfigError as
    `load_policy_loss` does, but tries nothing.

    >>> def mine(inputs, *, reduce, clip_low=0.3, clip_high=0.4): return inputs, clip_low, clip_high
    >>> bind_policy_loss(mine, ActorConfig(clip_ratio_high=0.5))("x", reduce=sum)
    ('x', 0.3, 0.5)
    """
    _check_heeded(config, option_names(loss, at_call=_AT_CALL))
    clips = {
        "clip_low": config.clip_low,
        "clip_high": config.clip_high,
        "clip_c": config.clip_ratio_c,
    }
    return bind_options(
        loss,
        {option: clip for option, clip in clips.items() if clip is not None},
        config.policy_loss_kwargs,
        _KWARGS,
        at_call=_AT_CALL,
        own_keys=_OWN_KEYS,
    )


def _called(config: ActorConfig) -> str:
    return f"policy loss {config.policy_loss!r}"


def _check_heeded(config: ActorConfig, options: list[str]) -> None:
    """A key that is given and has no effect is a mistake of whoever gave it.

    PPO's own values pass: configurations that spell out every key have them, verl's too.
    """
    given = {
        "clip_ratio": (config.clip_ratio, ("clip_low", "clip_high")),
        "clip_ratio_low": (config.clip_ratio_low, ("clip_low",)),
        "clip_ratio_high": (config.clip_ratio_high, ("clip_high",)),
        "clip_ratio_c": (config.clip_ratio_c, ("clip_c",)),
    }
    for key, (value, feeds) in given.items():
        if value not in (None, _OF_PPO.get(key)) and not set(feeds) & set(options):
            raise ConfigError(
                f"--actor.{key} {value:g}: has no effect on the policy loss {config.policy_loss}"
            )


def _try_out(loss: PolicyLoss, config: ActorConfig) -> None:
    """Finds now what the first update would find, after the model was loaded and sampled from.

    What ``reduce`` gives is scaled by a weight of 1, along which the slope of the loss must be the
    loss: one that passes ``reduce`` over, or adds something beside it, has another slope.
    """
    logprobs = torch.tensor([[-0.5, -1.0, -1.5], [-0.3, -0.8, -1.3]])
    moved = torch.tensor([0.1, -0.1, 0.0])  # some clips hold, others do not
    inputs = PolicyLossInputs(
        logprobs=logprobs.requires_grad_(),
        old_logprobs=logprobs.detach() - moved,
        advantages=torch.tensor([[1.0], [-0.5]]).expand(2, 3),
        mask=torch.ones(2, 3, dtype=torch.bool),
    )
    weight = torch.ones((), requires_grad=True)
    found = _tried(loss, config, inputs, weight)
    if weight.grad is None or not torch.allclose(weight.grad, found):
        raise PluginError(
            f"{_called(config)} does not call the reduce it is given: its sum "
            "would change with how a step is split, and samples of another policy would train it "
            "uncorrected"
        )


def _tried(
    loss: PolicyLoss, config: ActorConfig, inputs: PolicyLossInputs, weight: Tensor
) -> Tensor:
    """The loss where ``reduce`` is the sum, times ``weight``; gone through backwards."""

    def reduce(values: Tensor, mask: Tensor) -> Tensor:
        return weight * masked(values, mask).sum()

    with plugin_call(_called(config)):
        try:
            output = loss(inputs, reduce=reduce)
        except RlgymError:
            raise
        except (TypeError, ValueError) as refused:
            raise ConfigError(
                f"--actor.policy_loss {config.policy_loss}: {one_line(refused)}"
            ) from refused
        found = _read(output, inputs, config).loss
        found.backward()  # type: ignore[no-untyped-call]
    if not torch.isfinite(found).all():
        raise PluginError(f"{_called(config)} is {found.item()} of a few ordinary tokens")
    return found.detach()


def _checked(loss: PolicyLoss, config: ActorConfig) -> PolicyLoss:
    """The same loss; PluginError where it fails, or what it gives back is no loss."""

    def checked(inputs: PolicyLossInputs, *, reduce: Reduce) -> LossOutput:
        with plugin_call(_called(config)):
            output = loss(inputs, reduce=reduce)
        return _read(output, inputs, config)

    return checked


def _read(output: object, inputs: PolicyLossInputs, config: ActorConfig) -> LossOutput:
    """What a loss returned; PluginError where nothing can be learned from it."""
    who = _called(config)
    if not isinstance(output, LossOutput):
        raise PluginError(f"{who} returned a {type(output).__name__}, not LossOutput")
    loss: object = output.loss
    if not isinstance(loss, Tensor):
        raise PluginError(f"{who} returned a {type(loss).__name__} as its loss, not a tensor")
    if loss.numel() != 1 or not loss.is_floating_point():
        raise PluginError(
            f"{who} returned a loss of {loss.dtype} and shape {list(loss.shape)}; it must be a "
            "scalar of floats"
        )
    if inputs.logprobs.requires_grad and not loss.requires_grad:
        raise PluginError(f"{who} returned a loss without a gradient: nothing would be learned")
    check_metrics(output.metrics, who)
    return output
