"""When a run saves a checkpoint, what goes into it, and how it is put back into place."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from rlgym_llm.curriculum import TaskSampler
from rlgym_llm.errors import DataError, UserError, describe
from rlgym_llm_trainers.algorithms.kl_controller import KlController
from rlgym_llm_trainers.training.buffer import BufferState
from rlgym_llm_trainers.training.checkpoint import (
    PROGRESS,
    Learns,
    Progress,
    read_progress,
    save_checkpoint,
)
from rlgym_llm_trainers.training.checkpoints import Checkpoints
from rlgym_llm_trainers.training.collector import Collector, CollectorState
from rlgym_llm_trainers.training.past import read_rows
from rlgym_llm_trainers.training.random_state import load_random_state, random_state
from rlgym_llm_trainers.training.session import Session
from rlgym_llm_trainers.training.task_order import tasks_mark

__all__ = ["Saver", "check_checkpoint", "seconds_left"]

_ENDS = (
    "MLP_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP",
    "SAGEMAKER_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP",
)
"""Where two clusters say, in seconds since 1970, when they take the machine back."""
_SAVING_S = 60.0
"""What a save is thought to take until one has been measured that took longer."""


class Saver:
    """Saves the checkpoints of one run; with ``trainer.save_freq`` -1 none.

    After every step `mark` remembers how far the run is, so that a checkpoint is of a whole step
    even where an error ends the next one in its middle.
    """

    def __init__(self, session: Session, collector: Collector) -> None:
        self._session = session
        self._collector = collector
        self._checkpoints = Checkpoints(session.run.checkpoints)
        self._learners: dict[str, Learns] = {"actor": session.learner}
        if session.critic is not None:
            self._learners["critic"] = session.critic
        self._progress: Progress | None = None
        self._updates: tuple[int, ...] = ()
        self.saved_step = 0
        """Of the newest checkpoint of this run; 0 before the first."""
        self._longest_step_s = 0.0
        self._longest_save_s = _SAVING_S
        self._last_save_s: float | None = None

    @property
    def is_on(self) -> bool:
        """Whether the run saves checkpoints."""
        return self._session.config.trainer.save_freq > 0

    def restore(self, folder: Path, *, takes_groups: bool = True) -> Progress:
        """Puts all of the run where the checkpoint has it; the generator has the weights first.

        Without ``takes_groups`` the groups that waited for the learner are left there. What the
        checkpoint of another run has not, or has of other tasks, begins anew, and a note says so.
        Raises DataError for a checkpoint of another model.
        """
        session = self._session
        progress = read_progress(folder)
        is_own = folder.parent == self._checkpoints.path
        session.view.phase("loading the checkpoint")
        if session.sampler is not None:  # else the run only validates
            change = _change_of_tasks(progress, self._tasks)
            if change is not None:
                session.view.note(f"other training tasks than in the checkpoint ({change})")
                takes_groups = False
            self._load_sampler(session.sampler, progress, folder, is_own=is_own)
        for name, learner in self._learners.items():
            if (folder / name).is_dir():
                learner.load(folder / name)
            else:
                session.view.note(f"{folder} holds no {name}, which begins as in a new run")
        session.generator.sync(progress.policy_version)
        if session.sampler is not None:
            num_taken = progress.step * session.config.data.train_batch_size
            begun = CollectorState(num_begun=progress.step, buffer=BufferState(num_taken=num_taken))
            self._collector.load(progress.collector if takes_groups else begun)
        load_random_state(progress.random, path=folder / PROGRESS)
        if is_own:
            self.saved_step = progress.step
        return progress

    def mark(self, step: int, kl_control: KlController, *, step_s: float) -> None:
        """Remembers how far the run is after a step, which took ``step_s`` seconds in all."""
        if not self.is_on:
            return
        session = self._session
        assert session.sampler is not None, "a run that trains has tasks"
        self._longest_step_s = max(self._longest_step_s, step_s)
        self._updates = self._count_updates()
        self._progress = Progress(
            step=step,
            policy_version=session.generator.policy_version,
            kl_coef=kl_control.kl_coef,
            sampler=session.sampler.state(),
            random=random_state(),
            collector=self._collector.state(),
            tasks=self._tasks,
        )

    def save_if_due(self) -> None:
        """Saves at the steps that are asked for, and before a cluster takes the machine back."""
        if self._progress is None:
            return
        trainer = self._session.config.trainer
        is_due = self._progress.step % trainer.save_freq == 0
        if is_due or self._is_time_short(trainer.esi_redundant_time):
            self.save()

    def save(self) -> None:
        """Saves the step that was marked last, where that is not done; else does nothing.

        Nothing either where an update has changed the weights since.
        """
        progress, session = self._progress, self._session
        if progress is None or progress.step == self.saved_step:
            return
        if self._updates != self._count_updates():
            return
        begun = time.perf_counter()
        session.view.phase("saving a checkpoint")
        save_checkpoint(
            self._checkpoints.folder(progress.step),
            progress,
            self._learners,
            metrics=session.run.metrics,
            config=session.run.config,
        )
        self.saved_step = progress.step
        if session.config.trainer.num_kept is not None:
            self._checkpoints.keep_last(session.config.trainer.num_kept)
        self._last_save_s = time.perf_counter() - begun
        self._longest_save_s = max(self._longest_save_s, self._last_save_s)

    def metrics(self) -> dict[str, float]:
        """``timing_s/save_checkpoint`` of a save since the last call; it stands in the next row."""
        seconds, self._last_save_s = self._last_save_s, None
        return {} if seconds is None else {"timing_s/save_checkpoint": seconds}

    @cached_property
    def _tasks(self) -> dict[str, Any]:
        return tasks_mark(self._session.train_tasks)

    def _load_sampler(
        self, sampler: TaskSampler, progress: Progress, folder: Path, *, is_own: bool
    ) -> None:
        try:
            sampler.load(progress.sampler)
        except UserError as error:
            if is_own:
                raise
            self._session.view.note(f"the curriculum begins anew: {error}")
        except (TypeError, ValueError, AttributeError) as error:
            fault = f"sampler: no state of a curriculum: {describe(error)}"
            raise DataError(fault, path=folder / PROGRESS) from error

    def _count_updates(self) -> tuple[int, ...]:
        return tuple(learner.updates_done for learner in self._learners.values())

    def _is_time_short(self, redundant_s: float) -> bool:
        left = seconds_left(os.environ, now=time.time())
        needed = self._longest_save_s + self._longest_step_s + redundant_s
        return left is not None and left <= needed


def check_checkpoint(session: Session, folder: Path, *, takes_groups: bool = True) -> None:
    """Reads all but the weights, before anything is changed.

    Raises DataError where that cannot be read or weights are missing, and UserError where the
    tasks are no longer those of the run's own checkpoint.
    """
    progress = read_progress(folder)
    read_rows(folder / session.run.metrics.name)
    is_own = folder.parent == session.run.checkpoints
    needed = ["actor", *(["critic"] if is_own and session.critic is not None else [])]
    for name in needed:
        if not (folder / name).is_dir():
            raise DataError(
                f"no such folder, so there are no weights of the {name}", path=folder / name
            )
    if session.sampler is None:
        return
    change = _change_of_tasks(progress, tasks_mark(session.train_tasks))
    if change is None and takes_groups:
        _check_groups(session, progress, folder / PROGRESS)
    if change is not None and is_own:
        raise UserError(
            f"the training tasks have changed since step {progress.step} ({change}); bring them "
            "back, or begin a new run with --trainer.resume_mode resume_path"
        )


def _check_groups(session: Session, progress: Progress, path: Path) -> None:
    """Raises DataError where a step would wait for groups that nobody samples."""
    state, config = progress.collector, session.config
    tasks = [offer.index for offer in state.buffer.offers]
    tasks += [index for indices in state.indices.values() for index in indices]
    if any(index >= len(session.train_tasks) for index in tasks):
        raise DataError("collector: holds groups of tasks that are not there", path=path)
    for step, places in state.buffer.missing.items():
        if any(place >= len(state.indices[step]) for place in places):
            raise DataError(f"collector: step {step} misses more groups than it has", path=path)
    if config.rollout.stale == "wait":
        for step in range(progress.step + 1, state.num_begun + 1):
            num_groups = sum(offer.step == step for offer in state.buffer.offers)
            num_groups += len(state.buffer.missing.get(step, ()))
            if num_groups < config.data.train_batch_size:
                raise DataError(f"collector: lacks groups of step {step}", path=path)


def _change_of_tasks(progress: Progress, now: Mapping[str, Any]) -> str | None:
    """How the training tasks, by their mark ``now``, differ from the checkpoint's; None if not."""
    before = progress.tasks
    if not before or before == now:
        return None
    if before.get("count") != now["count"]:
        return f"{before.get('count')} then, {now['count']} now"
    return f"{now['count']} of them, but not the same"


def seconds_left(environ: Mapping[str, str], *, now: float) -> float | None:
    """Seconds until the cluster takes the machine back, None where it does not say.

    >>> seconds_left({"MLP_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP": "1060"}, now=1000.0)
    60.0
    """
    for name in _ENDS:
        try:
            return float(environ[name]) - now
        except (KeyError, ValueError):
            continue
    return None
