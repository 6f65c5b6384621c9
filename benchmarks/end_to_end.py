"""A whole GRPO step, generation, rewards and learning: ours beside TRL's, in turns in one run.

    python benchmarks/end_to_end.py --model SmolLM2-135M       # on a quiet machine
    python benchmarks/end_to_end.py --prompts 2 --tokens 8     # the starter model, to try it
    python benchmarks/end_to_end.py --sides hf trl             # without vLLM

*vllm*, *hf*: ``rlgym-train`` that samples with vLLM in its process, under the interpreter of
``--vllm-python``, and with transformers. *trl*: ``GRPOTrainer``, which samples with transformers,
under an interpreter of its own (``--peers`` says where that environment is or goes). All take the
same prompts, a KL term of coefficient 0.04, micro-batches of ``--micro-batch`` sequences, float32
and no activation checkpointing; no model stops of itself, so that responses are equally long.

Each side is a process of its own and waits without spinning while another is at work; its first
step, not counted, warms up. *learn* is all that is neither generation nor rewards: log-probs of
the reference, the update, and new weights to vLLM. A ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

from end_to_end_sides import SIDES, Workload, our_side
from rollout import model_folder
from rollout_sides import quiet_environment, stop_free
from shim_peers import ROOT, make_environment
from side import Answer, Side, serve

TARGETS = {"vllm": 0.4, "hf": 0.65}
"""At most how many times TRL's seconds each may take."""
PARTS = ("seconds", "gen", "reward", "learn")

Rounds = dict[str, list[dict[str, float]]]
"""side -> what it answered in each round."""


def main() -> int:
    """Runs the sides in turns and prints seconds and ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="Hugging Face folder; default: the starter model")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--group", type=int, default=8, help="samples of a prompt")
    parser.add_argument("--prompt-words", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64, help="of each response")
    parser.add_argument("--micro-batch", type=int, default=16, help="sequences")
    parser.add_argument("--rounds", type=int, default=1, help="after one that warms up")
    parser.add_argument("--threads", type=int, default=2, help="of each side")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES)
    parser.add_argument(
        "--vllm-python", type=Path, default=ROOT / ".venv-vllm" / "bin" / "python", help="has vLLM"
    )
    parser.add_argument(
        "--peers", type=Path, default=Path(".venv-peers"), help="where TRL is or goes"
    )
    parser.add_argument("--serve", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.prompts * options.group % options.micro_batch:
        parser.error("--micro-batch: whole ones must make --prompts times --group sequences")
    if options.serve:
        serve(lambda: side_of(options))
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        model = stop_free(model_folder(options.model), Path(scratch) / "model")
        rounds = run_rounds(options, model)
    return show(rounds, options)


def side_of(options: argparse.Namespace) -> Answer:
    """What answers in a side's process."""
    workload = Workload(
        num_prompts=options.prompts,
        group_size=options.group,
        prompt_words=options.prompt_words,
        response_tokens=options.tokens,
        micro_batch=options.micro_batch,
    )
    if options.serve == "trl":
        from end_to_end_trl import trl_side

        return trl_side(options.model, workload)
    return our_side(options.serve, options.model, workload)


def run_rounds(options: argparse.Namespace, model: Path) -> Rounds:
    """Starts the processes, warms them up, and asks them in turns."""
    env = quiet_environment(options.threads)
    pythons = {"vllm": options.vllm_python, "hf": sys.executable}
    sides: dict[str, Side] = {}
    rounds: Rounds = {name: [] for name in options.sides}
    try:
        for name in options.sides:
            sides[name] = Side(
                name,
                [__file__, *sys.argv[1:], "--model", str(model), "--serve", name],
                env=env,
                python=pythons.get(name) or make_environment(options.peers, name),
            )
        for number in range(1 + options.rounds):
            for name, side in sides.items():
                answer = side.ask({})
                print(f"round {number}: {name} {answer}", file=sys.stderr)
                assert answer["response_length"] == options.tokens, "a response stopped of itself"
                if number:
                    rounds[name].append(answer)
    finally:
        for one in sides.values():
            one.close()
    return rounds


def show(rounds: Rounds, options: argparse.Namespace) -> int:
    """Prints the parts and the ratios; 1 where a target is missed or tokens are not the same."""
    cores = len(os.sched_getaffinity(0))
    print(
        f"{options.prompts} prompts x {options.group} samples x {options.tokens} tokens, "
        f"{options.rounds} rounds, {options.threads} threads a side, {cores} cores\n"
    )
    print(f"{'one step':10} {' '.join(f'{part:>9}' for part in PARTS)} {'tokens':>9}")
    for name, found in rounds.items():
        medians = [statistics.median(one[part] for one in found) for part in PARTS]
        tokens = found[0]["num_tokens"]
        print(f"{name:10} {' '.join(f'{one:9.2f}' for one in medians)} {tokens:9.0f}")
    print()
    counts = {tuple(one["num_tokens"] for one in found) for found in rounds.values()}
    if len(counts) > 1:
        print("DIFFERS: the sides did not train on equally many tokens")
    is_met = len(counts) == 1
    ratios: dict[str, float] = {}
    for name, most in TARGETS.items():
        if name not in rounds or "trl" not in rounds:
            continue
        pairs = zip(rounds[name], rounds["trl"], strict=True)
        each = [ours["seconds"] / its["seconds"] for ours, its in pairs]
        ratio = ratios[f"{name}_ratio"] = statistics.median(each)
        is_met &= ratio <= most
        words = "met" if ratio <= most else "MISSED"
        print(f"{words}: {name} / trl {ratio:.3f} ({min(each):.3f} to {max(each):.3f}), ", end="")
        print(f"at most {most:g}")
    print(" ".join(f"{name}={ratio:.3f}" for name, ratio in ratios.items()))
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
