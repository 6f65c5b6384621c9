"""What a long run of hostile answers does to the math verifier: memory, deadlines, wrong verdicts.

    python benchmarks/verifier_soak.py --data DIR               # 100,000 calls: many minutes

Cycles the hostile cases through `verify` with its default policy and its caches on, and now and
then an answer that needs a proof. After the first cycle each call is made new, so that no cache
hides it: the completion gets a first line of its own, and where the label is false the gold's last
number becomes one that no case answers.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from itertools import count
from pathlib import Path

from rich.console import Console
from rich.table import Table
from verifier_rows import Row, add_data_argument, check_data, payload_files, read_cases

GROWTH_LIMIT_MB = 5.0
TIMEOUT_LIMIT = 0.002
CALL_LIMIT_S = 1.0
FIRST_CALL_LIMIT_S = 2.0
PROOF_EVERY = 500
"""Hostile answers hardly ever get as far as sympy; so many calls apart, a true answer does."""


def main() -> None:
    """Runs the calls and prints what was found next to what is allowed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_data_argument(parser)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--settled", type=int, default=10_000, help="memory counts from here on")
    arguments = parser.parse_args()
    data = check_data(parser, arguments.data, "cases/verifier.jsonl")
    if not 0 < arguments.settled < arguments.calls:
        parser.error(f"--settled {arguments.settled} must lie within the {arguments.calls} calls")
    rows = [row for row in read_cases(data) if row.is_hostile]
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)  # before a worker starts: payloads leave their marker here
        table = soak(rows, arguments.calls, arguments.settled)
        ran = payload_files(Path(scratch))
        os.chdir("/")
    table.add_row("payloads that ran", ", ".join(ran) or "none", "none", mark(not ran))
    Console(highlight=False).print(table)


def soak(rows: list[Row], calls: int, settled: int) -> Table:
    """Judges the rows over and over; a table of what was found."""
    verify = import_module("rlgym_llm_rewards.math").verify
    statuses: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    slowest, slowest_case = 0.0, ""
    before = (0.0, 0.0)
    started = time.perf_counter()
    verify(*needs_proof(0))
    begun = time.perf_counter()
    first = begun - started
    for number, (row, text, gold) in zip(range(1, calls + 1), variants(rows), strict=False):
        if number % PROOF_EVERY == 0:
            text, gold = needs_proof(number)
            row = Row(completion=text, gold=gold, expected=True, kind="proof")
        started = time.perf_counter()
        verdict = verify(text, gold)
        seconds = time.perf_counter() - started
        if seconds > slowest:
            slowest, slowest_case = seconds, f"{row.kind}: {row.completion[:40]!r}"
        statuses[str(verdict.status)] += 1
        if verdict.is_correct != row.expected:
            wrong["paid" if verdict.is_correct else "not paid"] += 1
        if number == settled:
            before = resident_mb()
    after = resident_mb()
    growth = [late - early for early, late in zip(before, after, strict=True)]
    share = statuses["timeout"] / calls

    table = Table(title=f"{calls:,} hostile calls, {calls / (time.perf_counter() - begun):,.0f}/s")
    for heading in ("what", "found", "allowed", ""):
        table.add_column(heading)
    for name, early, late in zip(("parent", "workers"), before, after, strict=True):
        table.add_row(f"resident MB of {name}", f"{early:.1f} to {late:.1f}", "", "")
    allowed = f"< {GROWTH_LIMIT_MB} MB"
    met = mark(sum(growth) < GROWTH_LIMIT_MB)
    table.add_row(f"growth after {settled:,} calls", f"{sum(growth):+.1f} MB", allowed, met)
    timeouts = f"{statuses['timeout']:,} ({share:.2%})"
    table.add_row("timeouts", timeouts, f"<= {TIMEOUT_LIMIT:.1%}", mark(share <= TIMEOUT_LIMIT))
    met = mark(first <= FIRST_CALL_LIMIT_S)
    table.add_row("first call", f"{first:.3f} s", f"<= {FIRST_CALL_LIMIT_S} s", met)
    met = mark(slowest <= CALL_LIMIT_S)
    table.add_row("longest call", f"{slowest:.3f} s", f"<= {CALL_LIMIT_S} s", met)
    table.add_row("", slowest_case, "", "")
    table.add_row("wrong answers paid", f"{wrong['paid']:,}", "0", mark(not wrong["paid"]))
    table.add_row(
        "right answers not paid", f"{wrong['not paid']:,}", "0", mark(not wrong["not paid"])
    )
    table.add_row("statuses", ", ".join(f"{s} {n:,}" for s, n in statuses.most_common()), "", "")
    return table


def variants(rows: list[Row]) -> Iterator[tuple[Row, str, str]]:
    """The rows without end, each time as other texts with the same label."""
    for cycle in count():
        for row in rows:
            if cycle == 0:
                yield row, row.completion, row.gold
                continue
            gold = row.gold if row.expected else change_number(row.gold, 100_000 + cycle)
            yield row, f"Try {letters(cycle)}.\n{row.completion}", gold


def needs_proof(number: int) -> tuple[str, str]:
    """A true answer that only a worker can decide: the cube root of (x + number)^3."""
    cube = f"x^3 + {3 * number}x^2 + {3 * number**2}x + {number**3}"
    return f"\\boxed{{\\sqrt[3]{{{cube}}} + \\arctan x}}", f"\\arctan x + x + {number}"


def change_number(text: str, number: int) -> str:
    r"""The text with its last number replaced: ``\frac{1}{2}`` and 7 make ``\frac{1}{7}``."""
    *_, last = (None, *re.finditer("[0-9]+", text))
    return text if last is None else f"{text[: last.start()]}{number}{text[last.end() :]}"


def letters(number: int) -> str:
    """The number in letters, so that it adds no number to a text: 27 is ``zzbb``."""
    digits = []
    while number:
        number, digit = divmod(number, 26)
        digits.append(chr(ord("a") + digit))
    return "zz" + "".join(digits)


def resident_mb() -> tuple[float, float]:
    """Resident memory of this process and of all that it started, in MB (2**20 bytes)."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        except (OSError, ValueError):  # it ended as we looked
            continue
        kilobytes = int(fields.get("VmRSS", "0 kB").split()[0])
        parents[int(fields["Pid"])] = (int(fields["PPid"]), kilobytes)
    ours, before = {os.getpid()}, 0
    while len(ours) > before:
        before = len(ours)
        ours |= {pid for pid, (parent, _) in parents.items() if parent in ours}
    sizes = {pid: parents[pid][1] / 1024 for pid in ours}
    own = sizes.pop(os.getpid())
    return own, sum(sizes.values())


def mark(met: bool) -> str:
    """The last column."""
    return "met" if met else "MISSED"


if __name__ == "__main__":
    main()
