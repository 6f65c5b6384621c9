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
            entry_point="rlgym_llm_trainers.eval_cli:main",
            description="sample a model on an environment: accuracy, pass@k, maj@k",
        ),
        CommandSpec(
            name="rollout",
            entry_point="rlgym_llm_trainers.rollout_cli:main",
            description="collect and store rollouts of a model, without training",
        ),
    ],
    Kind.GENERATOR: [
        GeneratorSpec(
            name="hf",
            entry_point="rlgym_llm_trainers.hf_generator:HFGenerator.from_config",
            description="transformers: the learner's own weights, or copies in processes",
            worker="rlgym_llm_trainers.ray_pool.hf_worker:HFWorker.from_spec",
        ),
        GeneratorSpec(
            name="vllm",
            entry_point="rlgym_llm_trainers.vllm_engine.generator:VLLMGenerator.from_config",
            description="vLLM, in this process or in processes of its own",
            worker="rlgym_llm_trainers.vllm_engine.worker:make_vllm_worker",
            check="rlgym_llm_trainers.vllm_engine.arguments:check_vllm",
        ),
        GeneratorSpec(
            name="openai",
            entry_point="rlgym_llm_trainers.openai_generator:OpenAIGenerator.from_config",
            description="an OpenAI-compatible server; evaluation only",
            trains=False,
        ),
    ],
    Kind.ADVANTAGE: [
        AdvantageSpec(
            name="grpo",
            entry_point="rlgym_llm_trainers.advantages:grpo_advantages",
            description="reward minus the group's mean, over its standard deviation",
        )
    ],
    Kind.POLICY_LOSS: [
        PolicyLossSpec(
            name="ppo_clip",
            entry_point="rlgym_llm_trainers.losses:ppo_clip_loss",
            description="PPO's clipped surrogate",
        )
    ],
}


@hookimpl
def rlgym_register(kind: Kind) -> list[Spec]:
    """The generators, advantage estimators, policy losses and commands of training."""
    return list(_SPECS.get(kind, []))
