r"""Verdicts per second and accuracy of the math verifier, beside its peers on the same rows.

    python benchmarks/verifier.py --data DIR --peers DIR       # on a quiet machine
    python benchmarks/verifier.py --peer math-verify --sample 100 --rounds 1     # a first look

The peers run each in a virtual environment of its own below ``--peers``, made on the first run.
All sides run in turn, in alternating rounds, on one and the same core, warmed up, the clock inside
their own process. On our side no verdict and no parsed gold is remembered; the peers keep theirs.

*GSM8K*: model solutions whose last line ``A: x`` is rewritten to ``\boxed{x}``, ``#### x`` or,
plain, ``The final result is x.``; all of them for us, one seeded sample for every side.
*Ordinary cases*: the labelled cases that are neither hostile nor longer than 5,000 characters,
without those on which a side died or ran past 20 seconds.
*All cases*: accuracy only, row by row; a row past 20 seconds and a crash are wrong. Rows with code
in them are given to us alone: a peer might run it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from verifier_peers import PEERS, Reply, Side, SideError, make_peer, our_side
from verifier_rows import (
    ENDINGS,
    Row,
    add_data_argument,
    check_data,
    payload_files,
    read_cases,
    read_gsm8k,
)

ROW_LIMIT_S = 20.0
PASS_LIMIT_S = 1800.0
FRESH_AFTER_S = 2.0
"""A row slower than this may leave work behind in its process, which would slow the next row."""
TARGETS = {"gsm8k": 40.0, "ordinary": 20.0}
"""How many times the verdicts per second of math-verify we owe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one side did on one set of rows."""

    data: str
    side: str
    rows: int
    accuracy: float
    false_positives: int
    false_negatives: int
    overruns: int = 0
    """Rows on which it died or ran past the limit."""
    per_second: float | None = None
    """Verdicts per second, median of the rounds; None where it was not timed."""
    ours_to_it: float | None = None
    """How many times its rate ours is, on the same rows."""


def main() -> None:
    """Runs everything and prints one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_data_argument(parser)
    parser.add_argument(
        "--peers", type=Path, default=Path(".venv-peers"), help="their environments"
    )
    parser.add_argument("--peer", action="append", choices=PEERS, help="only this one; repeatable")
    parser.add_argument("--sample", type=int, default=1000, help="GSM8K solutions for every side")
    parser.add_argument("--cases", type=int, help="only the first cases of a seeded shuffle")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path, help="write the figures there too")
    arguments = parser.parse_args()
    files = ("cases/verifier.jsonl", "data/gsm8k/example_model_solutions.jsonl")
    data = check_data(parser, arguments.data, *files)
    console = Console(width=max(110, Console().width), highlight=False)
    interpreters = {}
    for name in arguments.peer or PEERS:
        try:
            interpreters[name] = make_peer(arguments.peers, name)
        except SideError as error:
            console.print(f"left out: {error}", markup=False)
    os.sched_setaffinity(0, {arguments.core})  # children inherit it
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        sides = []
        for side in (our_side(folder), *(Side(n, p, folder) for n, p in interpreters.items())):
            try:
                side.start()
                sides.append(side)
            except SideError as error:
                if side.name == "ours":
                    raise SystemExit(str(error)) from None
                console.print(f"left out: {error}", markup=False)
        try:
            results = run_gsm8k(sides, data, arguments)
            results += run_cases(sides, data, arguments)
        finally:
            for side in sides:
                side.stop()
        ran = payload_files(folder)
    console.print(f"one core ({arguments.core}), {arguments.rounds} rounds, seed {arguments.seed}")
    console.print(", ".join(f"{side.name} {side.version}" for side in sides), markup=False)
    console.print(make_table(results))
    for result in results:
        target = TARGETS.get(result.data.split()[0])
        if result.side == "math-verify" and target and result.ours_to_it:
            met = "met" if result.ours_to_it >= target else "MISSED"
            console.print(f"{result.data}: {result.ours_to_it:.1f}x, target {target:.0f}x: {met}")
    console.print(f"payloads that ran: {', '.join(ran) or 'none'}")
    if arguments.json:
        figures = {
            "sides": {side.name: side.version for side in sides},
            "results": [asdict(result) for result in results],
            "payloads": ran,
        }
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


