"""``rlgym eval``: samples a model on an environment and says how much of it is right."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from rlgym_llm.cli import CommandParser, guarded
from rlgym_llm.commands.number_flags import at_least_1, rising

__all__ = ["eval_parser", "main"]

_HELP_TAIL = """\
Everything else is a key of the configuration that evaluation reads, as in `rlgym train --help`:
  --env ID --model PATH --seed N --reward NAME=WEIGHT --plugin FILE --config FILE
  --env.kwargs.NAME, --data.val, --data.max_prompt_length, --data.max_response_length,
  --rollout.name (the generator), --rollout.max_num_seqs (sequences sampled at once, which are a
  batch), --model.dtype, --trainer.device, --trainer.num_threads, --rewards.*
The tasks are those of validation: an environment that has none of its own needs --data.val.
`--model starter` is the model that ships with the package; without --data.val it is asked the
starter problems.

Every rollout is in DIR/rollouts.jsonl, with its score card, as soon as its batch ends. The same
command again goes on with what is missing, and every response is the same as if nothing had
happened; other settings are refused. DIR/summary.json holds the figures, `rlgym score` scores the
stored rollouts by other rewards.

Exit code: 0; 1 where an episode or a reward failed (counted, never a wrong answer); 2 for a mistake
in the command; 130 after Ctrl-C, which ends after the batch under way.

  rlgym eval --model starter --n 4 --output runs/eval
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns 0, 1 where something failed, 130, or a code of `guarded`."""
    return guarded(_run, sys.argv[1:] if argv is None else list(argv), "rlgym eval")


def eval_parser() -> argparse.ArgumentParser:
    """The flags of the command's own; what it does not know is left to the configuration."""
    parser = CommandParser(
        prog="rlgym eval",
        description="Sample a model on an environment: accuracy, pass@k, maj@k.",
        usage="rlgym eval --env ID --model PATH [--n N] [--output DIR] [--KEY VALUE ...]",
        epilog=_HELP_TAIL,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--n", type=at_least_1, metavar="N", help="responses a task (1)")
    parser.add_argument(
        "--k", type=rising, metavar="K,K", help="pass@k and maj@k for these k, up to N (1 and N)"
    )
    parser.add_argument(
        "--temperature", type=float, metavar="T", help="0 is greedy (0 for --n 1, else 1)"
    )
    parser.add_argument("--top-p", type=float, metavar="P", help="nucleus of this mass (1)")
    parser.add_argument("--top-k", type=int, metavar="K", help="the K likeliest tokens (-1, all)")
    parser.add_argument("--max-tasks", type=at_least_1, metavar="M", help="the first M tasks (all)")
    parser.add_argument(
        "--output", metavar="DIR", help="folder of the evaluation (a new one under runs/)"
    )
    parser.add_argument(
        "--retry-errors", action="store_true", help="sample again what failed the last time"
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    return parser


def _run(argv: Sequence[str]) -> int:
    given, rest = eval_parser().parse_known_args(list(argv))
    # pydantic, Gymnasium and torch load from here on, in this order: --help waits for none.
    from rlgym_llm_trainers.commands.eval_settings import read_settings

    settings = read_settings(given, rest)
    from rlgym_llm_trainers.models.torch_setup import set_up_torch

    trainer = settings.config.trainer
    set_up_torch(num_threads=trainer.num_threads, seed=trainer.seed)
    from rlgym_llm_trainers.commands.eval_run import run_eval
    from rlgym_llm_trainers.commands.eval_summary import summary_text

    result = run_eval(settings)
    if given.json:
        print(json.dumps(result.summary, indent=2))
    else:
        print(summary_text(result.summary))
    print(f"saved in {result.saved_in}", file=sys.stderr)
    return result.exit_code


if __name__ == "__main__":
    sys.exit(main())
