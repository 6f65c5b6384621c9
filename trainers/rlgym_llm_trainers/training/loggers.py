"""Where metrics go: a JSONL file always, TensorBoard and Weights & Biases on request."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from rlgym_llm.errors import UserError
from rlgym_llm.rows.writing import writing

__all__ = [
    "JsonlLogger",
    "MetricLogger",
    "TensorBoardLogger",
    "WandbLogger",
    "check_loggers",
    "open_loggers",
]


class MetricLogger(Protocol):
    """Takes the metrics of one step; NaN and infinity arrive as None."""

    def log(self, step: int, metrics: Mapping[str, float | None]) -> None:
        """Records the metrics of ``step``."""
        ...

    def close(self) -> None:
        """Writes out what is buffered."""
        ...


class JsonlLogger:
    """One JSON object a step, flushed at once: ``{"step": 3, "actor/pg_loss": -0.01, ...}``.

    A new file, or with ``goes_on`` the lines after those that are there.
    """

    def __init__(self, path: Path, *, goes_on: bool = False) -> None:
        self._path = path
        self._file = path.open("a" if goes_on else "x", encoding="utf-8")

    def log(self, step: int, metrics: Mapping[str, float | None]) -> None:
        """Appends the line of ``step``. Raises RlgymError, with the file, on a full disk."""
        line = {"step": step, **{key: metrics[key] for key in sorted(metrics)}}
        text = json.dumps(line, allow_nan=False) + "\n"
        with writing(self._path):
            self._file.write(text)
            self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        with suppress(OSError):  # `log` flushes, and has told what it could not write
            self._file.close()


class TensorBoardLogger:
    """Scalars for TensorBoard, in the run's folder; those after ``last_step`` count no more."""

    def __init__(self, folder: Path, *, last_step: int | None = None) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise _missing("tensorboard") from error
        purge_step = None if last_step is None else last_step + 1
        self._writer: Any = SummaryWriter(str(folder), purge_step=purge_step)

    def log(self, step: int, metrics: Mapping[str, float | None]) -> None:
        """Writes one scalar a metric."""
        for key, value in metrics.items():
            if value is not None:
                self._writer.add_scalar(key, value, step)

    def close(self) -> None:
        """Flushes and closes the event file."""
        self._writer.close()


class WandbLogger:
    """A Weights & Biases run; WANDB_MODE=offline keeps it on this machine."""

    def __init__(
        self, folder: Path, *, project: str, name: str | None, config: Mapping[str, Any]
    ) -> None:
        try:
            import wandb
        except ImportError as error:
            raise _missing("wandb") from error
        self._run: Any = wandb.init(
            project=project, name=name, dir=str(folder), config=dict(config)
        )

    def log(self, step: int, metrics: Mapping[str, float | None]) -> None:
        """Logs the metrics that have a value."""
        self._run.log({k: v for k, v in metrics.items() if v is not None}, step=step)

    def close(self) -> None:
        """Ends the run and waits for its upload."""
        self._run.finish()


def check_loggers(names: Sequence[str]) -> None:
    """Raises UserError where a named logger's package is not installed; imports none of them."""
    for package in ("tensorboard", "wandb"):
        if package in names and importlib.util.find_spec(package) is None:
            raise _missing(package)


def open_loggers(
    names: Sequence[str],
    *,
    metrics_path: Path,
    project: str,
    experiment: str | None,
    config: Mapping[str, Any],
    last_step: int | None = None,
) -> list[MetricLogger]:
    """The JSONL logger and those that ``names`` adds (``console`` is the console's affair).

    ``last_step`` is that of the checkpoint a run goes on from, -1 where it begins again in its own
    folder; Weights & Biases shows what follows as a run of its own. Raises UserError where a
    logger's package is not installed.
    """
    loggers: list[MetricLogger] = []
    folder = metrics_path.parent
    if "tensorboard" in names:
        loggers.append(TensorBoardLogger(folder / "tensorboard", last_step=last_step))
    if "wandb" in names:
        loggers.append(WandbLogger(folder, project=project, name=experiment, config=config))
    return [JsonlLogger(metrics_path, goes_on=last_step is not None), *loggers]


def _missing(package: str) -> UserError:
    return UserError(
        f"--trainer.logger {package}: the package is not installed; "
        "pip install 'rlgym-llm[tracking]'"
    )
