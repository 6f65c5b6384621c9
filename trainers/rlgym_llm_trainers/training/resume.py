"""Where a run begins: in a new folder, or from a checkpoint of its own or of another run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rlgym_llm.config import load_config
from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.config_text import format_config
from rlgym_llm.differences import differences
from rlgym_llm.errors import UserError
from rlgym_llm.rows.writing import writing
from rlgym_llm_trainers.training.checkpoint import is_whole
from rlgym_llm_trainers.training.checkpoints import Checkpoints, step_of
from rlgym_llm_trainers.training.run_folder import (
    RunFolder,
    choose_run_folder,
    give_up_run_folder,
    make_run_folder,
)

__all__ = ["Start", "find_start", "taken"]

_HARMLESS = (
    "trainer.esi_redundant_time",
    "trainer.experiment_name",
    "trainer.health",
    "trainer.log_val_generations",
    "trainer.logger",
    "trainer.max_actor_ckpt_to_keep",
    "trainer.max_critic_ckpt_to_keep",
    "trainer.output",
    "trainer.project_name",
    "trainer.resume_from_path",
    "trainer.resume_mode",
    "trainer.save_freq",
    "trainer.test_freq",
    "trainer.total_epochs",
    "trainer.total_training_steps",
    "trainer.val_before_train",
)
"""Keys that may change while a run goes on: they do not change what a step learns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where a run writes, and what it goes on from."""

    run: RunFolder
    checkpoint: Path | None = None
    """None for a run that begins with the model as it is."""
    takes_groups: bool = True
    """Whether the groups that waited there are of this run's settings."""
    notes: tuple[str, ...] = ()
    """What to say about it."""

    @property
    def step(self) -> int:
        """The step of the checkpoint, 0 without one."""
        return (step_of(self.checkpoint) or 0) if self.checkpoint is not None else 0


def find_start(config: TrainConfig) -> Start:
    """Looks, and changes nothing; cheap, so that it comes before a model is loaded.

    Raises UserError where the folder is in use and no run to go on with, where the settings differ
    from those of that run, where none of its checkpoints is whole, and where
    ``trainer.resume_from_path`` is no whole checkpoint.
    """
    trainer = config.trainer
    if trainer.resume_mode != "disable" and (earlier := _earlier(trainer.output)) is not None:
        start = _own(config, earlier)
        if start is not None:
            return start
    run = choose_run_folder(trainer.output, name=trainer.experiment_name or config.env.id)
    source = _source(config)
    return Start(run=run) if source is None else _from_another(config, run, source)


@contextmanager
def taken(start: Start, config: TrainConfig, *, total_steps: int) -> Iterator[None]:
    """The run's folder, made or brought back to the checkpoint, and this run's alone inside.

    What later steps wrote is gone from ``metrics.jsonl`` and from the dumps. Raises UserError where
    another run has taken the folder, or still writes there, and where the checkpoint is of a step
    after the last of this run; nothing is changed then. A new folder is given up again where a
    UserError refuses the checkpoint that it begins from, of another model say, before any step.
    """
    run, checkpoints = start.run, Checkpoints(start.run.checkpoints)
    if start.step > total_steps and not config.trainer.val_only:
        raise UserError(
            f"{start.checkpoint} is of step {start.step}, and the run has {total_steps}; raise "
            "--trainer.total_training_steps"
        )
    with ExitStack() as stack:
        if not run.goes_on:
            make_run_folder(run, format_config(config))
        if run.goes_on or config.trainer.save_freq > 0:
            stack.enter_context(checkpoints.locked())
        if run.goes_on:
            is_own = start.checkpoint is not None and start.checkpoint.parent == checkpoints.path
            if (start.checkpoint if is_own else None) != _newest(checkpoints):
                raise UserError(f"--output {run.path}: another run wrote there just now; try again")
            checkpoints.remove_unfinished()
            stored = config if is_own else _begun_from(start.checkpoint, config)
            _replace(run.config, format_config(stored).encode())
            for folder in (config.trainer.rollout_data_dir, config.trainer.validation_data_dir):
                _forget_dumps(folder, after=start.step if start.checkpoint else -1)
        if start.checkpoint is not None:
            _replace(run.metrics, (start.checkpoint / run.metrics.name).read_bytes())
        elif run.goes_on:
            run.metrics.unlink(missing_ok=True)
        known = _size(run.metrics)
        try:
            yield
        except UserError:
            is_new = not run.goes_on and start.checkpoint is not None
            if is_new and _size(run.metrics) == known and not _holds_more(run):
                checkpoints.give_up()
                give_up_run_folder(run)
            raise


def _earlier(output: str | None) -> RunFolder | None:
    """The folder, where there seems to be a run in it."""
    if output is None:
        return None
    try:
        run = RunFolder(path=Path(output).expanduser(), goes_on=True)
        return run if run.config.is_file() else None
    except (OSError, RuntimeError):  # no folder at all: `choose_run_folder` says why
        return None


