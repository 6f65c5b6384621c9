"""The folder of one run: its place is checked before anything is computed."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rlgym_llm.errors import UserError

__all__ = ["RunFolder", "choose_run_folder", "give_up_run_folder", "make_run_folder"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFolder:
    """Where a run writes: ``config.yaml``, ``metrics.jsonl``, ``curve.png``, what it trained."""

    path: Path
    goes_on: bool = False
    """Whether an earlier start of the same run wrote there."""

    @property
    def config(self) -> Path:
        """The whole resolved configuration, ready for ``--config``."""
        return self.path / "config.yaml"

    @property
    def metrics(self) -> Path:
        """One JSON object a step."""
        return self.path / "metrics.jsonl"

    @property
    def model(self) -> Path:
        """The trained model as a Hugging Face folder."""
        return self.path / "model"

    @property
    def critic(self) -> Path:
        """The trained critic, where there is one: its model and, beside that, its value head."""
        return self.path / "critic"

    @property
    def checkpoints(self) -> Path:
        """What the run can go on from, one folder each."""
        return self.path / "checkpoints"

    @property
    def curve(self) -> Path:
        """The learning curve as a picture."""
        return self.path / "curve.png"


def choose_run_folder(output: str | None, *, name: str) -> RunFolder:
    """The run's folder, not yet made; with no ``output`` one under ``runs/`` with name and time.

    Raises UserError where the folder holds anything already: nothing is ever overwritten.
    """
    if output is None:
        stamp = f"{datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}"  # runs may start in one second
        safe_name = re.sub(r"[^\w.-]+", "-", name).strip("-") or "run"
        return RunFolder(path=_unused(Path("runs") / f"{safe_name}-{stamp}"))
    try:
        path = Path(output).expanduser()
        if path.is_dir() and any(path.iterdir()):
            raise UserError(f"--output {path}: the folder is in use; name a new or an empty one")
        if path.exists() and not path.is_dir():
            raise UserError(f"--output {path}: is a file; name a folder")
    except (OSError, RuntimeError) as error:  # no such home, a name too long, no permission
        raise UserError(f"--output {output}: cannot be used: {error}") from error
    return RunFolder(path=path)


def make_run_folder(run: RunFolder, config: str) -> None:
    """Makes the folder with its parents and writes ``config.yaml``, which marks it as taken.

    Raises UserError where that is not allowed, or where another run took the folder meanwhile; one
    that could not be written whole is not taken.
    """
    try:
        run.path.mkdir(parents=True, exist_ok=True)
        with run.config.open("x", encoding="utf-8") as file:
            try:
                file.write(config)
                file.flush()
            except OSError:
                run.config.unlink()
                raise
    except OSError as error:
        raise UserError(f"--output {run.path}: cannot be made: {error.strerror}") from error


def give_up_run_folder(run: RunFolder) -> None:
    """Undoes `make_run_folder` for a run that was refused; what else was written there stays."""
    for file in (run.config, run.metrics):
        file.unlink(missing_ok=True)
    with suppress(OSError):  # something else is in it
        run.path.rmdir()


def _unused(path: Path) -> Path:
    candidate, number = path, 2
    while candidate.exists():
        candidate = path.with_name(f"{path.name}-{number}")
        number += 1
    return candidate
