"""``rlgym score``: rewards on generations that exist, by the composer that training uses."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import Any, get_args

from rlgym_llm.cli import guarded, plugin_parser
from rlgym_llm.commands.number_flags import at_least_0, at_least_1, rising, seconds
from rlgym_llm.cores import num_cores
from rlgym_llm.layouts.samples import FIELDS, LayoutName
from rlgym_llm.offline.sandbox_workers import SandboxWorkers
from rlgym_llm.offline.workers import WorkerChoice

__all__ = ["main", "script"]

_SMALL = 4 << 20
_EPILOG = """\
  rlgym score generations.jsonl --reward math=1.0 --reward format=0.2
  rlgym score dump.parquet --env math-gsm8k --map completion=response -o scored.parquet

Every row keeps its columns and gets one more, rlgym: {schema_version, reward, status, components}.
Output is in the order of the input. Beside it stand .summary.json and, for lines that are no rows,
.rejects.jsonl. A run that was stopped goes on when it is started again.

exit code: 0 every row read and scored, 1 lines were set aside or rewards failed, 2 wrong usage"""


def script() -> int:
    """``rlgym-score``; returns the command's exit code."""
    return guarded(main, sys.argv[1:], "rlgym-score")


def main(argv: Sequence[str]) -> int:
    """Scores the files and prints what it came to; raises UserError, DataError or RewardError."""
    options = _parser().parse_intermixed_args(argv)
    start = partial(
        SandboxWorkers,
        num_workers=options.workers or num_cores(),
        timeout_s=options.timeout,
        memory_mb=options.memory or None,
    )
    with closing(WorkerChoice(start, may_stay=_may_stay(options))) as choice:
        # Imported beside the workers, which import the same.
        from rlgym_llm.commands.score_run import run

        return run(options, choice)


def _may_stay(options: argparse.Namespace) -> bool:
    """Whether the rows may be scored in this process: few, and nobody's own code on them."""
    if options.workers or options.plugin or any(":" in flag for flag in options.reward):
        return False
    try:
        return sum(os.path.getsize(file) for file in options.files) <= _SMALL
    except OSError:  # of which there is more to say later
        return True


def _parser() -> Any:
    parser = plugin_parser("rlgym score", "Scores generations that exist, without a model.")
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("files", nargs="+", metavar="FILE", help="JSON lines (.jsonl, .ndjson) or .parquet")
    add("-o", "--output", metavar="OUT", help="default: FILE.scored.jsonl; or a .parquet")
    add("--overwrite", action="store_true", help="replace OUT")
    reward = parser.add_argument_group("rewards")
    reward.add_argument(
        "--reward",
        action="append",
        default=[],
        metavar="NAME=WEIGHT",
        help="or file.py:name=WEIGHT",
    )
    reward.add_argument("--rewards", metavar="FILE", help="a rewards section in YAML")
    reward.add_argument("--env", metavar="ID", help="the rewards that this environment gives")
    reward.add_argument(
        "--option", action="append", default=[], metavar="NAME.KEY=VALUE", help="of a component"
    )
    reward.add_argument("--eval", action="store_true", help="weights of evaluation")
    reward.add_argument("--step", type=at_least_0, metavar="N", help="training step for schedules")
    reward.add_argument("--accuracy", metavar="NAME", help="component that says right or wrong")
    reward.add_argument("--k", type=rising, metavar="1,4", help="of pass@k and maj@k")
    rows = parser.add_argument_group("rows")
    rows.add_argument(
        "--map", action="append", default=[], metavar="FIELD=COLUMN", help=", ".join(FIELDS)
    )
    rows.add_argument("--layout", choices=get_args(LayoutName), help="default: recognised")
    rows.add_argument("--limit", type=at_least_1, metavar="N", help="only so many lines")
    rows.add_argument("--on-bad-line", choices=("set-aside", "skip", "error"), default="set-aside")
    rows.add_argument("--score-column", default="rlgym", metavar="NAME", help="default: rlgym")
    run = parser.add_argument_group("run")
    run.add_argument("--workers", type=at_least_1, metavar="N", help="default: every core")
    run.add_argument(
        "--timeout",
        type=seconds,
        default=30.0,
        metavar="S",
        help="of a row, in seconds; default 30",
    )
    run.add_argument(
        "--memory", type=at_least_0, default=4096, metavar="MIB", help="of a worker; 0: unbounded"
    )
    run.add_argument("--chunk-bytes", type=at_least_1, help=argparse.SUPPRESS)
    run.add_argument("--diff", metavar="OLD", help="a scored file: which verdicts changed since")
    run.add_argument("--report", metavar="FILE", help="write an HTML report")
    run.add_argument("--json", action="store_true", help="print the summary as JSON")
    return parser
