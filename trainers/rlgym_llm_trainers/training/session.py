"""Puts a run together from its configuration: model, environments, rewards, learner, view.

Everything that can be wrong with what the user gave is found here, before the first step.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlgym_llm.batch_arithmetic import plan_batches
from rlgym_llm.compose import RewardComposer
from rlgym_llm.composition.coverage import check_coverage
from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.curriculum import TaskSampler
from rlgym_llm.env_pool import EnvPool
from rlgym_llm.episodes.batching import Batching
from rlgym_llm.errors import ConfigError
from rlgym_llm.generate import SamplingParams
from rlgym_llm.plugins import Plugins
from rlgym_llm.rollout import EpisodeLimits
from rlgym_llm.types import Task
from rlgym_llm_trainers.algorithms.losses.binding import load_policy_loss
from rlgym_llm_trainers.generators.training_generator import TrainingGenerator
from rlgym_llm_trainers.generators.vllm_engine.arguments import check_kept_sets
from rlgym_llm_trainers.learner.critic import Critic
from rlgym_llm_trainers.learner.estimator import (
    Estimator,
    load_estimator,
    needs_baseline,
    needs_critic,
)
from rlgym_llm_trainers.learner.learner import Learner
from rlgym_llm_trainers.learner.ranks import ALONE, Ranks
from rlgym_llm_trainers.models.policy import Policy
from rlgym_llm_trainers.training.console import View
from rlgym_llm_trainers.training.environments import make_env
from rlgym_llm_trainers.training.follow import assemble
from rlgym_llm_trainers.training.preparation import (
    closed_on_error,
    episode_limits,
    find_model,
    fitting_tasks,
    open_model,
    training_params,
    turn_batching,
    validation_params,
    validation_tasks,
)
from rlgym_llm_trainers.training.run_critic import make_critic
from rlgym_llm_trainers.training.run_folder import RunFolder
from rlgym_llm_trainers.training.run_learner import check_learner, make_learner
from rlgym_llm_trainers.training.run_rewards import Accuracy, accuracy_of, check_scoring, rewards_of
from rlgym_llm_trainers.training.settings import (
    check_dump_folders,
    check_dump_places,
    check_settings,
)
from rlgym_llm_trainers.training.signal_filter import check_signal
from rlgym_llm_trainers.training.task_order import choose_sampler
from rlgym_llm_trainers.training.val_env import make_val_env

__all__ = ["Session", "open_session"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """All that a training loop needs, made and checked."""

    config: TrainConfig
    run: RunFolder
    view: View
    policy: Policy
    generator: TrainingGenerator
    learner: Learner
    critic: Critic | None
    """None where the advantages need none."""
    estimate_advantages: Estimator
    needs_baseline: bool
    """Whether the advantages are against the reward of a greedy sibling."""
    train_tasks: tuple[Task, ...]
    """Those whose prompt fits ``data.max_prompt_length``; empty where the run only validates."""
    sampler: TaskSampler | None
    """Draws the training tasks of a step; None where the run only validates."""
    val_tasks: tuple[Task, ...]
    """Empty where there is nothing to validate on."""
    train_envs: EnvPool
    val_envs: EnvPool
    train_composer: RewardComposer
    val_composer: RewardComposer
    accuracy: Accuracy
    """The reward component that says whether an answer is right."""
    train_params: SamplingParams
    val_params: SamplingParams
    limits: EpisodeLimits
    """Budgets of an episode, in training and in validation."""
    batching: Batching | None
    """How turns become batches for the generator."""
    total_steps: int

    @property
    def shares(self) -> frozenset[str]:
        """Names of the validation figures that are shares: scores from 0 to 1, and accuracy."""
        judges = {self.accuracy.component(task) for task in self.val_tasks}
        return frozenset(
            "acc" if name in judges else name.rpartition("/")[2]
            for name, bounds in self.val_composer.ranges.items()
            if tuple(bounds) == (0, 1)
        )

    def close(self) -> None:
        """Lets go of rewards, environments and the generator."""
        self.train_composer.close()
        self.val_composer.close()
        self.train_envs.close()
        self.val_envs.close()
        self.generator.close()


def open_session(
    config: TrainConfig, *, plugins: Plugins, run: RunFolder, view: View, ranks: Ranks = ALONE
) -> Session:
    """Makes the session. Raises UserError, in one line, for whatever cannot work.

    With several ``ranks`` this is the first, and the others are in `follow`.
    What costs little is checked first, so that a typing error does not wait for a model.
    """
    check_settings(config, plugins)
    policy_loss = load_policy_loss(config.actor, plugins)
    has_critic = needs_critic(config, plugins) and not config.trainer.val_only
    plan_batches(config, dp_size=ranks.world_size, has_critic=has_critic)
    if not run.goes_on:  # then the folders are this run's
        check_dump_folders(config.trainer)
    check_dump_places(config.trainer)
    source = find_model(config, plugins)
    if not source.generator.trains:
        raise ConfigError(
            f"--rollout.name {source.generator.name}: its weights cannot be renewed, so it is for "
            "evaluation only; train with hf or vllm"
        )
    check_learner(config, source, ranks)

    trains = not config.trainer.val_only
    if trains and source.generator.name == "vllm":
        check_kept_sets(config.rollout, source.device.type)
    train_env = make_env(config, plugins, role="train") if trains else None
    val_env = make_val_env(config, plugins, view.note)
    env = train_env or val_env
    assert env is not None, "a run trains or validates"
    rewards = rewards_of(config, env)
    train_composer = RewardComposer(rewards, plugins)
    estimate = load_estimator(config, rewards, plugins)
    greedy = needs_baseline(config, plugins)
    check_scoring(config, train_composer, needs_baseline=greedy)
    accuracy = accuracy_of(env, rewards, plugins)
    check_signal(config.algorithm.filter_groups, rewards, accuracy)
    val_composer = RewardComposer(rewards, plugins, evaluation=True)

    policy, generator = open_model(config, source)
    assert isinstance(policy, Policy), "what trains has weights"
    with closed_on_error(generator):
        _check_overlap(config, generator)
        view.phase("reading tasks")
        train_tasks: tuple[Task, ...] = ()
        sampler = None
        if train_env is not None:
            train_tasks = fitting_tasks(
                config, train_env.tasks, generator, view.note, env=train_env
            )
            seed = config.trainer.seed if config.data.seed is None else config.data.seed
            sampler = choose_sampler(config.data, train_env, train_tasks, seed=seed)
        val_tasks = validation_tasks(config, val_env, generator, view.note) if val_env else ()
        check_coverage(rewards, (*train_tasks, *val_tasks))
        plan = plan_batches(
            config,
            dp_size=ranks.world_size,
            num_prompts=len(train_tasks) if trains else None,
            has_critic=has_critic,
        )
        assemble(ranks, plan, config)
        critic = None
        if has_critic:
            critic = make_critic(
                config,
                policy,
                plan,
                plugins=plugins,
                model_path=source.path,
                ranks=ranks,
                note=view.note,
            )
        learner = make_learner(
            config, policy, plan, policy_loss=policy_loss, ranks=ranks, note=view.note
        )
    return Session(
        config=config,
        run=run,
        view=view,
        policy=policy,
        generator=generator,
        learner=learner,
        critic=critic,
        estimate_advantages=estimate,
        needs_baseline=greedy,
        train_tasks=train_tasks,
        sampler=sampler,
        val_tasks=val_tasks,
        train_envs=EnvPool(lambda: env),
        val_envs=EnvPool(lambda: val_env or env),
        train_composer=train_composer,
        val_composer=val_composer,
        accuracy=accuracy,
        train_params=training_params(config),
        val_params=validation_params(config),
        limits=episode_limits(config, policy),
        batching=turn_batching(config, generator),
        total_steps=(plan.total_steps or 0) if trains else 0,
    )


def _check_overlap(config: TrainConfig, generator: TrainingGenerator) -> None:
    if config.rollout.max_staleness and not generator.has_own_weights:
        raise ConfigError(
            f"--rollout.max_staleness {config.rollout.max_staleness}: this generator samples from "
            "the learner's own weights, so it cannot go on while they change; take "
            "--rollout.num_workers 1 or --rollout.name vllm"
        )
