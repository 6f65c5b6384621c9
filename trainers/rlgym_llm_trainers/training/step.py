"""One training step, readable top to bottom: ask, score, compare, learn.

    tasks --collector--> rollouts --composer--> cards --estimator--> samples
      ^                                                              |
      +-- generator.sync(version + 1) <-- learner.update (mini-batches) <--+

With a critic the samples get their values before the estimator sees them, and it learns from their
returns before the policy learns from their advantages.

Where the generator follows every update at once (``rollout.max_staleness`` 0) and all compute in
float32, the old log-probs are the generator's own. Otherwise the learner takes them anew, and
corrects for an older policy that sampled.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from rlgym_llm.composition.metrics import scoring_metrics
from rlgym_llm.rollout import stable_seed
from rlgym_llm.scores import ScoreCard
from rlgym_llm.types import Rollout
from rlgym_llm_trainers.algorithms.kl_controller import (
    KlController,
    mean_sequence_kl,
)
from rlgym_llm_trainers.algorithms.metrics import finalize, finite
from rlgym_llm_trainers.learner.credit import advantage_inputs, samples_to_train, with_advantages
from rlgym_llm_trainers.learner.filtration import filtrate
from rlgym_llm_trainers.learner.off_policy import correct
from rlgym_llm_trainers.learner.reward_kl import kl_metrics, reward_kl
from rlgym_llm_trainers.training.buffer import LeftOut
from rlgym_llm_trainers.training.clock import Clock
from rlgym_llm_trainers.training.collecting import success_of
from rlgym_llm_trainers.training.collector import Collected, Collector
from rlgym_llm_trainers.training.dumps import dump
from rlgym_llm_trainers.training.failed_episodes import check_failures, check_scores
from rlgym_llm_trainers.training.greedy_baselines import greedy_baselines
from rlgym_llm_trainers.training.health.sample_rules import mask_metrics
from rlgym_llm_trainers.training.run_critic import cut_off
from rlgym_llm_trainers.training.session import Session
from rlgym_llm_trainers.training.staleness import staleness_metrics
from rlgym_llm_trainers.training.step_metrics import rollout_metrics
from rlgym_llm_trainers.training.task_order import epoch_of

__all__ = ["train_step"]


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
    rollouts = collected.rollouts

    view.phase("scoring")
    with clock("reward"):
        cards = _score(session, step, collected)
        baselines: dict[str, float] | None = None
        of_greedy: dict[str, float] = {}
        if session.needs_baseline:
            baselines, of_greedy = greedy_baselines(
                collected.greedy, session.train_composer, step=step
            )
    _observe(session, step, collected, cards)

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
    bootstrap_values = None
    if session.critic is not None:
        with clock("values"):
            samples, bootstrap_values = session.critic.add_values(
                samples,
                cut_off=cut_off(rollouts, config, session.train_composer.config),
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
            bootstrap_values=bootstrap_values,
            baselines=baselines,
        )
        advantages = session.estimate_advantages(inputs)
        samples = with_advantages(samples, rollouts, advantages)
        filtered: dict[str, float] = {}
        if config.algorithm.use_pf_ppo:
            samples, filtered = filtrate(
                samples,
                {card.rollout_id: card.reward for card in cards if card.reward is not None},
                config.algorithm.pf_ppo,
                seed=stable_seed(config.trainer.seed, "pf_ppo", step),
            )
    learned: dict[str, float] = {}
    if session.critic is not None and samples:
        with clock("update_critic"):
            learned |= session.critic.update(samples, step=step)
    if step > config.trainer.critic_warmup and samples:
        with clock("update_actor"):
            learned |= session.learner.update(samples, step=step, version=version)
    synced = session.generator.sync(version + 1)
    encode = functools.partial(session.policy.tokenizer.encode, add_special_tokens=False)

    metrics = finite(
        {
            **rollout_metrics(rollouts, cards, inputs, advantages, encode=encode),
            **scoring_metrics(cards),
            **session.sampler.metrics(),
            **collected.metrics,
            **_summed(collected.left_out),
            **staleness_metrics(rollouts, version),
            **mask_metrics(samples, rollouts),
            **of_greedy,
            **filtered,
            **penalty,
            **corrected,
            **learned,
            **synced,
            **clock.metrics(
                num_tokens=sum(map(_num_tokens, rollouts)),
                num_ranks=session.learner.ranks.world_size,
            ),
            "training/global_step": step,
            "training/epoch": epoch_of(
                step, num_tasks=len(session.train_tasks), batch_size=config.data.train_batch_size
            ),
        }
    )
    return metrics, next_control


def _score(session: Session, step: int, collected: Collected) -> list[ScoreCard]:
    """Scores the rollouts, where that is to do, and dumps them, unscored too where it fails."""
    folder, rollouts = session.config.trainer.rollout_data_dir, collected.rollouts
    cards = None if collected.cards is None else list(collected.cards)
    if cards is None:
        check_failures(
            rollouts, step=step, max_error_rate=session.train_composer.config.max_error_rate
        )
    try:
        if cards is None:
            cards = session.train_composer(rollouts, step=step)
    finally:
        if folder:
            dump(folder, step, rollouts, cards)
    check_scores(cards, step=step)
    return cards


def _observe(session: Session, step: int, collected: Collected, cards: Sequence[ScoreCard]) -> None:
    """Tells the sampler how each task of the step went, those that were left out included."""
    assert session.sampler is not None, "a run that trains has tasks"
    n = session.config.rollout.n
    indices = list(collected.indices)
    successes = [
        success_of(session, group.task, cards[place * n : (place + 1) * n])
        for place, group in enumerate(collected.groups)
    ]
    for left_out in collected.left_out:
        indices += left_out.indices
        successes += left_out.successes
    session.sampler.observe(step, indices, successes)


def _summed(found: Sequence[LeftOut]) -> dict[str, float]:
    """The counts of several steps as one."""
    names = dict.fromkeys(name for one in found for name in one.metrics)
    return {name: sum(one.metrics[name] for one in found) for name in names}


def _num_tokens(rollout: Rollout) -> int:
    """Tokens that were read and sampled."""
    return sum(len(t.new_prompt_token_ids) + t.completion.num_tokens for t in rollout.turns)
