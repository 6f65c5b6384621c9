"""The GRPO loop (arXiv 2402.03300), readable top to bottom: ask, score, compare, learn.

    tasks --collector--> rollouts --composer--> cards --estimator--> samples
      ^                                                              |
      +-- generator.sync(version + 1) <-- learner.update (mini-batches) <--+

Where the generator follows every update at once (``rollout.max_staleness`` 0), the old log-probs
are the generator's own. Otherwise the learner corrects for the policy that sampled.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rlgym_llm.composition.metrics import scoring_metrics
from rlgym_llm.episodes.callers_thread import CallersThread
from rlgym_llm.errors import RlgymError
from rlgym_llm.rollout import run_groups, stable_seed
from rlgym_llm.scores import CardStatus, ScoreCard
from rlgym_llm.store import write_rollouts
from rlgym_llm.types import Rollout, RolloutGroup, RolloutStatus, Task
from rlgym_llm_trainers.algorithms.kl_controller import (
    KlController,
    make_kl_controller,
    mean_sequence_kl,
)
from rlgym_llm_trainers.algorithms.metrics import finalize, finite
from rlgym_llm_trainers.learner.credit import advantage_inputs, samples_to_train, with_advantages
from rlgym_llm_trainers.learner.off_policy import correct
from rlgym_llm_trainers.learner.reward_kl import kl_metrics, reward_kl
from rlgym_llm_trainers.models.policy import save_policy
from rlgym_llm_trainers.training.clock import Clock
from rlgym_llm_trainers.training.collector import Collector
from rlgym_llm_trainers.training.health.sample_rules import mask_metrics
from rlgym_llm_trainers.training.health.watch import Watch
from rlgym_llm_trainers.training.interrupt import catch_interrupt
from rlgym_llm_trainers.training.loggers import MetricLogger
from rlgym_llm_trainers.training.run_rewards import success
from rlgym_llm_trainers.training.session import Session
from rlgym_llm_trainers.training.staleness import staleness_metrics
from rlgym_llm_trainers.training.step_metrics import rollout_metrics
from rlgym_llm_trainers.training.task_order import epoch_of
from rlgym_llm_trainers.training.validate import Validation, validate

__all__ = ["TrainResult", "train"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """How a run ended."""

    steps_done: int
    was_interrupted: bool
    first: Validation | None
    """Validation before the first step, where there was one."""
    last: Validation | None
    """The newest validation."""


def train(session: Session, loggers: Sequence[MetricLogger]) -> TrainResult:
    """Validates, trains for the planned steps, validates, and saves the model.

    The first Ctrl-C ends the run after the step that is under way, model saved; a second one
    stops at once.
    """
    config, view = session.config, session.view
    first = last = None
    steps_done, has_learned = 0, False
    kl_control = make_kl_controller(config.algorithm.kl_ctrl)
    total_steps = session.total_steps
    watch = Watch(config)
    view.start(total_steps)
    with catch_interrupt() as interrupt, closing(_collector(session)) as collector:
        if session.val_tasks and (config.trainer.val_before_train or config.trainer.val_only):
            first = last = _validate(session, step=0)
            _log(session, loggers, 0, last.metrics)
        try:
            for step in range(1, total_steps + 1):
                if interrupt.is_set:
                    break
                metrics, kl_control = _train_step(session, collector, step, kl_control)
                steps_done = step
                checkup = watch.observe(step, metrics)
                metrics |= checkup.metrics
                if session.val_tasks and _is_validation_step(
                    step, config.trainer.test_freq, total_steps
                ):
                    last = _validate(session, step=step)
                    metrics |= last.metrics
                _log(session, loggers, step, metrics)
                has_learned |= "actor/grad_norm" in metrics
                for finding in checkup.news:
                    view.note(f"health, step {step}: {finding.line}")
                if checkup.fatal is not None:
                    raise RlgymError(f"health, step {step}: {checkup.fatal.line}")
            if steps_done and not has_learned:
                steps_done = 0  # nothing in the model is new
                raise RlgymError(
                    "nothing was learned: no step had a group with two scored rollouts "
                    "(rewards that do not apply, or on_truncated: mask)"
                )
        except (Exception, SystemExit) as error:
            # What was learned before a judge died is worth keeping, whatever else went wrong.
            steps_done = max(steps_done, session.learner.last_step)  # it may have failed after it
            if _save(session, steps_done):
                error.add_note(f"the model after {steps_done} steps is in {session.run.model}")
            raise
        _save(session, steps_done)
        return TrainResult(
            steps_done=steps_done, was_interrupted=interrupt.is_set, first=first, last=last
        )


def _train_step(
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
    _watch_failures(session, step, rollouts)
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


def _collector(session: Session) -> Collector:
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
            _dump(folder, step, rollouts, cards)
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


def _watch_failures(session: Session, step: int, rollouts: Sequence[Rollout]) -> None:
    """Ends a run whose episodes fail, by the measure that ends one whose rewards do."""
    failed = [rollout for rollout in rollouts if rollout.status is not RolloutStatus.OK]
    allowed = session.train_composer.config.max_error_rate
    if failed and (len(failed) > allowed * len(rollouts) or len(failed) == len(rollouts)):
        raise RlgymError(
            f"step {step}: {len(failed)} of {len(rollouts)} episodes failed, more than "
            f"max_error_rate {allowed:g} allows; for example: {failed[0].error}"
        )


def _save(session: Session, steps_done: int) -> bool:
    """Saves the model, where there is anything new to save."""
    if steps_done:
        session.view.phase("saving")
        save_policy(session.policy, session.run.model)
    return steps_done > 0


def _validate(session: Session, *, step: int) -> Validation:
    """Validates, shows some generations, and stores them where that was asked for."""
    config, started = session.config, time.perf_counter()
    session.view.phase("validating")
    validation = validate(
        session.val_tasks,
        make_env=session.val_envs,
        generator=session.generator,
        composer=session.val_composer,
        params=session.val_params,
        num_samples=config.rollout.val_kwargs.n,
        seed=stable_seed(config.trainer.seed, "val"),
        accuracy=session.accuracy,
        limits=session.limits,
        batching=session.batching,
        step=step,
    )
    _watch_failures(session, step, validation.rollouts)
    validation.metrics["timing_s/testing"] = time.perf_counter() - started
    for rollout, card in list(zip(validation.rollouts, validation.cards, strict=True))[
        : config.trainer.log_val_generations
    ]:
        session.view.note(_show_sample(rollout, card, step))
    if config.trainer.validation_data_dir:
        _dump(config.trainer.validation_data_dir, step, validation.rollouts, validation.cards)
    return validation


def _log(
    session: Session,
    loggers: Sequence[MetricLogger],
    step: int,
    metrics: dict[str, float] | dict[str, float | None],
) -> None:
    clean = finite(metrics)
    for logger in loggers:
        logger.log(step, clean)
    session.view.step(step, clean)


def _dump(
    folder: str, step: int, rollouts: Sequence[Rollout], cards: Sequence[ScoreCard] | None
) -> None:
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    write_rollouts(path / f"{step}.jsonl", rollouts, cards, step=step)


def _is_validation_step(step: int, test_freq: int, total_steps: int) -> bool:
    return step == total_steps or (test_freq > 0 and step % test_freq == 0)


def _show_sample(rollout: Rollout, card: ScoreCard, step: int) -> str:
    prompt = rollout.task.prompt
    question = prompt if isinstance(prompt, str) else prompt[-1].content
    reward = "unscored" if card.reward is None else f"{card.reward:.3g}"
    lines = [f"--- step {step}, reward {reward}, right answer {rollout.task.answer}", question]
    for turn in rollout.turns:
        lines.append("> " + turn.completion.text.replace("\n", "\n> "))
        lines += [f"[{message.role}] {message.content}" for message in turn.reply]
    return "\n".join(lines)
