"""Generation beside learning: the time of a step, and what is learned, with stale samples allowed.

    python benchmarks/overlap.py                        # both parts, on a quiet machine
    python benchmarks/overlap.py --parts time --steps 8
    python benchmarks/overlap.py --parts accuracy --steps 40 --seeds 3

Both sides are ``rlgym-train`` on the starter task with the generator of ``overlap_generator.py``,
which has weights of its own and a latency: ``rollout.max_staleness 0`` takes turns, ``1`` lets the
generator run a step ahead, its samples corrected by truncated importance sampling.

*time*: generation is made to take as long as learning. A first run without latency measures that,
with and without the scoring that stale samples need; the latency is the mean of both (``--latency``
gives it instead). Answers are short, so that sampling itself, which takes a core from the learner
here, is the smaller part of it. The runs of both sides take turns; the first two steps of each warm
up, and the last is left out, for nothing is sampled beside it.
*accuracy*: whole runs without latency, for each seed one of both sides; the greedy accuracy on the
validation problems after the last step must be within two standard errors of the difference.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from accuracies import accuracy_of, show_apart
from train_run import Row, train_run

WARM_UP = 2
MOST_OF_A_STEP = 0.75
SIDES = (0, 1)
"""Both values of ``rollout.max_staleness``."""
PLUGIN = Path(__file__).with_name("overlap_generator.py")


def main() -> int:
    """Runs the parts that were asked for; 1 where a target is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=["time", "accuracy"])
    parser.add_argument("--steps", type=int, help="of a run; default: 8 for time, 40 for accuracy")
    parser.add_argument("--rounds", type=int, default=2, help="of runs for time")
    parser.add_argument("--seeds", type=int, default=3, help="for accuracy")
    parser.add_argument("--tokens", type=int, default=24, help="of the longest answer, for time")
    parser.add_argument("--latency", type=float, help="seconds; default: as learning takes")
    parser.add_argument("--threads", type=int, default=1, help="of the learner's products")
    options, flags = parser.parse_known_args()
    flags += ["--trainer.num_threads", str(options.threads)]
    is_met = True
    for part in options.parts or ["time", "accuracy"]:
        run_part = compare_times if part == "time" else compare_accuracies
        is_met &= run_part(options, flags)
    return 0 if is_met else 1


def train(
    flags: Sequence[str], *, staleness: int, steps: int, latency_s: float = 0.0, seed: int = 0
) -> list[Row]:
    """The metrics of each step of one run."""
    return train_run(
        [
            *("--plugin", str(PLUGIN), "--rollout.name", "delayed"),
            *("--rollout.engine_kwargs.latency_s", str(latency_s)),
            *("--rollout.max_staleness", str(staleness), "--trainer.seed", str(seed)),
            *("--trainer.total_training_steps", str(steps), "--trainer.test_freq", str(steps)),
            *("--trainer.val_before_train", "false", *flags),
        ]
    )


def compare_times(options: argparse.Namespace, flags: list[str]) -> bool:
    """Prints what a step takes on both sides."""
    steps = (options.steps or 8) + WARM_UP
    flags = [*flags, "--data.val_max_samples", "1"]
    flags += ["--data.max_response_length", str(options.tokens)]
    latency_s = options.latency
    if latency_s is None:
        scored = [*flags, "--algorithm.rollout_correction.rollout_is", "token"]
        rows = train(scored, staleness=0, steps=steps)[WARM_UP:]
        latency_s = statistics.median(learning_of(row) for row in rows)
    found: dict[int, list[Row]] = {side: [] for side in SIDES}
    ratios = []
    for _ in range(options.rounds):
        medians = []
        for side in SIDES:
            rows = train(flags, staleness=side, steps=steps, latency_s=latency_s)[WARM_UP:]
            rows = rows[:-1]  # nothing is sampled beside the last one
            found[side] += rows
            medians.append(statistics.median(row["timing_s/step"] for row in rows))
            print(f"max_staleness {side}: {medians[-1]:.2f} s a step", file=sys.stderr, flush=True)
        ratios.append(medians[1] / medians[0])
    print(
        f"seconds of a step, medians of {len(found[0])} steps; a batch takes {latency_s:.2f} s "
        "at least\n"
    )
    print(f"{'':26} turns  overlap")
    for key in ("step", "gen", "reward", "old_log_prob", "adv", "update_actor"):
        both = [[row[f"timing_s/{key}"] for row in found[side]] for side in SIDES]
        print(f"timing_s/{key:16} {' '.join(f'{statistics.median(one):7.2f}' for one in both)}")
    evenness = statistics.median(row["timing_s/gen"] / learning_of(row) for row in found[0])
    print(f"\ngeneration / learning, in turns: {evenness:.2f}")
    ratio = statistics.median(ratios)
    each = ", ".join(f"{one:.2f}" for one in ratios)
    print(f"overlap / turns: {ratio:.2f} (rounds: {each}), at most {MOST_OF_A_STEP:g}")
    if ratio > MOST_OF_A_STEP:
        print(f"MISSED: a step takes {ratio:.2f} of the time, more than {MOST_OF_A_STEP:g}")
    return ratio <= MOST_OF_A_STEP


def learning_of(row: Row) -> float:
    """Seconds of a step without its sampling, the scoring counted half."""
    return row["timing_s/step"] - row["timing_s/gen"] - row["timing_s/old_log_prob"] / 2


def compare_accuracies(options: argparse.Namespace, flags: list[str]) -> bool:
    """Prints the last accuracy of both sides, seed by seed."""
    steps = options.steps or 40
    found: dict[int, list[float]] = {side: [] for side in SIDES}
    print(f"greedy accuracy after {steps} steps\n\nseed    turns  overlap", flush=True)
    for seed in range(options.seeds):
        for side in SIDES:
            last = train(flags, staleness=side, steps=steps, seed=seed)[-1]
            found[side].append(accuracy_of(last))
        print(f"{seed:4} {'  '.join(f'{found[side][-1]:7.3f}' for side in SIDES)}", flush=True)
    return show_apart({"turns": found[0], "overlap": found[1]})


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    sys.exit(main())
