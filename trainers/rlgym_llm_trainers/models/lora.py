"""Low-rank adapters (LoRA) in a model, by peft: they are trained in the place of its weights."""

from __future__ import annotations

import importlib.util
import re
import warnings
from collections.abc import Sequence

import torch
from torch import nn

from rlgym_llm.config_schema import ModelConfig
from rlgym_llm.errors import ConfigError, one_line

__all__ = ["add_lora", "check_lora"]


def check_lora(config: ModelConfig) -> None:
    """Raises ConfigError where adapters are asked for and peft is not installed."""
    if config.lora_rank and importlib.util.find_spec("peft") is None:
        raise ConfigError(
            f"--model.lora_rank {config.lora_rank}: peft is not installed; pip install "
            "'rlgym-llm[lora]'"
        )


def add_lora(model: nn.Module, config: ModelConfig, *, seed: int) -> None:
    """Puts an adapter beside each target module, in place, and freezes all other weights.

    New adapters change nothing yet: B is 0 in W + scale * B @ A, and A is drawn by ``seed``, alike
    on every rank. Raises ConfigError for target modules that the model does not have.
    """
    from peft import LoraConfig, inject_adapter_in_model

    modules = config.target_modules
    wanted = LoraConfig(
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,  # type: ignore[arg-type]  # peft divides it by the rank
        target_modules=modules if isinstance(modules, str) else list(modules),
        lora_dropout=0.0,
        task_type="CAUSAL_LM",
    )
    try:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of tied weights, which are refused below
            torch.default_generator.manual_seed(seed)
            inject_adapter_in_model(wanted, model)
    except (ValueError, re.error) as error:  # a single name is a regular expression
        raise ConfigError(f"--model.target_modules {modules}: {one_line(error)}") from error
    _check_targets(model, modules)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(".lora_" in name)


def _check_targets(model: nn.Module, targets: str | Sequence[str]) -> None:
    """Every name must have met a linear layer whose weight is no other layer's too."""
    from transformers.pytorch_utils import Conv1D

    adapted = {name: part for name, part in model.named_modules() if hasattr(part, "lora_A")}
    tied = {id(part.weight) for part in (model.get_input_embeddings(),)}  # type: ignore[operator]
    for name, part in adapted.items():
        layer = getattr(part, "base_layer", part)
        if not isinstance(layer, nn.Linear | Conv1D) or id(layer.weight) in tied:
            raise ConfigError(
                f"--model.target_modules: {name} is no linear layer with weights of its own; leave "
                "it out"
            )
    missed = [
        target
        for target in ([] if isinstance(targets, str) else targets)
        if not any(name == target or name.endswith(f".{target}") for name in adapted)
    ]
    if missed:
        raise ConfigError(f"--model.target_modules: the model has no module {', '.join(missed)}")
