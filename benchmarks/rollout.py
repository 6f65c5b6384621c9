"""Tokens a second: our generators over vLLM, bare vLLM, and transformers, in turns in one run.

    python benchmarks/rollout.py --model SmolLM2-135M              # in an environment with vLLM
    python benchmarks/rollout.py --model SmolLM2-135M --sides bare ours --sequences 64
    python benchmarks/rollout.py --tokens 8 --rounds 2             # the starter model, to try it

*bare*: vLLM's ``LLM.generate``. *ours*: `VLLMGenerator` in the same process, over the very same
engine, with the same parameters. *ray*: `RayGenerator` over one actor with all threads. *actors*:
the same over as many actors as there are threads, each with one thread on a core of its own.
*transformers*: the model's ``generate`` on the same batch, padded, as TRL calls it. *unseeded* is
bare vLLM without a seed for each request, for comparison only.

Every round gives all sides the same requests, with prompts that none has seen. No model stops of
itself, so budgets set the lengths: *equal* gives all sequences ``--tokens``; *varied* spreads
budgets evenly in the logarithm from an eighth of that to all of it, and counts the tokens within
them alone. Each process stays and waits without spinning while others are at work. A ratio is the
median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollout_sides import PROCESSES, quiet_environment, sides_of, stop_free
from side import Answer, Side, serve

from rlgym_llm.generate import GenerateRequest, SamplingParams

PROMPT_TOKENS = 64
"""Of the longest prompt; the shortest has half of them."""
DEFAULT_SIDES = ("bare", "ours", "ray", "actors", "transformers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """How many times as fast a side must be as another one."""

    side: str
    than: str
    times: float
    workload: str


TARGETS = (
    Target(side="ours", than="bare", times=0.95, workload="equal"),
    Target(side="ray", than="bare", times=0.85, workload="equal"),
    Target(side="actors", than="ours", times=0.9, workload="equal"),
    Target(side="ours", than="transformers", times=1.2, workload="equal"),
    Target(side="ours", than="transformers", times=2.0, workload="varied"),
)

Speeds = dict[tuple[str, int, str], list[float]]
"""(workload, sequences, side) -> tokens a second in each round."""


def main() -> int:
    """Runs the sides in turns and prints speeds and ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="Hugging Face folder; default: the starter model")
    parser.add_argument("--sequences", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--tokens", type=int, default=128, help="of the longest sequence")
    parser.add_argument("--rounds", type=int, default=3, help="after a short one that warms up")
    parser.add_argument("--threads", type=int, default=2, help="of each side, and actors of one")
    kinds = ["equal", "varied"]
    parser.add_argument("--workloads", nargs="+", choices=kinds, default=kinds)
    all_sides = [side for sides in PROCESSES.values() for side in sides]
    parser.add_argument("--sides", nargs="+", choices=all_sides, default=DEFAULT_SIDES)
    parser.add_argument("--serve", choices=PROCESSES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(lambda: answerer(options))
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        model = str(stop_free(model_folder(options.model), Path(scratch) / "model"))
        speeds = run_rounds(options, model)
    return show(speeds, options)


def model_folder(path: str | None) -> Path:
    """The model's folder, or the starter model's."""
    from rlgym_llm_trainers.models.starter import starter_model_path

    return Path(path) if path else starter_model_path()


def run_rounds(options: argparse.Namespace, model: str) -> Speeds:
    """Starts the processes and asks them in turns."""
    process_of = {
        side: process
        for process, sides in PROCESSES.items()
        for side in sides
        if side in options.sides
    }
    shared = ["--model", model, "--threads", str(options.threads), "--tokens", str(options.tokens)]
    shared += ["--sequences", str(max(options.sequences))]
    env = quiet_environment(options.threads)
    processes: dict[str, Side] = {}
    speeds: Speeds = {}
    try:
        for process in dict.fromkeys(process_of.values()):
            processes[process] = Side(process, [__file__, "--serve", process, *shared], env=env)
        for side, process in process_of.items():  # waits for the process, and warms it up
            for count in options.sequences:
                question = {"workload": "equal", "count": count, "tokens": 4, "seed": 0}
                processes[process].ask({"side": side, **question})
            print(f"{side} is ready", file=sys.stderr, flush=True)
        for seed in range(1, options.rounds + 1):
            for workload in options.workloads:
                for count in options.sequences:
                    for side, process in process_of.items():
                        question = {"workload": workload, "count": count, "tokens": options.tokens}
                        found = processes[process].ask({"side": side, "seed": seed, **question})
                        speed = found["tokens"] / found["seconds"]
                        speeds.setdefault((workload, count, side), []).append(speed)
    finally:
        for one in processes.values():
            one.close()
    return speeds


def answerer(options: argparse.Namespace) -> Answer:
    """What a process answers with: the seconds that a side took, and the tokens that count."""
    sides = sides_of(
        options.serve,
        options.model,
        threads=options.threads,
        max_num_seqs=options.sequences[0],
        max_model_len=PROMPT_TOKENS + options.tokens,
    )
    vocabulary = vocabulary_size(options.model)

    def answer(question: dict[str, Any]) -> dict[str, float]:
        wanted = budgets(question["workload"], question["count"], question["tokens"])
        asked = requests(wanted, seed=question["seed"], vocabulary=vocabulary)
        started = time.perf_counter()
        lengths = sides[question["side"]](asked)
        seconds = time.perf_counter() - started
        assert lengths == wanted, f"{question['side']} sampled {lengths} and not {wanted} tokens"
        return {"seconds": seconds, "tokens": sum(lengths)}

    return answer


def budgets(workload: str, count: int, tokens: int) -> list[int]:
    """How many tokens each sequence gets, long and short ones mixed.

    >>> sorted(budgets("varied", 4, 128))
    [16, 32, 64, 128]
    """
    if workload == "equal":
        return [tokens] * count
    shares = [8 ** (place / max(1, count - 1) - 1) for place in range(count)]
    spread = [max(1, round(tokens * share)) for share in shares]
    random.Random(0).shuffle(spread)
    return spread


def requests(wanted: Sequence[int], *, seed: int, vocabulary: int) -> list[GenerateRequest]:
    """Prompts of random ids, each of its own length; the same for the same seed."""
    draw = random.Random(seed)
    return [
        GenerateRequest(
            prompt_token_ids=tuple(
                draw.randrange(10, vocabulary)
                for _ in range(draw.randint(PROMPT_TOKENS // 2, PROMPT_TOKENS))
            ),
            params=SamplingParams(max_new_tokens=budget),
            seed=draw.randrange(2**31),
        )
        for budget in wanted
    ]


def vocabulary_size(model: str) -> int:
    """Ids that the model has."""
    from rlgym_llm_trainers.models.token_side import read_model_config

    size: int = read_model_config(model)["vocab_size"]
    return size


def show(speeds: Speeds, options: argparse.Namespace) -> int:
    """Prints both tables; 1 where a target is missed."""
    cores = len(os.sched_getaffinity(0))
    print(f"{options.rounds} rounds, {options.threads} threads a side, {cores} cores\n")
    print(f"{'tokens a second':40} {'median':>9} {'least':>9} {'most':>9}")
    for (workload, count, side), found in sorted(speeds.items()):
        name = f"{workload}, {count} sequences: {side}"
        print(f"{name:40} {statistics.median(found):9.1f} {min(found):9.1f} {max(found):9.1f}")
    print()
    missed = []
    for target in TARGETS:
        for count in options.sequences:
            fast = speeds.get((target.workload, count, target.side))
            slow = speeds.get((target.workload, count, target.than))
            if fast is None or slow is None:
                continue
            ratios = [a / b for a, b in zip(fast, slow, strict=True)]
            ratio = statistics.median(ratios)
            what = f"{target.workload}, {count} sequences: {target.side} / {target.than}"
            spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
            print(f"{what:48} {ratio:5.2f} ({spread}), at least {target.times:g}")
            if ratio < target.times:
                missed.append(f"{what} is {ratio:.2f}, below {target.times:g}")
    for line in missed:
        print(f"MISSED: {line}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
