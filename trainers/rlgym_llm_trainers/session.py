"""Puts a run together from its configuration: model, environments, rewards, learner, view.

Everything that can be wrong with what the user gave is found here, before the first step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from rlgym_llm.batch_arithmetic import BatchPlan, plan_batches
from rlgym_llm.compose import RewardComposer
from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.env import TextEnv
from rlgym_llm.env_pool import EnvPool
from rlgym_llm.errors import ConfigError, DataError
from rlgym_llm.generate import Generator, SamplingParams
from rlgym_llm.plugins import Plugins
from rlgym_llm.specs import Kind
from rlgym_llm.tasks import TaskSource
from rlgym_llm.types import Task
from rlgym_llm_trainers.advantages import GroupAdvantages
from rlgym_llm_trainers.console import View
from rlgym_llm_trainers.environments import make_env
from rlgym_llm_trainers.learner import Learner
from rlgym_llm_trainers.model import (
    Policy,
    check_model_path,
    load_policy,
    make_reference,
    pick_device,
)
from rlgym_llm_trainers.run_folder import RunFolder
from rlgym_llm_trainers.starter import starter_model_path

__all__ = ["LocalGenerator", "Session", "open_session"]


class LocalGenerator(Generator, Protocol):
    """A generator over the learner's own weights, made as ``make(policy, max_num_seqs=256)``."""

    def set_policy_version(self, version: int) -> None:
        """Tells that the shared weights are now those of ``version``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """All that a training loop needs, made and checked."""

    config: TrainConfig
    plan: BatchPlan
    run: RunFolder
    view: View
    policy: Policy
    generator: LocalGenerator
    learner: Learner
    estimate_advantages: Callable[..., GroupAdvantages]
    train_tasks: TaskSource
    train_task_ids: tuple[int, ...]
    """Indices of the training tasks whose prompt fits ``data.max_prompt_length``."""
    val_tasks: tuple[Task, ...]
    """Empty where there is nothing to validate on."""
    train_envs: EnvPool
    val_envs: EnvPool
    train_composer: RewardComposer
    val_composer: RewardComposer
    accuracy: str | None
    """Name of the reward component that says whether an answer is right."""
    train_params: SamplingParams
    val_params: SamplingParams
    total_steps: int
    data_seed: int

    def close(self) -> None:
        """Lets go of rewards, environments and the generator."""
        self.train_composer.close()
        self.val_composer.close()
        self.train_envs.close()
        self.val_envs.close()
        self.generator.close()


def open_session(config: TrainConfig, *, plugins: Plugins, run: RunFolder, view: View) -> Session:
    """Makes the session. Raises UserError, in one line, for whatever cannot work."""
    model_path = config.model.path or starter_model_path()
    check_model_path(model_path)
    device = pick_device(config.trainer.device)
    train_env = make_env(config, plugins, role="train")
    val_env = _make_val_env(config, plugins, view)
    rewards = config.rewards or train_env.rewards
    train_composer = RewardComposer(rewards, plugins)
    val_composer = RewardComposer(rewards, plugins, evaluation=True)

    policy = load_policy(
        model_path,
        device=device,
        dtype=config.model.dtype,
        trust_remote_code=config.model.trust_remote_code,
        gradient_checkpointing=config.model.enable_gradient_checkpointing,
    )
    _check_room(config, policy)
    name = "hf" if config.rollout.name == "auto" else config.rollout.name
    make_generator = plugins.load(plugins.get(Kind.GENERATOR, name))
    generator = make_generator(policy, max_num_seqs=config.rollout.max_num_seqs)
    train_task_ids = _fitting(config, train_env.tasks, generator, view)
    plan = plan_batches(config, num_prompts=len(train_task_ids))
    val_tasks = _val_tasks(config, val_env)

    needs_reference = config.actor.use_kl_loss or config.algorithm.use_kl_in_reward
    learner = Learner(
        policy,
        config.actor,
        policy_loss=plugins.load(plugins.get(Kind.POLICY_LOSS, config.actor.policy_loss)),
        mini_batch_prompts=plan.mini_batch_prompts,
        micro_batch_size=plan.micro_batch_size,
        reference_batch_size=plan.reference_batch_size,
        num_updates=plan.num_updates or 0,
        temperature=config.rollout.temperature,
        max_response_length=config.data.max_response_length,
        seed=config.trainer.seed,
        reference=make_reference(policy) if needs_reference else None,
    )
    return Session(
        config=config,
        plan=plan,
        run=run,
        view=view,
        policy=policy,
        generator=generator,
        learner=learner,
        estimate_advantages=plugins.load(
            plugins.get(Kind.ADVANTAGE, config.algorithm.adv_estimator)
        ),
        train_tasks=train_env.tasks,
        train_task_ids=train_task_ids,
        val_tasks=val_tasks,
        train_envs=EnvPool(lambda: train_env),
        val_envs=EnvPool(lambda: val_env or train_env),
        train_composer=train_composer,
        val_composer=val_composer,
        accuracy=train_env.accuracy if train_env.accuracy in rewards.components else None,
        train_params=SamplingParams(
            max_new_tokens=config.data.max_response_length,
            temperature=config.rollout.temperature,
            top_p=config.rollout.top_p,
            top_k=config.rollout.top_k,
        ),
        val_params=_val_params(config),
        total_steps=plan.total_steps or 0,
        data_seed=config.trainer.seed if config.data.seed is None else config.data.seed,
    )


def _make_val_env(config: TrainConfig, plugins: Plugins, view: View) -> TextEnv | None:
    trainer = config.trainer
    if not (trainer.val_only or trainer.val_before_train or trainer.test_freq > 0):
        return None
    if config.data.train is not None and config.data.val is None:
        if trainer.val_only:
            raise ConfigError("--trainer.val_only needs --data.val, the file to validate on")
        view.note("no validation: --data.train is given without --data.val")
        return None
    return make_env(config, plugins, role="val")


def _val_tasks(config: TrainConfig, env: TextEnv | None) -> tuple[Task, ...]:
    if env is None:
        return ()
    wanted = config.data.val_max_samples
    num_tasks = len(env.tasks) if wanted is None else min(len(env.tasks), wanted)
    return tuple(env.tasks[index] for index in range(num_tasks))


def _fitting(
    config: TrainConfig, tasks: TaskSource, generator: LocalGenerator, view: View
) -> tuple[int, ...]:
    """Indices of the tasks whose prompts fit, or DataError where they may not be left out."""
    view.phase("reading tasks")
    longest = config.data.max_prompt_length
    kept = []
    for index in range(len(tasks)):
        num_tokens = len(generator.encode_prompt(tasks[index].prompt))
        if num_tokens <= longest:
            kept.append(index)
        elif not config.data.filter_overlong_prompts:
            raise DataError(
                f"training task {index} has a prompt of {num_tokens} tokens, more than "
                f"--data.max_prompt_length {longest}; raise it, or take "
                "--data.filter_overlong_prompts true"
            )
    if num_left_out := len(tasks) - len(kept):
        view.note(f"{num_left_out} training tasks left out: prompt over {longest} tokens")
    if not kept:
        raise DataError(f"no training task has a prompt of at most {longest} tokens")
    return tuple(kept)


def _check_room(config: TrainConfig, policy: Policy) -> None:
    needed = config.data.max_prompt_length + config.data.max_response_length
    if policy.max_positions is not None and needed > policy.max_positions:
        raise ConfigError(
            f"--data.max_prompt_length {config.data.max_prompt_length} and "
            f"--data.max_response_length {config.data.max_response_length} need {needed} "
            f"positions, but the model {policy.path} has {policy.max_positions}"
        )


def _val_params(config: TrainConfig) -> SamplingParams:
    wanted = config.rollout.val_kwargs
    return SamplingParams(
        max_new_tokens=config.data.max_response_length,
        temperature=wanted.temperature if wanted.do_sample else 0.0,
        top_p=wanted.top_p if wanted.do_sample else 1.0,
        top_k=wanted.top_k if wanted.do_sample else -1,
    )
