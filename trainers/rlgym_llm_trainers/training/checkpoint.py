"""One checkpoint: all that the next step depends on, in a folder that is whole or not there.

    step_20/
      actor/, critic/      weights, optimizer, counts: safetensors, one file a rank
      progress.json        step, policy version, KL coefficient, curriculum, random states, buffer
      buffer.jsonl         rollouts that no learner has had, with their versions
      kept_sets.safetensors   what top-k and top-p left of them, where they cut
      metrics.jsonl        the run's metrics up to here
      config.yaml          its settings
      manifest.json        written last: the step, and the size of every other file

Nothing in it is a pickle, so that reading one runs nothing.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pydantic import Field, ValidationError

from rlgym_llm.config_base import Natural, NonNegative, Section
from rlgym_llm.errors import DataError
from rlgym_llm_trainers.models.whole_folder import whole_folder
from rlgym_llm_trainers.training.collector import CollectorState
from rlgym_llm_trainers.training.stored_groups import load_collector_state, save_collector_state

__all__ = [
    "FORMAT",
    "PROGRESS",
    "Learns",
    "Progress",
    "is_whole",
    "read_progress",
    "save_checkpoint",
]

FORMAT = 1
"""Version of the layout; one that this version does not know is refused."""
_MANIFEST = "manifest.json"
PROGRESS = "progress.json"
"""The file of all that is neither weights nor rollouts."""


class Learns(Protocol):
    """What has weights and an optimizer to keep: a learner, a critic."""

    @property
    def updates_done(self) -> int:
        """Updates so far, skipped ones too."""
        ...

    def save(self, folder: str | Path) -> None:
        """Writes all that it learns with into a new folder, from all ranks."""
        ...

    def load(self, folder: str | Path) -> None:
        """Goes on from such a folder. Raises DataError where it is of another model."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run is after a step, beside its weights; as plain data."""

    step: int
    policy_version: int
    """The version that the generator sampled from last; what comes next counts on from it."""
    kl_coef: float
    """Coefficient of the KL in the reward, which a controller may have moved."""
    sampler: Mapping[str, Any]
    """State of what draws the tasks."""
    random: Mapping[str, Any]
    """States of the common random generators."""
    collector: CollectorState
    tasks: Mapping[str, Any] = field(default_factory=dict)
    """What tells the training tasks from others: see `task_order.tasks_mark`."""


class _Stored(Section):
    """`Progress` as its file has it."""

    format: int
    step: Natural
    policy_version: Natural
    kl_coef: NonNegative
    sampler: dict[str, Any]
    random: dict[str, Any]
    tasks: dict[str, Any] = Field(default_factory=dict)
    collector: dict[str, Any]


def save_checkpoint(
    folder: Path,
    progress: Progress,
    learners: Mapping[str, Learns],
    *,
    metrics: Path,
    config: Path,
) -> None:
    """Writes ``folder`` whole or not at all, with each of ``learners`` in the folder of its name.

    Raises RlgymError where it cannot be written; what is there then stays.
    """
    with whole_folder(folder, what="a checkpoint") as partial:
        for name, learner in learners.items():
            learner.save(partial / name)
        _write_json(
            partial / PROGRESS,
            {
                "format": FORMAT,
                "step": progress.step,
                "policy_version": progress.policy_version,
                "kl_coef": progress.kl_coef,
                "sampler": progress.sampler,
                "random": progress.random,
                "tasks": progress.tasks,
                "collector": save_collector_state(progress.collector, partial),
            },
        )
        for file in (metrics, config):
            shutil.copyfile(file, partial / file.name)
        for path in sorted(partial.iterdir()):  # the files of a learner are its own affair
            _to_disk(path)
        sizes = {
            str(path.relative_to(partial)): path.stat().st_size
            for path in sorted(partial.rglob("*"))
            if path.is_file()
        }
        _write_json(partial / _MANIFEST, {"format": FORMAT, "step": progress.step, "files": sizes})
        _to_disk(partial / _MANIFEST)
        _to_disk(partial)
    _to_disk(folder.parent)


def is_whole(folder: Path) -> bool:
    """Whether a checkpoint's folder holds all that was written for its step, by its manifest."""
    try:
        manifest = json.loads((folder / _MANIFEST).read_bytes())
        if manifest["format"] != FORMAT or folder.name != f"step_{manifest['step']}":
            return False
        sizes = manifest["files"].items()
        return all((folder / name).stat().st_size == size for name, size in sizes)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def read_progress(folder: Path) -> Progress:
    """What a whole checkpoint holds beside weights. Raises DataError for one of no known kind."""
    path = folder / PROGRESS
    try:
        data = json.loads(path.read_bytes())
        if data["format"] != FORMAT:
            raise DataError(
                f"a checkpoint of format {data['format']}; this version reads {FORMAT}", path=path
            )
        stored = _Stored.model_validate(data)
        if folder.name != f"step_{stored.step}":
            raise DataError(f"is of step {stored.step}, in the folder {folder.name}", path=path)
        return Progress(
            step=stored.step,
            policy_version=stored.policy_version,
            kl_coef=stored.kl_coef,
            sampler=stored.sampler,
            random=stored.random,
            tasks=stored.tasks,
            collector=load_collector_state(stored.collector, folder),
        )
    except DataError:
        raise
    except ValidationError as error:
        first = error.errors()[0]
        fault = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise DataError(f"no progress of a run: {fault}", path=path) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, StopIteration) as error:
        raise DataError(f"no progress of a run: {error!r}", path=path) from error


def _write_json(path: Path, data: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(data, allow_nan=False), encoding="utf-8")


def _to_disk(path: Path) -> None:
    """Waits until a file, or what a folder lists, would outlive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