def run_gsm8k(sides: Sequence[Side], data: Path, arguments: argparse.Namespace) -> list[Result]:
    """Each ending on its own: all solutions for us, then a sample for every side."""
    results = []
    for ending in ENDINGS:
        rows = read_gsm8k(data, ending)
        results += measure(sides[:1], rows, f"gsm8k {ending}, all", arguments.rounds)
        sample = random.Random(arguments.seed).sample(rows, min(arguments.sample, len(rows)))
        results += measure(sides, sample, f"gsm8k {ending}", arguments.rounds)
    return results


def run_cases(sides: Sequence[Side], data: Path, arguments: argparse.Namespace) -> list[Result]:
    """Accuracy over all cases, then the rates over the ordinary ones."""
    rows = read_cases(data)
    if arguments.cases is not None:
        random.Random(arguments.seed).shuffle(rows)
        rows = rows[: arguments.cases]
    safe = [row for row in rows if not row.is_payload]
    judged = {side.name: judge_singly(side, safe) for side in sides}
    overran = {i for all_of in judged.values() for i, s in enumerate(all_of) if s == "overrun"}
    ordinary = [row for i, row in enumerate(safe) if row.is_ordinary and i not in overran]
    results = measure(sides, ordinary, "ordinary cases", arguments.rounds, bare=True)
    results.append(score("all cases", "ours", rows, judge_singly(sides[0], rows)))
    results += [score("all but payloads", name, safe, judged[name]) for name in judged]
    return results


def measure(
    sides: Sequence[Side], rows: list[Row], data: str, rounds: int, *, bare: bool = False
) -> list[Result]:
    """Times every side in turn, round by round."""
    pairs = [(row.completion, row.gold) for row in rows]
    replies: dict[str, list[Reply]] = {side.name: [] for side in sides}
    for _ in range(rounds):
        for side in sides:
            reply = side.ask(pairs, bare=bare, limit_s=PASS_LIMIT_S)
            if reply is None:
                raise SystemExit(f"{side.name} died or ran past {PASS_LIMIT_S:.0f} s on {data}")
            replies[side.name].append(reply)
    rates = {
        name: len(rows) / statistics.median(reply.seconds for reply in of_side)
        for name, of_side in replies.items()
    }
    return [
        score(
            data, name, rows, replies[name][-1].statuses, rates[name], rates["ours"] / rates[name]
        )
        for name in rates
    ]


def judge_singly(side: Side, rows: list[Row]) -> list[str]:
    """The side's status of each row, ``overrun`` where it died or ran past the limit."""
    statuses = []
    for row in rows:
        started = time.perf_counter()
        reply = side.ask([(row.completion, row.gold)], bare=True, limit_s=ROW_LIMIT_S)
        statuses.append(reply.statuses[0] if reply else "overrun")
        if reply and time.perf_counter() - started > FRESH_AFTER_S:
            side.restart()
    return statuses


def score(
    data: str,
    side: str,
    rows: list[Row],
    statuses: list[str],
    per_second: float | None = None,
    ours_to_it: float | None = None,
) -> Result:
    """Counts what the side got wrong, either way."""
    pairs = [
        (status == "correct", row.expected) for status, row in zip(statuses, rows, strict=True)
    ]
    return Result(
        data=data,
        side=side,
        rows=len(rows),
        accuracy=sum(said == expected for said, expected in pairs) / max(len(rows), 1),
        false_positives=pairs.count((True, False)),
        false_negatives=pairs.count((False, True)),
        overruns=statuses.count("overrun"),
        per_second=per_second,
        ours_to_it=ours_to_it,
    )


def make_table(results: Sequence[Result]) -> Table:
    """All results, one line each."""
    table = Table()
    for heading in ("data", "side"):
        table.add_column(heading, no_wrap=True)
    for heading in (
        "rows",
        "verdicts/s",
        "ours to it",
        "accuracy",
        "false +",
        "false -",
        "overran",
    ):
        table.add_column(heading, justify="right")
    for before, result in zip([None, *results], results, strict=False):
        if before and before.data != result.data:
            table.add_section()
        table.add_row(
            result.data,
            result.side,
            f"{result.rows:,}",
            "" if result.per_second is None else f"{result.per_second:,.0f}",
            "" if result.ours_to_it is None else f"{result.ours_to_it:.1f}",
            f"{result.accuracy:.2%}",
            str(result.false_positives),
            str(result.false_negatives),
            str(result.overruns),
        )
    return table


if __name__ == "__main__":
    main()
