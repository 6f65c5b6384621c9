"""One optimizer step on the same tokens: our learner beside TRL's and a bare loop, in one run.

    python benchmarks/learner.py --model SmolLM2-135M          # on a quiet machine
    python benchmarks/learner.py --rounds 1 --tokens 8         # the starter model, to try it
    python benchmarks/learner.py --sides bare ours             # without TRL

*bare*: a forward pass of the model over [B, T], logits of the response positions alone, cross
entropy times advantage, backward, AdamW as torch makes it. *ours*: `Learner.update`, metrics and
clipping of the gradient included. *trl*: a step of ``GRPOTrainer`` but for generation, under an
interpreter of its own (``--peers`` says where that environment is or goes). *KL*: a KL term of
coefficient 0.04, the forward pass of the reference included. All float32, one micro-batch, no
activation checkpointing.

*apart*: every sequence has a prompt of its own, so that all compute equally many tokens.
*siblings*: groups of ``--group`` share a prompt. A process waits without spinning while others are
at work, and serves one workload of ours, for the peak of the other's memory would hide its own. A
ratio is the median of the rounds' ratios. All train the same weights with the same advantages, so
that gradient norm, loss and KL must agree; the round that warms up compares both workloads.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

from learner_sides import SIDES, Workload, side_of
from rollout_sides import quiet_environment
from shim_peers import make_environment
from side import Side, serve

TOLERANCE = 1e-4
"""Largest relative difference of figures that must agree, in float32."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One step of one side."""

    side: str
    workload: str
    has_kl: bool = False
    is_timed: bool = True
    """False where it is only there for others to agree with, in the round that warms up."""

    def __str__(self) -> str:
        return f"{self.side}, {self.workload}{', KL' if self.has_kl else ''}"

    @property
    def process(self) -> str:
        """The process that it is asked of."""
        return f"ours {self.workload}" if self.side == "ours" else self.side


BARE = Measure("bare", "apart")
BARE_SIBLINGS = Measure("bare", "siblings", is_timed=False)
TRL = Measure("trl", "siblings", has_kl=True)
TRL_APART = Measure("trl", "apart", has_kl=True, is_timed=False)
OURS = Measure("ours", "apart")
SHARED = Measure("ours", "siblings")
OURS_KL = Measure("ours", "apart", has_kl=True)
SHARED_KL = Measure("ours", "siblings", has_kl=True)
MEASURES = (BARE, BARE_SIBLINGS, OURS, SHARED, OURS_KL, SHARED_KL, TRL, TRL_APART)
AGREEING = ((OURS, BARE), (SHARED, BARE_SIBLINGS), (OURS_KL, TRL_APART), (SHARED_KL, TRL))


@dataclass(frozen=True, slots=True)
class Target:
    """At most how many times what another takes ours may take."""

    name: str
    ours: Measure
    than: Measure
    times: float
    of: str = "seconds"


TARGETS = (
    Target("unshared_ratio", OURS_KL, TRL, 0.7),
    Target("time_ratio", SHARED_KL, TRL, 0.5),
    Target("memory_ratio", SHARED_KL, TRL, 0.5, of="peak_gib"),
    Target("bare_ratio", OURS, BARE, 1.1),
    Target("shared_ratio", SHARED, BARE, 0.8),
)
LAST_LINE = ("time_ratio", "memory_ratio", "bare_ratio", "shared_ratio")

Round = dict[Measure, dict[str, float]]
"""What each was answered with."""


