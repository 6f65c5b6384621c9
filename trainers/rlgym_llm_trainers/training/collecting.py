"""The collector of a session: who samples, how tasks are drawn, and what is sampled again."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from rlgym_llm.scores import ScoreCard
from rlgym_llm.types import Rollout, Task
from rlgym_llm_trainers.training.collector import Collector, SampleGroups
from rlgym_llm_trainers.training.group_sampling import sample_groups
from rlgym_llm_trainers.training.interrupt import Interrupt
from rlgym_llm_trainers.training.run_rewards import success
from rlgym_llm_trainers.training.session import Session
from rlgym_llm_trainers.training.signal_filter import SignalFilter, signal_of

__all__ = ["open_collector", "success_of"]


def open_collector(session: Session, interrupt: Interrupt) -> Collector:
    """Samples the groups of a step's tasks, ahead of the learner where that is allowed.

    Once ``interrupt`` is set, no further tasks are drawn for a step that lacks groups with signal.
    """
    config = session.config
    is_filtered = config.algorithm.filter_groups.enable and session.sampler is not None
    signal = _signal_filter(session, interrupt) if is_filtered else None
    sample: SampleGroups = signal or functools.partial(sample_groups, session)

    def draw(step: int) -> Sequence[int]:
        assert session.sampler is not None, "a run that trains has tasks"
        if signal is not None:
            signal.begin(step)
        return session.sampler.draw(step, config.data.train_batch_size)

    return Collector(
        draw=draw,
        sample=sample,
        batch_size=config.data.train_batch_size,
        total_steps=session.total_steps,
        max_staleness=config.rollout.max_staleness,
        stale=config.rollout.stale,
    )


def success_of(session: Session, task: Task, cards: Sequence[ScoreCard]) -> float | None:
    """How a task went, by all its siblings; as `run_rewards.success`."""
    return success(
        cards, accuracy=session.accuracy.component(task), ranges=session.train_composer.ranges
    )


def _signal_filter(session: Session, interrupt: Interrupt) -> SignalFilter:
    assert session.sampler is not None, "a run that trains has tasks"
    wanted = session.config.algorithm.filter_groups

    def score(step: int, rollouts: Sequence[Rollout]) -> list[ScoreCard]:
        return session.train_composer(rollouts, step=step)

    return SignalFilter(
        sample=functools.partial(sample_groups, session),
        score=score,
        signal=signal_of(wanted.metric, session.accuracy),
        success=functools.partial(success_of, session),
        sampler=session.sampler,
        max_error_rate=session.train_composer.config.max_error_rate,
        note=session.view.note,
        max_draws=wanted.max_num_gen_batches,
        is_ending=lambda: interrupt.is_set,
    )