def _own(config: TrainConfig, run: RunFolder) -> Start | None:
    """The start of a run whose folder this is, None where it is no such folder."""
    checkpoints = Checkpoints(run.checkpoints)
    try:
        before = load_config(["--config", str(run.config)])
    except UserError as error:
        if not checkpoints.whole():
            return None
        raise UserError(
            f"--output {run.path}: its config.yaml cannot be read, so the run cannot go on "
            f"({error}); name a new folder"
        ) from error
    source, asked = _source(before), _source(config)
    if asked is not None and asked != source:  # a run that is to begin, in a folder in use
        return None
    newest, broken = _newest(checkpoints), checkpoints.broken()
    if newest is None and broken:
        raise UserError(
            f"--output {run.path}: holds a run, and none of its checkpoints is whole "
            f"({', '.join(path.name for path in broken)}); bring one back, or name a new folder"
        )
    if newest is None and before.trainer.save_freq == -1 and run.metrics.exists():
        raise UserError(
            f"--output {run.path}: the folder is in use: it holds a run without checkpoints "
            "(trainer.save_freq was -1), which cannot go on; name a new or an empty one"
        )
    if newest is None and (before.trainer.save_freq == -1 or _has_learned(run)):
        return None
    changes = _changes(before, config)
    if harmful := [change for change in changes if not _is_harmless(change)]:
        raise UserError(
            f"--output {run.path}: holds a run with other settings ({'; '.join(harmful)}); go on "
            "with its own, name a new folder, or begin one from its checkpoint with "
            "--trainer.resume_mode resume_path"
        )
    if newest is None and source is not None:
        return _from_another(config, run, source)
    begins = f"going on after step {step_of(newest)}" if newest else "beginning again"
    notes = [f"{run.path} holds this run: {begins}"]
    notes += [f"{path} is not whole and is left out" for path in broken]
    notes += [f"--{change}" for change in changes if not change.startswith(_OF_A_START)]
    return Start(run=run, checkpoint=newest, notes=tuple(notes))


_OF_A_START = ("trainer.output", "trainer.resume_")
_OF_WHAT_IS_TRAINED = ("model.lora_rank:", "model.target_modules")
"""What decides which parameters there are, beside the model itself."""


def _from_another(config: TrainConfig, run: RunFolder, checkpoint: Path) -> Start:
    if step_of(checkpoint) is None or not is_whole(checkpoint):
        is_there = os.path.exists(checkpoint)  # of a name that is too long it says False
        fault = "is no whole checkpoint" if is_there else "there is no such folder"
        raise UserError(f"--trainer.resume_from_path {checkpoint}: {fault}; {_instead(checkpoint)}")
    before = load_config(["--config", str(checkpoint / run.config.name)])
    changes = [c for c in _changes(before, config) if not c.startswith(_OF_A_START)]
    if others := [change for change in changes if change.startswith(_OF_WHAT_IS_TRAINED)]:
        raise UserError(
            f"--trainer.resume_from_path {checkpoint}: other parameters were trained there "
            f"({'; '.join(others)}); keep its settings"
        )
    notes = (f"going on after step {step_of(checkpoint)} of {checkpoint}",)
    return Start(
        run=run,
        checkpoint=checkpoint,
        takes_groups=all(map(_is_harmless, changes)),
        notes=(*notes, *(f"--{change}" for change in changes)),
    )


def _instead(folder: Path) -> str:
    """What to name in the place of a folder that is no checkpoint."""
    for place in (folder, folder.parent):
        with suppress(OSError):  # may not be read
            if whole := Checkpoints(place).whole():
                return f"in {place} these are whole: {', '.join(path.name for path in whole)}"
    return "name a folder such as runs/a/checkpoints/step_20"


def _source(config: TrainConfig) -> Path | None:
    """The checkpoint that a run is to begin from."""
    path = config.trainer.resume_from_path
    try:
        return None if path is None else Path(path).expanduser()
    except RuntimeError as error:
        raise UserError(f"--trainer.resume_from_path {path}: {error}") from error


def _begun_from(checkpoint: Path | None, config: TrainConfig) -> TrainConfig:
    """The settings with the checkpoint of another run, for a start after one more kill."""
    if checkpoint is None:
        return config
    source = {"resume_mode": "resume_path", "resume_from_path": str(checkpoint)}
    return config.model_copy(update={"trainer": config.trainer.model_copy(update=source)})


def _has_learned(run: RunFolder) -> bool:
    """Whether the folder holds a model that took at least a whole step."""
    if not run.model.exists():
        return False
    try:
        rows = [json.loads(line) for line in run.metrics.read_text("utf-8").splitlines()]
        return any(row["step"] for row in rows)
    except (OSError, ValueError, KeyError, TypeError):
        return True


def _newest(checkpoints: Checkpoints) -> Path | None:
    return next(reversed(checkpoints.whole()), None)


def _changes(before: TrainConfig, now: TrainConfig) -> list[str]:
    return differences(before.model_dump(mode="json"), now.model_dump(mode="json"))


def _is_harmless(change: str) -> bool:
    key = change.partition(":")[0]
    return any(key == one or key.startswith(f"{one}.") for one in _HARMLESS)


def _replace(path: Path, content: bytes) -> None:
    partial = path.with_name(path.name + ".partial")
    with writing(path):
        partial.write_bytes(content)
        os.replace(partial, path)


def _holds_more(run: RunFolder) -> bool:
    """Whether there is anything in the folder that its making and its start have not put there."""
    names = {path.name for path in run.path.iterdir()}
    return bool(names - {run.config.name, run.metrics.name, run.checkpoints.name})


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _forget_dumps(folder: str | None, *, after: int) -> None:
    """Removes the files of later steps, which will be written again."""
    for path in Path(folder).glob("*.jsonl") if folder else ():
        if path.stem.isdigit() and int(path.stem) > after:
            path.unlink()
