"""A run of a command that samples into files, and goes on from what is stored there.

    tasks x n --planned_specs--> specs - stored_records --> sampling, `resumable` --> Outcome

A seed belongs to a (task, sample), whatever is stored already. So what was killed and goes on ends
with the rollouts of a run that was not.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlgym_llm.cli import FAILED, INTERRUPTED
from rlgym_llm.errors import DataError, RlgymError, UserError
from rlgym_llm.rollout import EpisodeSpec, group_specs
from rlgym_llm.store import RolloutRecord
from rlgym_llm.types import Task
from rlgym_llm_trainers.commands.stored_files import RolloutFiles
from rlgym_llm_trainers.training.interrupt import Interrupt, catch_interrupt

__all__ = ["Outcome", "note", "planned_specs", "resumable", "stored_records"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How the run ended."""

    saved_in: Path
    """What holds its rollouts: a folder, or a file."""
    summary: dict[str, Any]
    """What the file of the summary holds."""
    num_failed: int
    """Rollouts whose episode or one of whose rewards failed."""
    example: str | None = None
    """What the first of them says of its failure, where that is kept."""
    was_interrupted: bool

    @property
    def exit_code(self) -> int:
        """That of the command: 130 after Ctrl-C, 1 where something failed, else 0."""
        if self.was_interrupted:
            return INTERRUPTED
        return FAILED if self.num_failed else 0


def planned_specs(
    files: RolloutFiles, tasks: Sequence[Task], *, num_samples: int, seed: int, retry_errors: bool
) -> list[EpisodeSpec]:
    """What the run samples, stored or not, siblings side by side.

    With ``retry_errors`` what failed is not stored any more.
    """
    if retry_errors and (num_dropped := files.drop_failed()):
        note(f"{num_dropped} failed rollouts are sampled again")
    return group_specs(tasks, group_size=num_samples, seed=seed)


def stored_records(
    files: RolloutFiles, specs: Sequence[EpisodeSpec], *, owner: str
) -> Iterator[RolloutRecord]:
    """What is stored, one at a time; in the end it says aloud how many there were.

    Raises DataError for what is none of ``owner``'s (such as ``this evaluation``), or there twice.
    """
    wanted = {spec.id for spec in specs}
    stored: set[str] = set()
    for record in files.records():
        name = record.rollout.id
        if name not in wanted or name in stored:
            what = "is stored twice" if name in stored else f"is none of {owner}'s"
            raise DataError(f"rollout {name} {what}", path=files.rollouts)
        stored.add(name)
        yield record
    if stored:
        note(f"{len(stored)} of {len(specs)} rollouts are there already")


@contextmanager
def resumable(ending: str, *, goes_on: str) -> Iterator[Interrupt]:
    """Holds what samples: the first Ctrl-C says ``ending``, a failure adds ``goes_on``.

    A mistake of the user's adds nothing: the same command would not go on.
    """
    try:
        with catch_interrupt(ending) as interrupt:
            yield interrupt
    except RlgymError as error:
        if not isinstance(error, UserError):
            error.add_note(goes_on)
        raise


def note(text: str) -> None:
    """Says one thing on standard error."""
    print(text, file=sys.stderr, flush=True)
