"""Collecting rollouts, readable top to bottom: what is missing is sampled, scored and saved.

    tasks x n --group_specs--> specs - stored --run_rounds--> groups (--composer--> cards)
                                        ^                                   |
                                        +--------- rollouts.jsonl <---------+

A seed belongs to a (task, sample), whatever is stored already; and where the generator takes
batches, a batch belongs to its place among all of them. So what was killed and goes on ends with
the rollouts of a run that was not.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial

from rlgym_llm.episodes.callers_thread import CallersThread
from rlgym_llm.episodes.runner import EpisodeRunner
from rlgym_llm.errors import RlgymError
from rlgym_llm.rollout import EpisodeSpec, stable_seed
from rlgym_llm.store import RolloutRecord, RolloutWriter
from rlgym_llm.types import Rollout, RolloutStatus
from rlgym_llm_trainers.commands.group_window import run_rounds
from rlgym_llm_trainers.commands.progress_bar import NoBar, open_bar
from rlgym_llm_trainers.commands.rollout_output import choose_output
from rlgym_llm_trainers.commands.rollout_settings import RolloutSettings
from rlgym_llm_trainers.commands.rollout_tally import RolloutTally
from rlgym_llm_trainers.commands.sampling_session import (
    SamplingPlan,
    SamplingSession,
    open_sampling,
)
from rlgym_llm_trainers.commands.stored_files import RolloutFiles
from rlgym_llm_trainers.commands.stored_run import (
    Outcome,
    note,
    planned_specs,
    resumable,
    stored_records,
)
from rlgym_llm_trainers.training.interrupt import Interrupt
from rlgym_llm_trainers.training.preparation import training_params

__all__ = ["run_rollout"]

_MOST_FAILED = 256
"""So many failed episodes, with none between them that was none, end the run: nothing works."""


def run_rollout(settings: RolloutSettings) -> Outcome:
    """Samples what is missing, saves every group as it is complete, and counts all that is there.

    The first Ctrl-C ends it after what is under way; a second one stops at once, and costs that.
    """
    config = settings.config
    output = choose_output(settings.output, name=config.env.id, is_scored=settings.is_scored)
    files = output.files
    session = open_sampling(_plan(settings), note)
    fixed = {"split": settings.split, **session.fixed}
    with closing(session), files.claimed(fixed):
        specs = planned_specs(
            files,
            session.tasks,
            num_samples=settings.group_size,
            seed=stable_seed(config.trainer.seed, "rollout", settings.split),
            retry_errors=settings.retry_errors,
        )
        goes_on = f"{files.rollouts} holds the rollouts before, and goes on"
        with resumable("ending after what is under way", goes_on=goes_on) as interrupt:
            tally = _collect(settings, session, files, specs, interrupt)
        summary = {
            "env": fixed["env"]["id"],
            "model": fixed["model"]["path"],
            **tally.summary(num_wanted=len(specs), totals=files.totals()),
        }
        files.write_summary(summary)
        is_whole = tally.num_rollouts == len(specs)
        saved_in = output.convert() if is_whole else files.rollouts
    if not is_whole:
        note(f"{tally.num_rollouts} of {len(specs)} rollouts are there; the same command goes on")
    return Outcome(
        saved_in=saved_in,
        summary=summary,
        num_failed=tally.num_failed,
        example=tally.example,
        was_interrupted=not is_whole,
    )


def _plan(settings: RolloutSettings) -> SamplingPlan:
    return SamplingPlan(
        config=settings.config,
        plugins=settings.plugins,
        split=settings.split,
        max_tasks=settings.max_tasks,
        num_samples=settings.group_size,
        params=training_params(settings.config),
        scores_for="training" if settings.is_scored else None,
        samples_flag="--rollout.n",
        split_flag="--split val: ",
        without_split="give --data.val, or --split train",
    )


def _collect(
    settings: RolloutSettings,
    session: SamplingSession,
    files: RolloutFiles,
    specs: Sequence[EpisodeSpec],
    interrupt: Interrupt,
) -> RolloutTally:
    """Samples the specs that are not stored yet; the counts of all that are there in the end."""
    with files.writer() as writer:
        tally, stored = RolloutTally(), set[str]()
        for record in stored_records(files, specs, owner="this command"):
            stored.add(record.rollout.id)
            tally.add(record)
        if len(stored) == len(specs):
            return tally
        size = settings.group_size
        groups = [specs[start : start + size] for start in range(0, len(specs), size)]
        rounds, most_groups = _rounds(settings, session, groups, stored)
        with open_bar("rollouts", len(specs)) as bar:
            bar.advance(len(stored))
            saver = _Saver(
                session, files, writer, tally, stored, bar, min(_MOST_FAILED, most_groups * size)
            )
            run_rounds(
                rounds,
                make_runner=partial(_runner, session),
                keep=saver.save,
                most_groups=most_groups,
                should_stop=lambda: interrupt.is_set,
            )
    return tally


def _rounds(
    settings: RolloutSettings,
    session: SamplingSession,
    groups: Sequence[Sequence[EpisodeSpec]],
    stored: set[str],
) -> tuple[Iterator[list[Sequence[EpisodeSpec]]], int]:
    """What is sampled, round by round, and how many groups at a time.

    A generator of batches gets as many whole groups as ``rollout.max_num_seqs`` allows, even where
    some of a batch is stored: other neighbours would round its matrix products otherwise. One that
    makes its own batches gets twice what it can sample at once, so that it never waits.
    """
    rollout = settings.config.rollout
    missing = [[spec for spec in group if spec.id not in stored] for group in groups]
    if session.batching is not None:
        most = max(1, rollout.max_num_seqs // settings.group_size)
        starts = [s for s in range(0, len(groups), most) if any(missing[s : s + most])]
        return (list(groups[s : s + most]) for s in starts), most
    needs_groups = session.composer is not None and session.composer.needs_groups
    left: list[Sequence[EpisodeSpec]] = [
        group if needs_groups else few
        for group, few in zip(groups, missing, strict=True)
        if few  # whole where siblings are compared with each other
    ]
    at_once = 2 * rollout.max_num_seqs * max(1, rollout.num_workers)
    return iter([left]), max(1, at_once // settings.group_size)


def _runner(session: SamplingSession, caller: CallersThread) -> EpisodeRunner:
    """Sampling in batches is done in the caller's thread, where the model was made."""
    return EpisodeRunner(
        make_env=session.envs,
        generator=session.generator,
        params=session.params,
        batching=session.batching,
        call_generator=None if session.batching is None else caller.do,
        **session.limits,
    )


