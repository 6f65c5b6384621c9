"""The learner of a run, made from its configuration, alike on every rank."""

from __future__ import annotations

import copy
from collections.abc import Callable

from torch import nn

from rlgym_llm.batch_arithmetic import BatchPlan
from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.errors import ConfigError
from rlgym_llm_trainers.algorithms.losses.binding import PolicyLoss
from rlgym_llm_trainers.learner.learner import Learner
from rlgym_llm_trainers.learner.ranks import Ranks
from rlgym_llm_trainers.learner.shard import compile_layers
from rlgym_llm_trainers.models.lora import add_lora, check_lora
from rlgym_llm_trainers.models.policy import Policy, make_reference
from rlgym_llm_trainers.training.preparation import ModelSource

__all__ = ["check_learner", "make_learner"]


def check_learner(config: TrainConfig, source: ModelSource, ranks: Ranks) -> None:
    """Raises ConfigError for what these ranks cannot do; before a model is loaded."""
    check_lora(config.model)
    fsdp = config.actor.fsdp_config
    for name, is_on in (
        ("param_offload", fsdp.param_offload),
        ("optimizer_offload", fsdp.optimizer_offload),
    ):
        if is_on and (ranks.mesh is None or source.device.type != "cuda"):
            raise ConfigError(
                f"--actor.fsdp_config.{name} true: is for sharded training on GPUs; start it with "
                "torchrun --nproc-per-node, or leave it out"
            )
    if ranks.world_size == 1 and ranks.mesh is None:
        return
    if source.device.index is not None:
        raise ConfigError(
            f"--trainer.device {source.device}: under torchrun each rank has a GPU of its own; "
            "give cuda"
        )
    if source.generator.name == "vllm" and not config.rollout.num_workers:
        raise ConfigError(
            "--rollout.name vllm in the learner's process would join its ranks; take "
            "--rollout.num_workers 1, or --rollout.name hf"
        )


def make_learner(
    config: TrainConfig,
    policy: Policy,
    plan: BatchPlan,
    *,
    policy_loss: PolicyLoss,
    ranks: Ranks,
    note: Callable[[str], None] | None = None,
) -> Learner:
    """The learner of the policy, or this rank's part of it."""
    needs_reference = config.actor.use_kl_loss or config.algorithm.use_kl_in_reward
    reference = make_reference(policy) if needs_reference and not config.trainer.val_only else None
    return Learner(
        policy,
        config.actor,
        policy_loss=policy_loss,
        mini_batch_prompts=plan.mini_batch_prompts,
        micro_batch_size=plan.micro_batch_size,
        reference_batch_size=plan.reference_batch_size,
        max_tokens=plan.max_tokens,
        reference_max_tokens=plan.reference_max_tokens,
        num_updates=plan.num_updates or 0,
        temperature=config.rollout.temperature,
        max_response_length=config.data.max_response_length,
        seed=config.trainer.seed,
        reference=reference,
        trained=_trained(config, policy, ranks),
        ranks=ranks,
        balances=config.trainer.balance_batch,
        note=note,
    )


def _trained(config: TrainConfig, policy: Policy, ranks: Ranks) -> nn.Module:
    """The module that learns: the policy's own, where that can stay whole and as it is."""
    model: nn.Module = policy.model
    has_adapters = config.model.lora_rank > 0
    if ranks.is_first and (ranks.mesh is not None or has_adapters):
        model = copy.deepcopy(model)  # the policy's own is what samples and what is saved
    if has_adapters:
        add_lora(model, config.model, seed=config.trainer.seed)
    if config.model.use_torch_compile:
        compile_layers(model)
    return model
