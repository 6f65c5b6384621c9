"""``rlgym rollout``: collects and stores rollouts of an environment with a model, no training."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from rlgym_llm.cli import CommandParser, guarded
from rlgym_llm.commands.number_flags import at_least_1

__all__ = ["main", "rollout_parser"]

_HELP_TAIL = """\
Everything else is a key of the configuration that sampling reads, as in `rlgym train --help`:
  --env ID --model PATH --seed N --plugin FILE --config FILE --env.kwargs.NAME
  --data.train or --data.val, --data.max_prompt_length, --data.max_response_length,
  --rollout.temperature, --rollout.name (the generator), --rollout.num_workers,
  --rollout.max_num_seqs (sequences sampled at once), --model.dtype, --trainer.device,
  --trainer.num_threads; with --score also --reward NAME=WEIGHT and --rewards.*
Sampling is that of training: rollout.n and rollout.temperature. `rlgym eval` samples greedily or
with top-p, and stores what it samples too. `--model starter` ships with the package.

Every group is in the file as soon as its last sibling has ended. The same command again goes on
with what is missing; other settings are refused. An episode that failed is stored with its status.
Without --score the reward is null, and `rlgym score FILE --env ID` scores the file as it is.
Beside FILE.jsonl stand FILE.settings.json, FILE.timings.jsonl and FILE.summary.json, which is also
printed. A .parquet file is written once all rollouts are there, from the .jsonl beside it.

Exit code: 0; 1 where an episode or a reward failed; 2 for a mistake in the command; 130 after
Ctrl-C, which ends after what is under way.

  rlgym rollout --env math-gsm8k --model starter --n 8 --output rollouts.jsonl
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns 0, 1 where something failed, 130, or a code of `guarded`."""
    return guarded(_run, sys.argv[1:] if argv is None else list(argv), "rlgym rollout")


def rollout_parser() -> argparse.ArgumentParser:
    """The flags of the command's own; what it does not know is left to the configuration."""
    parser = CommandParser(
        prog="rlgym rollout",
        description="Collect and store rollouts of an environment with a model; nothing is "
        "trained.",
        usage="rlgym rollout --env ID --model PATH [--n N] [--output FILE] [--KEY VALUE ...]",
        epilog=_HELP_TAIL,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--n", metavar="N", help="rollouts a task: the key rollout.n (8)")
    add("--split", choices=("train", "val"), default="train", help="whose tasks (train)")
    add("--max-tasks", type=at_least_1, metavar="M", help="the first M tasks (all)")
    add("--score", action="store_true", help="score with the environment's rewards, or --reward")
    add(
        "--output",
        metavar="FILE",
        help="a .jsonl or .parquet file, or a folder (a new folder under runs/)",
    )
    add("--retry-errors", action="store_true", help="sample again what failed the last time")
    return parser


def _run(argv: Sequence[str]) -> int:
    given, rest = rollout_parser().parse_known_args(list(argv))
    # pydantic, Gymnasium and torch load from here on, in this order: --help waits for none.
    from rlgym_llm_trainers.commands.rollout_settings import read_settings

    settings = read_settings(given, rest)
    from rlgym_llm_trainers.models.torch_setup import set_up_torch

    trainer = settings.config.trainer
    set_up_torch(num_threads=trainer.num_threads, seed=trainer.seed)
    from rlgym_llm_trainers.commands.rollout_run import run_rollout

    result = run_rollout(settings)
    print(json.dumps(result.summary, indent=2))
    print(f"saved in {result.saved_in}", file=sys.stderr)
    if result.num_failed:
        print(
            f"{result.num_failed} of the rollouts failed, for example: {result.example}; "
            "--retry-errors samples them again",
            file=sys.stderr,
        )
    return result.exit_code


if __name__ == "__main__":
    sys.exit(main())
