"""Whole runs over two ranks beside runs of one: do they learn the same?

    python benchmarks/ranks.py                          # three seeds of GRPO and of PPO
    python benchmarks/ranks.py --runs grpo --seeds 1

Each is ``rlgym-train`` on the starter task; *ppo* with ``examples/ppo.yaml``. Two ranks add up
their gradients in another order, so two runs drift apart by rounding, as two seeds do: their greedy
accuracies after the last step must be within two standard errors of each other.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from accuracies import accuracy_of, show_apart

EXAMPLES = Path(__file__).parents[1] / "examples"
RUNS = {"grpo": (), "ppo": ("--config", str(EXAMPLES / "ppo.yaml"))}
"""Kinds of run, and the flags that make each."""
RANKS = (1, 2)


def main() -> int:
    """Runs the kinds asked for, and prints how well each ends; 1 where a pair is too far apart."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", nargs="+", choices=tuple(RUNS), default=tuple(RUNS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="of each rank")
    options, flags = parser.parse_known_args()
    flags += ["--trainer.num_threads", str(options.threads)]
    is_met = True
    for kind in options.runs:
        found: dict[str, list[float]] = {f"{ranks} rank{'s' * (ranks > 1)}": [] for ranks in RANKS}
        print(f"{kind}: greedy accuracy before and after\n\nseed  {'  '.join(found)}", flush=True)
        for seed in range(options.seeds):
            cells = []
            for ranks, accuracies in zip(RANKS, found.values(), strict=True):
                before, after = train([*RUNS[kind], *flags], ranks=ranks, seed=seed)
                accuracies.append(after)
                cells.append(f"{before:.3f} -> {after:.3f}")
            print(f"{seed:4}  {'  '.join(cells)}", flush=True)
        is_met &= show_apart(found)
        print()
    return 0 if is_met else 1


def train(flags: list[str], *, ranks: int, seed: int) -> tuple[float, float]:
    """The accuracy before the first step of a run, and after its last one."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / "run"
        command = [
            *(sys.executable, *(launcher if ranks > 1 else ()), "-m", "rlgym_llm_trainers.cli"),
            *("--output", str(output), "--seed", str(seed), *flags),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{done.stdout[-2000:]}{done.stderr[-2000:]}\nthe run failed")
        rows = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    return accuracy_of(rows[0]), accuracy_of(rows[-1])


if __name__ == "__main__":
    sys.exit(main())
