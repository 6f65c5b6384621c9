"""Whole runs over two ranks beside runs of one: do they learn the same?

    python benchmarks/ranks.py                          # three seeds of GRPO and of PPO
    python benchmarks/ranks.py --runs grpo --seeds 1

Each is ``rlgym-train`` on the starter task; *ppo* with ``examples/ppo.yaml``. Two ranks add up
their gradients in another order, so two runs drift apart by rounding, as two seeds do: their greedy
accuracies after the last step must be within two standard errors of each other.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from accuracies import accuracy_of, show_apart
from train_run import train_run

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
                rows = train_run([*RUNS[kind], *flags, "--seed", str(seed)], ranks=ranks)
                before, after = accuracy_of(rows[0]), accuracy_of(rows[-1])
                accuracies.append(after)
                cells.append(f"{before:.3f} -> {after:.3f}")
            print(f"{seed:4}  {'  '.join(cells)}", flush=True)
        is_met &= show_apart(found)
        print()
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