def main() -> int:
    """Runs the sides in turns and prints seconds, memory and ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="Hugging Face folder; default: the starter model")
    parser.add_argument("--groups", type=int, default=2)
    parser.add_argument("--group", type=int, default=8, help="sequences of a group, an even number")
    parser.add_argument("--prompt-tokens", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=64, help="of each response")
    parser.add_argument("--rounds", type=int, default=3, help="after one that warms up")
    parser.add_argument("--threads", type=int, default=2, help="of each side")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES)
    parser.add_argument(
        "--peers", type=Path, default=Path(".venv-peers"), help="where TRL is or goes"
    )
    parser.add_argument("--serve", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.group % 2:
        parser.error("--group: advantages of +1 and -1 in turn take an even number")
    if options.serve:
        serve(lambda: side_of(options.serve, options.model, workload_of(options)))
        return 0
    rounds = run_rounds(options)
    show(rounds[1:], options)
    agrees = show_agreement(rounds)
    return 0 if show_ratios(rounds[1:]) and agrees else 1


def workload_of(options: argparse.Namespace) -> Workload:
    """How many tokens each side trains on."""
    return Workload(
        num_groups=options.groups,
        group_size=options.group,
        prompt_tokens=options.prompt_tokens,
        response_tokens=options.tokens,
    )


def run_rounds(options: argparse.Namespace) -> list[Round]:
    """Starts the processes and asks them in turns; the first round warms up."""
    measures = [measure for measure in MEASURES if measure.side in options.sides]
    env = quiet_environment(options.threads)
    sides: dict[str, Side] = {}
    rounds: list[Round] = []
    try:
        for measure in measures:
            if measure.process not in sides:
                is_trl = measure.side == "trl"
                sides[measure.process] = Side(
                    measure.process,
                    [__file__, *sys.argv[1:], "--serve", measure.side],
                    env=env,
                    python=make_environment(options.peers, "trl") if is_trl else sys.executable,
                )
        for number in range(1 + options.rounds):
            rounds.append({})
            for measure in measures:
                if number and not measure.is_timed:
                    continue
                question = {"workload": measure.workload, "has_kl": measure.has_kl, "seed": number}
                rounds[-1][measure] = sides[measure.process].ask(question)
                print(f"round {number}: {measure}: {rounds[-1][measure]}", file=sys.stderr)
    finally:
        for one in sides.values():
            one.close()
    return rounds


def show(rounds: list[Round], options: argparse.Namespace) -> None:
    """Prints the seconds and the memory of each."""
    workload = workload_of(options)
    cores = len(os.sched_getaffinity(0))
    print(
        f"{workload.num_sequences} x {workload.num_tokens} tokens, {options.rounds} rounds, "
        f"{options.threads} threads a side, {cores} cores\n"
    )
    print(f"{'one step':20} {'seconds':>9} {'least':>9} {'most':>9} {'peak GiB':>9}")
    for measure in rounds[0]:
        seconds = [one[measure]["seconds"] for one in rounds]
        peak = max(one[measure]["peak_gib"] for one in rounds)
        print(
            f"{measure!s:20} {statistics.median(seconds):9.2f} {min(seconds):9.2f} "
            f"{max(seconds):9.2f} {peak:9.2f}"
        )
    print()


def show_agreement(rounds: list[Round]) -> bool:
    """Prints what must agree, as the first round found it; whether it does in all of them."""
    has_failed = False
    for ours, other in AGREEING:
        both = [(one[ours], one[other]) for one in rounds if ours in one and other in one]
        for name in ("grad_norm", "loss", "kl"):
            pairs = [(mine[name], its[name]) for mine, its in both if name in mine and name in its]
            if not pairs:
                continue
            most = max(abs(mine - its) / abs(its) for mine, its in pairs)
            words = "agrees" if most <= TOLERANCE else "DIFFERS"
            has_failed |= most > TOLERANCE
            print(
                f"{words}: {name} of {ours} {pairs[0][0]:.7g}, of {other} {pairs[0][1]:.7g} "
                f"(apart by {most:.1e} at most)"
            )
    print()
    return not has_failed


def show_ratios(rounds: list[Round]) -> bool:
    """Prints the ratios, the last line the four that count most; whether each meets its target."""
    ratios: dict[str, float] = {}
    is_met = True
    for target in TARGETS:
        if target.ours not in rounds[0] or target.than not in rounds[0]:
            continue
        each = [one[target.ours][target.of] / one[target.than][target.of] for one in rounds]
        ratio = ratios[target.name] = statistics.median(each)
        words = "met" if ratio <= target.times else "MISSED"
        is_met &= ratio <= target.times
        print(
            f"{words}: {target.name} {ratio:.3f} ({min(each):.3f} to {max(each):.3f}), at most "
            f"{target.times:g}: {target.of} of {target.ours} / {target.than}"
        )
    print(" ".join(f"{name}={ratios[name]:.3f}" for name in LAST_LINE if name in ratios))
    return is_met


if __name__ == "__main__":
    sys.exit(main())
