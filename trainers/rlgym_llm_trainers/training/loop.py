"""The training loop: validate, step after step, validate, save.

What a step is, whatever the algorithm, stands in `step.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rlgym_llm.errors import RlgymError
from rlgym_llm.rollout import stable_seed
from rlgym_llm_trainers.algorithms.kl_controller import make_kl_controller
from rlgym_llm_trainers.algorithms.metrics import finite
from rlgym_llm_trainers.models.policy import save_policy
from rlgym_llm_trainers.training.collecting import open_collector
from rlgym_llm_trainers.training.dumps import dump, show_sample
from rlgym_llm_trainers.training.failed_episodes import check_failures
from rlgym_llm_trainers.training.health.watch import Watch
from rlgym_llm_trainers.training.interrupt import StepInterruptedError, catch_interrupt
from rlgym_llm_trainers.training.loggers import MetricLogger
from rlgym_llm_trainers.training.past import Past, restore_past
from rlgym_llm_trainers.training.saver import Saver
from rlgym_llm_trainers.training.session import Session
from rlgym_llm_trainers.training.step import train_step
from rlgym_llm_trainers.training.validate import Validation, validate

__all__ = ["TrainResult", "train"]

_NO_GROUP = (
    "no step had a scored rollout, or two in a group where siblings are compared (rewards that do "
    "not apply, or on_truncated: mask)"
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


def train(
    session: Session,
    loggers: Sequence[MetricLogger],
    checkpoint: Path | None = None,
    *,
    takes_groups: bool = True,
) -> TrainResult:
    """Validates, trains for the planned steps, validates, and saves the model.

    With a ``checkpoint`` it goes on from there, as if it had never ended: weights and metrics are
    the same to the bit where the generator's are (``takes_groups``: see `Saver.restore`). The first
    Ctrl-C ends the run after the step that is under way, model saved; a second one stops at once.
    """
    config, view = session.config, session.view
    total_steps = session.total_steps
    view.start(total_steps)
    with catch_interrupt() as interrupt, closing(open_collector(session, interrupt)) as collector:
        saver, watch = Saver(session, collector), Watch(config)
        past = Past(step=0, kl_control=make_kl_controller(config.algorithm.kl_ctrl))
        if checkpoint is not None:
            progress = saver.restore(checkpoint, takes_groups=takes_groups)
            past = restore_past(progress, config, session.run.metrics, watch)
            if past.step == total_steps:
                view.note(f"all {total_steps} steps are done; more: --trainer.total_training_steps")
        first, last, kl_control = past.first, past.last, past.kl_control
        steps_done, had_update = past.step, past.had_update
        if session.val_tasks and (
            config.trainer.val_only or (config.trainer.val_before_train and not past.step)
        ):
            first = last = _validate(session, step=past.step)
            _log(session, loggers, past.step, last.metrics)
        try:
            for step in range(past.step + 1, total_steps + 1):
                if interrupt.is_set:
                    break
                begun = time.perf_counter()
                try:
                    metrics, kl_control = train_step(session, collector, step, kl_control)
                except StepInterruptedError:
                    break
                steps_done = step
                metrics |= saver.metrics()
                checkup = watch.observe(step, metrics)
                metrics |= checkup.metrics
                try:
                    if session.val_tasks and _is_validation_step(
                        step, config.trainer.test_freq, total_steps
                    ):
                        last = _validate(session, step=step)
                        metrics |= last.metrics
                finally:  # the step is whole, even where its validation fails
                    _log(session, loggers, step, metrics)
                    saver.mark(step, kl_control, step_s=time.perf_counter() - begun)
                had_update |= "actor/skipped_ratio" in metrics
                for finding in checkup.news:
                    view.note(f"health, step {step}: {finding.line}")
                if checkup.fatal is not None:
                    raise RlgymError(f"health, step {step}: {checkup.fatal.line}")
                saver.save_if_due()
            if steps_done > config.trainer.critic_warmup and not session.learner.last_step:
                steps_done = 0  # nothing in the model is new
                raise RlgymError(f"nothing was learned: {_NOT_FINITE if had_update else _NO_GROUP}")
            saver.save()
        except (Exception, SystemExit) as error:
            # What was learned before a judge died is worth keeping, whatever else went wrong.
            steps_done = max(steps_done, session.learner.last_step)  # it may have failed after it
            is_own = checkpoint is not None and checkpoint.parent == session.run.checkpoints
            if steps_done > (0 if is_own else past.step):  # else the model is another run's
                _save_in_spite_of(error, session, saver, steps_done)
            raise
        _save(session, steps_done)
        return TrainResult(
            steps_done=steps_done, was_interrupted=interrupt.is_set, first=first, last=last
        )


def _save_in_spite_of(
    error: BaseException, session: Session, saver: Saver, steps_done: int
) -> None:
    """Saves the last whole step and the models; where that fails too, both are told."""

    def attempt(save: Callable[[], object], done: str | None = None) -> None:
        try:
            save()
        except RlgymError as another:
            done = str(another)
        if done is not None:
            error.add_note(done)

    attempt(saver.save)
    if saver.is_on and saver.saved_step != steps_done:
        error.add_note(
            f"the newest checkpoint is of step {saver.saved_step}"
            if saver.saved_step
            else "no checkpoint was saved"
        )
    if session.learner.is_broken:
        error.add_note("the model is not saved")
    else:
        attempt(
            lambda: save_policy(session.policy, session.run.model),
            f"the model after {steps_done} steps is in {session.run.model}",
        )
    if (critic := session.critic) is not None and not critic.is_broken:
        attempt(lambda: critic.save_model(session.run.critic))


def _save(session: Session, steps_done: int) -> None:
    """Saves the model, where there is anything new to save."""
    if steps_done:
        session.view.phase("saving")
        save_policy(session.policy, session.run.model)
        if session.critic is not None:
            session.critic.save_model(session.run.critic)


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
