"""The training loop: validate, step after step, validate, save.

What a step is, whatever the algorithm, stands in `step.py`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from rlgym_llm.errors import RlgymError
from rlgym_llm.rollout import stable_seed
from rlgym_llm_trainers.algorithms.kl_controller import (
    make_kl_controller,
)
from rlgym_llm_trainers.algorithms.metrics import finite
from rlgym_llm_trainers.models.policy import save_policy
from rlgym_llm_trainers.training.dumps import dump, show_sample
from rlgym_llm_trainers.training.failed_episodes import check_failures
from rlgym_llm_trainers.training.health.watch import Watch
from rlgym_llm_trainers.training.interrupt import catch_interrupt
from rlgym_llm_trainers.training.loggers import MetricLogger
from rlgym_llm_trainers.training.session import Session
from rlgym_llm_trainers.training.step import open_collector, train_step
from rlgym_llm_trainers.training.validate import Validation, validate

__all__ = ["TrainResult", "train"]

_NO_GROUP = (
    "no step had a group with two scored rollouts (rewards that do not apply, or "
    "on_truncated: mask)"
)
_NOT_FINITE = (
    "the gradient of every update was not finite, so all were skipped (too high a learning rate, "
    "or weights that overflow their dtype)"
)


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
    steps_done, had_gradient = 0, False
    kl_control = make_kl_controller(config.algorithm.kl_ctrl)
    total_steps = session.total_steps
    watch = Watch(config)
    view.start(total_steps)
    with catch_interrupt() as interrupt, closing(open_collector(session)) as collector:
        if session.val_tasks and (config.trainer.val_before_train or config.trainer.val_only):
            first = last = _validate(session, step=0)
            _log(session, loggers, 0, last.metrics)
        try:
            for step in range(1, total_steps + 1):
                if interrupt.is_set:
                    break
                metrics, kl_control = train_step(session, collector, step, kl_control)
                steps_done = step
                checkup = watch.observe(step, metrics)
                metrics |= checkup.metrics
                if session.val_tasks and _is_validation_step(
                    step, config.trainer.test_freq, total_steps
                ):
                    last = _validate(session, step=step)
                    metrics |= last.metrics
                _log(session, loggers, step, metrics)
                had_gradient |= "actor/grad_norm" in metrics
                for finding in checkup.news:
                    view.note(f"health, step {step}: {finding.line}")
                if checkup.fatal is not None:
                    raise RlgymError(f"health, step {step}: {checkup.fatal.line}")
            if steps_done and not session.learner.last_step:
                steps_done = 0  # nothing in the model is new
                raise RlgymError(
                    f"nothing was learned: {_NOT_FINITE if had_gradient else _NO_GROUP}"
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


def _save(session: Session, steps_done: int) -> bool:
    """Saves the model, where there is anything new to save."""
    if steps_done:
        session.view.phase("saving")
        save_policy(session.policy, session.run.model)
    return steps_done > 0


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


def _is_validation_step(step: int, test_freq: int, total_steps: int) -> bool:
    return step == total_steps or (test_freq > 0 and step % test_freq == 0)


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
    check_failures(
        validation.rollouts, step=step, max_error_rate=session.train_composer.config.max_error_rate
    )
    validation.metrics["timing_s/testing"] = time.perf_counter() - started
    for rollout, card in list(zip(validation.rollouts, validation.cards, strict=True))[
        : config.trainer.log_val_generations
    ]:
        session.view.note(show_sample(rollout, card, step))
    if config.trainer.validation_data_dir:
        dump(config.trainer.validation_data_dir, step, validation.rollouts, validation.cards)
    return validation
