"""Generators, algorithms, training and evaluation. Importing this names them and imports none."""

from __future__ import annotations

from rlgym_llm.hookspecs import hookimpl
from rlgym_llm.specs import (
    AdvantageSpec,
    CommandSpec,
    GeneratorSpec,
    Kind,
    PolicyLossSpec,
    Spec,
)

__all__ = ["rlgym_register"]

_SPECS: dict[Kind, list[Spec]] = {
    Kind.COMMAND: [
        CommandSpec(
            name="train",
            entry_point="rlgym_llm_trainers.cli:main",
            description="train a language model (the same as rlgym-train)",
        ),
        CommandSpec(
            name="eval",
            entry_point="rlgym_llm_trainers.commands.eval_cli:main",
            description="sample a model on an environment: accuracy, pass@k, maj@k",
        ),
        CommandSpec(
            name="rollout",
            entry_point="rlgym_llm_trainers.commands.rollout_cli:main",
            description="collect and store rollouts of a model, without training",
        ),
    ],
    Kind.GENERATOR: [
        GeneratorSpec(
            name="hf",
            entry_point="rlgym_llm_trainers.generators.hf_generator:HFGenerator.from_config",
            description="transformers: the learner's own weights, or copies in processes",
            worker="rlgym_llm_trainers.generators.ray_pool.hf_worker:HFWorker.from_spec",
        ),
        GeneratorSpec(
            name="vllm",
            entry_point="rlgym_llm_trainers.generators.vllm_engine.generator:VLLMGenerator.from_config",
            description="vLLM, in this process or in processes of its own",
            worker="rlgym_llm_trainers.generators.vllm_engine.worker:make_vllm_worker",
            check="rlgym_llm_trainers.generators.vllm_engine.arguments:check_vllm",
        ),
        GeneratorSpec(
            name="openai",
            entry_point="rlgym_llm_trainers.generators.openai_generator:OpenAIGenerator.from_config",
            description="an OpenAI-compatible server; evaluation only",
            trains=False,
        ),
    ],
    Kind.ADVANTAGE: [
        AdvantageSpec(
            name="grpo",
            entry_point="rlgym_llm_trainers.algorithms.advantages.groups:grpo",
            description="reward minus the group's mean, over its standard deviation",
            needs_groups=True,
        ),
        AdvantageSpec(
            name="dr_grpo",
            entry_point="rlgym_llm_trainers.algorithms.advantages.groups:dr_grpo",
            description="reward minus the group's mean",
            needs_groups=True,
        ),
        AdvantageSpec(
            name="grpo_step",
            entry_point="rlgym_llm_trainers.algorithms.advantages.steps:grpo_step",
            description="GRPO over the steps of process rewards",
            needs_groups=True,
        ),
        AdvantageSpec(
            name="gdpo",
            entry_point="rlgym_llm_trainers.algorithms.advantages.gdpo:gdpo",
            description="GRPO by reward component, then the weighted sum",
            needs_groups=True,
        ),
        AdvantageSpec(
            name="rloo",
            entry_point="rlgym_llm_trainers.algorithms.advantages.groups:rloo",
            description="reward minus the mean of the other siblings",
            needs_groups=True,
        ),
        AdvantageSpec(
            name="opo",
            entry_point="rlgym_llm_trainers.algorithms.advantages.groups:opo",
            description="reward minus the length-weighted mean of the group",
            needs_groups=True,
        ),
        AdvantageSpec(
            name="gpg",
            entry_point="rlgym_llm_trainers.algorithms.advantages.groups:gpg",
            description="reward minus the group's mean, scaled by the share of groups that differ",
            needs_groups=True,
        ),
        AdvantageSpec(
            name="maxrl",
            entry_point="rlgym_llm_trainers.algorithms.advantages.groups:maxrl",
            description="reward minus the group's mean, over that mean",
            needs_groups=True,
        ),
        AdvantageSpec(
            name="reinforce_plus_plus",
            entry_point="rlgym_llm_trainers.algorithms.advantages.reinforce:reinforce_plus_plus",
            description="rewards from each token on, whitened over the batch",
        ),
        AdvantageSpec(
            name="reinforce_plus_plus_baseline",
            entry_point="rlgym_llm_trainers.algorithms.advantages.reinforce:reinforce_plus_plus_baseline",
            description="reward minus the group's mean, whitened over the batch",
            needs_groups=True,
        ),
        AdvantageSpec(
            name="remax",
            entry_point="rlgym_llm_trainers.algorithms.advantages.reinforce:remax",
            description="reward minus that of the greedy sibling",
            needs_baseline=True,
        ),
        AdvantageSpec(
            name="gae",
            entry_point="rlgym_llm_trainers.algorithms.advantages.gae:gae",
            description="generalised advantage estimation with a critic",
            needs_critic=True,
        ),
    ],
    Kind.POLICY_LOSS: [
        PolicyLossSpec(
            name="ppo_clip",
            entry_point="rlgym_llm_trainers.algorithms.losses.ppo_clip:ppo_clip_loss",
            description="PPO's clipped surrogate, with dual clip",
        ),
        PolicyLossSpec(
            name="gspo",
            entry_point="rlgym_llm_trainers.algorithms.losses.gspo:gspo_loss",
            description="the clipped surrogate, with one ratio for a whole sequence",
        ),
        PolicyLossSpec(
            name="gmpo",
            entry_point="rlgym_llm_trainers.algorithms.losses.gmpo:gmpo_loss",
            description="the geometric mean of a sequence's clipped ratios",
        ),
        PolicyLossSpec(
            name="cispo",
            entry_point="rlgym_llm_trainers.algorithms.losses.cispo:cispo_loss",
            description="REINFORCE with a clipped importance weight",
        ),
        PolicyLossSpec(
            name="sapo",
            entry_point="rlgym_llm_trainers.algorithms.losses.sapo:sapo_loss",
            description="a soft gate on the ratio in the place of the clip",
        ),
        PolicyLossSpec(
            name="gpg",
            entry_point="rlgym_llm_trainers.algorithms.losses.gpg:gpg_loss",
            description="the plain policy gradient, without ratio",
        ),
        PolicyLossSpec(
            name="dppo_tv",
            entry_point="rlgym_llm_trainers.algorithms.losses.dppo_tv:dppo_tv_loss",
            description="a bound on the difference of probabilities in the place of the clip",
        ),
    ],
}


@hookimpl
def rlgym_register(kind: Kind) -> list[Spec]:
    """The generators, advantage estimators, policy losses and commands of training."""
    return list(_SPECS.get(kind, []))
