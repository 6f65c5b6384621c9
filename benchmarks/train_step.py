"""Where the time of one optimizer step of the starter run goes (32 prompts x 8 samples).

    python benchmarks/train_step.py            # on a quiet machine, with all its cores

Prints the median seconds of each phase over the measured steps, after two that warm up.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

WARM_UP = 2


def main() -> None:
    """Runs the starter run for some steps, without validation, and reads its metrics."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=8, help="steps that are measured")
    arguments, flags = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / "run"
        command = [
            *(sys.executable, "-m", "rlgym_llm_trainers.cli", "--output", str(output)),
            *("--trainer.total_training_steps", str(WARM_UP + arguments.steps)),
            *("--trainer.val_before_train", "false", "--trainer.test_freq", "1000", *flags),
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        lines = (output / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines][WARM_UP:]
    for key in sorted(rows[0]):
        if key.startswith(("timing_s/", "perf/throughput", "response_length/mean")):
            values = [row[key] for row in rows if key in row]
            print(f"{key:40} {statistics.median(values):10.3f}")


if __name__ == "__main__":
    main()
