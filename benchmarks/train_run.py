"""One run of ``rlgym-train`` in a folder that is thrown away, as the metrics of its steps."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

__all__ = ["Row", "train_run"]

Row = dict[str, float]
"""The metrics of one step."""


def train_run(flags: Sequence[str], *, ranks: int = 1) -> list[Row]:
    """The rows of a run with these flags. Raises SystemExit, with its last words, if it fails."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / "run"
        command = [
            *(sys.executable, *(launcher if ranks > 1 else ()), "-m", "rlgym_llm_trainers.cli"),
            *("--output", str(output), *flags),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{done.stdout[-2000:]}{done.stderr[-2000:]}\nthe run failed")
        lines = (output / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]
