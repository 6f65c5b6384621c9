"""What a run that goes on knows of its steps before: from its checkpoint and its metrics."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.errors import DataError
from rlgym_llm_trainers.algorithms.kl_controller import KlController, make_kl_controller
from rlgym_llm_trainers.training.checkpoint import Progress
from rlgym_llm_trainers.training.health.watch import Watch
from rlgym_llm_trainers.training.validate import Validation

__all__ = ["Past", "read_rows", "restore_past"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """The steps that are done."""

    step: int
    """The newest; 0 before the first."""
    kl_control: KlController
    had_update: bool = False
    first: Validation | None = None
    """Validation before the first step, its metrics alone, where there was one."""
    last: Validation | None = None
    """The newest one."""


def restore_past(progress: Progress, config: TrainConfig, metrics: Path, watch: Watch) -> Past:
    """The past from the rows of ``metrics.jsonl``, which end with the checkpoint's step.

    ``watch`` is shown them, and knows what it knew.
    """
    rows = read_rows(metrics)
    for row in rows:
        if row["step"]:  # 0 is a validation alone
            watch.observe(row["step"], {k: v for k, v in row.items() if k != "step"})
    is_adaptive = config.algorithm.kl_ctrl.type == "adaptive"
    return Past(
        step=progress.step,
        kl_control=make_kl_controller(
            config.algorithm.kl_ctrl, kl_coef=progress.kl_coef if is_adaptive else None
        ),
        had_update=any("actor/skipped_ratio" in row for row in rows),
        first=_validation(rows[:1]) if rows and not rows[0]["step"] else None,
        last=_validation(rows),
    )


def read_rows(metrics: Path) -> list[dict[str, Any]]:
    """The rows of ``metrics.jsonl``. Raises DataError, with the line, for what is none."""
    rows = []
    for number, line in enumerate(metrics.read_bytes().splitlines(), start=1):
        try:
            row = json.loads(line)
            is_row = isinstance(row["step"], int)
        except (ValueError, TypeError, LookupError):
            is_row = False
        if not is_row:
            raise DataError("no metrics of a step", path=metrics, line=number)
        rows.append(row)
    return rows


def _validation(rows: Sequence[Mapping[str, Any]]) -> Validation | None:
    """The newest of the rows that validated."""
    for row in reversed(rows):
        found = {name: value for name, value in row.items() if name.startswith("val-")}
        if found:
            return Validation(rollouts=(), cards=(), metrics=found)
    return None
