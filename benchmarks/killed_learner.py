"""A run killed in every run: it goes on, and ends with the same bits as one that was left alone.

    python benchmarks/killed_learner.py                                      # GRPO on the starter
    python benchmarks/killed_learner.py --runs 6 --algorithm.adv_estimator gae

``rlgym-train`` with a checkpoint after every step is ended by ``kill -9`` and started again with
the same words, until it ends by itself. Every other kill comes inside a save, at a random moment
of it; the others come at a random moment between the first line of the run and its last. The final
weights and all rows of metrics, times left out, must be those of the undisturbed run. Other flags
go to ``rlgym-train``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FLAGS = {
    "--data.train_batch_size": "4",
    "--rollout.n": "4",
    "--data.val_max_samples": "8",
    "--trainer.test_freq": "2",
    "--trainer.num_threads": "1",
    "--trainer.save_freq": "1",
    "--actor.ppo_mini_batch_size": "2",
    "--actor.use_kl_loss": "true",
}
_LONGEST_SAVE_S = 0.1
_PATIENCE_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run leaves behind, without its times."""

    weights: str
    """SHA-256 of the model's weights, and of the critic's where there is one."""
    rows: tuple[dict[str, Any], ...]


def main() -> int:
    """Runs once undisturbed and ``--runs`` times killed, and prints a line for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--kills", type=int, default=1, help="of each run")
    parser.add_argument("--seed", type=int, default=0, help="draws the moments")
    options, flags = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        return compare(Path(folder), options, flags)


def compare(folder: Path, options: argparse.Namespace, flags: Sequence[str]) -> int:
    """The runs; returns 1 where one of them ended differently."""
    flags = [*flags, f"--trainer.total_training_steps={options.steps}"]
    draw = random.Random(options.seed)
    begun = time.monotonic()
    finish(start(folder / "calm", flags))
    whole_s = time.monotonic() - begun
    calm = outcome(folder / "calm")
    print(f"undisturbed: {options.steps} steps in {whole_s:.1f} s\n")
    print("run  killed in  after step  went on after  weights  metrics")
    num_wrong = 0
    for number in range(1, options.runs + 1):
        output = folder / f"run_{number}"
        for kill in range(options.kills):
            save = draw.randint(1, options.steps) if (number + kill) % 2 else None
            delay_s = draw.uniform(0, whole_s / 2 if save is None else _LONGEST_SAVE_S)
            process = start(output, flags)
            wait_for(output, process, save)
            time.sleep(delay_s)
            was_saving = any((output / "checkpoints").glob("*.partial"))
            process.send_signal(signal.SIGKILL)
            if process.wait() not in (0, -signal.SIGKILL):
                finish(process)
            num_rows = len(read_rows(output))
        said = finish(start(output, flags))
        went_on = next((line for line in said.splitlines() if "holds this run" in line), "")
        found = outcome(output)
        same = found.weights == calm.weights, found.rows == calm.rows
        num_wrong += not all(same)
        words = ["same" if one else "OTHERS" for one in same]
        print(
            f"{number:3}  {'a save' if was_saving else 'a step':9}  {num_rows - 1:10}  "
            f"{went_on.rpartition(' ')[2] or 'new':>13}  {words[0]:7}  {words[1]}",
            flush=True,
        )
    print(f"\n{options.runs - num_wrong} of {options.runs} ended with the same bits")
    return int(num_wrong > 0)


def start(output: Path, flags: Sequence[str]) -> subprocess.Popen[str]:
    """The run, in a process of its own; what it says is kept in a file beside its folder."""
    words = [word for pair in FLAGS.items() for word in pair]
    command = [sys.executable, "-m", "rlgym_llm_trainers.cli", "--output", str(output)]
    log = output.with_suffix(".log").open("w")
    return subprocess.Popen(
        [*command, *words, *flags],
        stdout=log,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=output.parent,
    )


def finish(process: subprocess.Popen[str]) -> str:
    """Waits for the end of a run and returns what it said; ends this program where it failed."""
    code = process.wait(_PATIENCE_S)
    assert isinstance(process.args, list)
    said = Path(str(process.args[4])).with_suffix(".log").read_text()
    if code:
        sys.exit(f"a run ended with {code}:\n{said}")
    return said


def outcome(output: Path) -> Outcome:
    """The weights and the metrics that are there."""
    digest = hashlib.sha256()
    for path in sorted(output.glob("*/*.safetensors")):
        digest.update(path.read_bytes())
    rows = tuple(
        {key: value for key, value in row.items() if not is_time(key)} for row in read_rows(output)
    )
    return Outcome(weights=digest.hexdigest(), rows=rows)


def is_time(key: str) -> bool:
    """Whether a metric is a time, or made of one."""
    return key.startswith(("timing_s/", "timing_per_token_ms/", "perf/")) or "idle_ratio" in key


def read_rows(output: Path) -> list[dict[str, Any]]:
    """The whole rows of the metrics; the last line may be torn."""
    path = output / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def wait_for(output: Path, process: subprocess.Popen[str], save: int | None) -> None:
    """Returns as the run begins its steps, or its ``save``-th save, or as it ends."""
    seen: set[Path] = set()
    end = time.monotonic() + _PATIENCE_S
    while process.poll() is None and time.monotonic() < end:
        seen.update((output / "checkpoints").glob("*.partial"))
        # A run makes that folder once all is loaded: what comes before is not its own work.
        if len(seen) >= save if save else (output / "checkpoints").exists():
            return
        time.sleep(0.001)


if __name__ == "__main__":
    sys.exit(main())