class _Saver:
    """Scores complete groups, if that is asked for, and stores what is not stored yet."""

    def __init__(
        self,
        session: SamplingSession,
        files: RolloutFiles,
        writer: RolloutWriter,
        tally: RolloutTally,
        stored: set[str],
        bar: NoBar,
        most_failed: int,
    ) -> None:
        self._composer = session.composer
        self._files = files
        self._writer = writer
        self._tally = tally
        self._stored = stored
        self._bar = bar
        self._most_failed = most_failed
        self._num_failed = 0  # in a row
        self._num_tokens = 0
        self._started = self._last = time.perf_counter()

    def save(self, groups: Sequence[Sequence[Rollout]]) -> None:
        """Raises RlgymError where nothing but failures has come for a while."""
        rollouts = [rollout for group in groups for rollout in group]
        cards = self._composer(rollouts) if self._composer is not None else None
        new = [place for place, one in enumerate(rollouts) if one.id not in self._stored]
        self._writer.write(
            [rollouts[place] for place in new], [cards[place] for place in new] if cards else None
        )
        self._note_time(sum(rollout.num_tokens for rollout in rollouts))
        for place in new:
            self._stored.add(rollouts[place].id)
            card = cards[place] if cards else None
            self._tally.add(RolloutRecord(rollout=rollouts[place], card=card))
        self._bar.advance(len(new), self._shown())
        self._watch(rollouts)

    def _note_time(self, num_tokens: int) -> None:
        now = time.perf_counter()
        self._files.add_timing({"num_tokens": num_tokens, "seconds": now - self._last})
        self._last = now
        self._num_tokens += num_tokens

    def _shown(self) -> str:
        speed = self._num_tokens / (self._last - self._started)
        failed = f", {self._tally.num_failed:,} failed" if self._tally.num_failed else ""
        return f"{speed:,.0f} tokens/s{failed}"

    def _watch(self, rollouts: Sequence[Rollout]) -> None:
        for rollout in rollouts:
            self._num_failed += 1
            if rollout.status is RolloutStatus.OK:
                self._num_failed = 0
        if self._num_failed >= self._most_failed:
            raise RlgymError(
                f"not one of the last {self._num_failed} episodes came to its end, for example: "
                f"{rollouts[-1].error}; they are stored, --retry-errors samples them again"
            )
