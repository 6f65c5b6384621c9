"""One optimizer step on the same tokens: our learner beside a bare loop, in turns in one run.

    python benchmarks/learner.py --model SmolLM2-135M          # on a quiet machine
    python benchmarks/learner.py --rounds 2 --tokens 8         # the starter model, to try it

*bare*: a forward pass of the model over [B, T], logits of the response positions alone, cross
entropy, backward, AdamW as torch makes it. *ours*: `Learner.update` without a KL term, metrics and
clipping of the gradient included. Both float32, one micro-batch, no activation checkpointing.

*apart*: every sequence has a prompt of its own, so that both compute equally many tokens (*bare*
is measured here). *siblings*: groups of ``--group`` share a prompt. Each side is a process of its
own and waits without spinning while the other is at work. A ratio is the median of the rounds'
ratios; the last line has them all.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from dataclasses import dataclass

from learner_sides import SIDES, Workload, side_of
from rollout_sides import quiet_environment
from side import Side, serve


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """At most how many times the seconds of the bare loop, on equal tokens, ours may take."""

    name: str
    workload: str
    times: float


TARGETS = (
    Target(name="bare_ratio", workload="apart", times=1.1),
    Target(name="shared_ratio", workload="siblings", times=0.8),
)

Results = dict[tuple[str, str], list[dict[str, float]]]
"""(side, workload) -> seconds and peak memory in each round."""


def main() -> int:
    """Runs the sides in turns and prints seconds, memory and ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="Hugging Face folder; default: the starter model")
    parser.add_argument("--groups", type=int, default=2)
    parser.add_argument("--group", type=int, default=8, help="sequences of a group")
    parser.add_argument("--prompt-tokens", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=64, help="of each response")
    parser.add_argument("--rounds", type=int, default=3, help="after one that warms up")
    parser.add_argument("--threads", type=int, default=2, help="of each side")
    parser.add_argument("--serve", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(lambda: side_of(options.serve, options.model, workload_of(options)))
        return 0
    return show(run_rounds(options), options)


def workload_of(options: argparse.Namespace) -> Workload:
    """How many tokens each side trains on."""
    return Workload(
        num_groups=options.groups,
        group_size=options.group,
        prompt_tokens=options.prompt_tokens,
        response_tokens=options.tokens,
    )


def run_rounds(options: argparse.Namespace) -> Results:
    """Starts the processes and asks them in turns."""
    env = quiet_environment(options.threads)
    asked = [("bare", "apart"), ("ours", "apart"), ("ours", "siblings")]
    # Ours is in two processes: the peak of one kind says nothing of the other's.
    sides = {
        pair: Side(" ".join(pair), [__file__, "--serve", pair[0], *sys.argv[1:]], env=env)
        for pair in asked
    }
    results: Results = {pair: [] for pair in asked}
    try:
        for number in range(1 + options.rounds):
            for side, workload in asked:
                question = {"workload": workload, "seed": number}
                answer = sides[side, workload].ask(question)
                print(f"round {number}: {side} {workload} {answer}", file=sys.stderr)
                if number:
                    results[side, workload].append(answer)
    finally:
        for one in sides.values():
            one.close()
    return results


def show(results: Results, options: argparse.Namespace) -> int:
    """Prints the table and the ratios; 1 where a target is missed."""
    workload = workload_of(options)
    cores = len(os.sched_getaffinity(0))
    print(
        f"{workload.num_sequences} x {workload.num_tokens} tokens, {options.rounds} rounds, "
        f"{options.threads} threads a side, {cores} cores\n"
    )
    print(f"{'one step':20} {'seconds':>9} {'least':>9} {'most':>9} {'peak GiB':>9}")
    for (side, kind), rounds in results.items():
        seconds = [one["seconds"] for one in rounds]
        peak = max(one["peak_gib"] for one in rounds)
        print(
            f"{side + ', ' + kind:20} {statistics.median(seconds):9.2f} {min(seconds):9.2f} "
            f"{max(seconds):9.2f} {peak:9.2f}"
        )
    ratios = {
        target.name: statistics.median(
            ours["seconds"] / bare["seconds"]
            for ours, bare in zip(
                results["ours", target.workload], results["bare", "apart"], strict=True
            )
        )
        for target in TARGETS
    }
    print()
    missed = [target for target in TARGETS if ratios[target.name] > target.times]
    for target in missed:
        print(f"MISSED: {target.name} is {ratios[target.name]:.2f}, above {target.times:g}")
    print(" ".join(f"{name}={ratio:.3f}" for name, ratio in ratios.items()))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
