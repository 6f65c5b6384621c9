"""One training step, readable top to bottom: ask, score, compare, learn.

    tasks --collector--> rollouts --composer--> cards --estimator--> samples
      ^                                                              |
      +-- generator.sync(version + 1) <-- learner.update (mini-batches) <--+

Where the generator follows every update at once (``rollout.max_staleness`` 0), the old log-probs
are the generator's own. Otherwise the learner corrects for the policy that sampled.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from rlgym_llm.composition.metrics import scoring_metrics
from rlgym_llm.episodes.callers_thread import CallersThread
from rlgym_llm.errors import RlgymError
from rlgym_llm.rollout import run_groups, stable_seed
from rlgym_llm.scores import CardStatus, ScoreCard
from rlgym_llm.types import Rollout, RolloutGroup, Task
from rlgym_llm_trainers.algorithms.kl_controller import (
    KlController,
    mean_sequence_kl,
)
from rlgym_llm_trainers.algorithms.metrics import finalize, finite
from rlgym_llm_trainers.learner.credit import advantage_inputs, samples_to_train, with_advantages
from rlgym_llm_trainers.learner.off_policy import correct
from rlgym_llm_trainers.learner.reward_kl import kl_metrics, reward_kl
from rlgym_llm_trainers.training.clock import Clock
from rlgym_llm_trainers.training.collector import Collector
from rlgym_llm_trainers.training.dumps import dump
from rlgym_llm_trainers.training.failed_episodes import check_failures
from rlgym_llm_trainers.training.health.sample_rules import mask_metrics
from rlgym_llm_trainers.training.run_rewards import success
from rlgym_llm_trainers.training.session import Session
from rlgym_llm_trainers.training.staleness import staleness_metrics
from rlgym_llm_trainers.training.step_metrics import rollout_metrics
from rlgym_llm_trainers.training.task_order import epoch_of

__all__ = ["open_collector", "train_step"]


def train_step(
    session: Session, collector: Collector, step: int, kl_control: KlController
) -> tuple[dict[str, float | None], KlController]:
    """Samples one batch of groups, scores it, and learns from it.

    Returns the step's metrics, and the coefficient of the KL in the reward for the next one.
    """
    config, view, clock = session.config, session.view, Clock()
    assert session.sampler is not None, "a run that trains has tasks"

    view.phase("generating")
    version = session.generator.policy_version
    with clock("gen"):  # where sampling runs ahead of the learner, what is left to wait for
        collected = collector.collect(step, version=version)
    tasks = [group.task for group in collected.groups]
    rollouts = collected.rollouts

    view.phase("scoring")
    check_failures(rollouts, step=step, max_error_rate=session.train_composer.config.max_error_rate)
    with clock("reward"):
        cards = _score(session, step, rollouts)
    session.sampler.observe(step, collected.indices, _successes(session, tasks, cards))

    view.phase("learning")
    samples = samples_to_train(rollouts, cards, is_cut=config.rollout.is_cut)
    if session.learner.has_reference:
        with clock("ref"):
            samples = session.learner.add_reference(samples)
    with clock("old_log_prob"):
        samples, corrected = correct(
            session.learner,
            samples,
            config.algorithm.rollout_correction,
            max_staleness=config.rollout.max_staleness,
        )
    with clock("adv"):
        kl, penalty, next_control = None, {}, kl_control
        if config.algorithm.use_kl_in_reward and samples:
            kl, mask = reward_kl(samples, config.algorithm.kl_penalty)
            penalty = finalize(kl_metrics(kl, mask, kl_coef=kl_control.kl_coef))
            next_control = kl_control.after(mean_sequence_kl(kl, mask), num_sequences=len(samples))
        inputs = advantage_inputs(
            rollouts,
            cards,
            samples,
            session.train_composer.config.components,
            kl=kl,
            kl_coef=kl_control.kl_coef,
        )
        advantages = session.estimate_advantages(inputs)
        samples = with_advantages(samples, rollouts, advantages)
    with clock("update_actor"):
        learned = session.learner.update(samples, step=step, version=version) if samples else {}
    synced = session.generator.sync(version + 1)
    encode = functools.partial(session.policy.tokenizer.encode, add_special_tokens=False)

    metrics = finite(
        {
            **rollout_metrics(rollouts, cards, inputs, advantages, encode=encode),
            **scoring_metrics(cards),
            **session.sampler.metrics(),
            **collected.metrics,
            **staleness_metrics(rollouts, version),
            **mask_metrics(samples, rollouts),
            **penalty,
            **corrected,
            **learned,
            **synced,
            **clock.metrics(num_tokens=sum(sample.num_tokens for sample in samples)),
            "training/global_step": step,
            "training/epoch": epoch_of(
                step, num_tasks=len(session.train_tasks), batch_size=config.data.train_batch_size
            ),
        }
    )
    return metrics, next_control


def open_collector(session: Session) -> Collector:
    """Samples the groups of a step's tasks, ahead of the learner where that is allowed."""
    config = session.config

    def draw(step: int) -> Sequence[int]:
        assert session.sampler is not None, "a run that trains has tasks"
        return session.sampler.draw(step, config.data.train_batch_size)

    def sample(
        step: int,
        indices: Sequence[int],
        *,
        on_group: Callable[[int, RolloutGroup], None],
        caller: CallersThread,
    ) -> None:
        run_groups(
            [session.train_tasks[index] for index in indices],
            group_size=config.rollout.n,
            seed=stable_seed(config.trainer.seed, "train", step),
            make_env=session.train_envs,
            generator=session.generator,
            params=session.train_params,
            batching=session.batching,
            on_group=on_group,
            caller=caller,
            **session.limits,
        )

    return Collector(
        draw=draw,
        sample=sample,
        batch_size=config.data.train_batch_size,
        total_steps=session.total_steps,
        max_staleness=config.rollout.max_staleness,
        stale=config.rollout.stale,
    )


def _score(session: Session, step: int, rollouts: Sequence[Rollout]) -> list[ScoreCard]:
    """Scores the rollouts and dumps them, unscored too where a reward ends the run."""
    folder = session.config.trainer.rollout_data_dir
    cards: list[ScoreCard] | None = None
    try:
        cards = session.train_composer(rollouts, step=step)
    finally:
        if folder:
            dump(folder, step, rollouts, cards)
    failed = [card for card in cards if card.status is CardStatus.FAILED_REWARD]
    if failed and len(failed) == len(cards):
        raise RlgymError(f"step {step}: not one of {len(cards)} scores worked: {failed[0].error}")
    return cards


def _successes(
    session: Session, tasks: Sequence[Task], cards: Sequence[ScoreCard]
) -> list[float | None]:
    """How each task of the step went, by all its siblings."""
    n, ranges = session.config.rollout.n, session.train_composer.ranges
    return [
        success(
            cards[place * n : (place + 1) * n],
            accuracy=session.accuracy.component(task),
            ranges=ranges,
        )
        for place, task in enumerate(tasks)
    ]
