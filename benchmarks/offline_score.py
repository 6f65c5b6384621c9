"""Rows per second and core of ``rlgym score``, its memory, and what ``kill -9`` does to it.

    python benchmarks/offline_score.py --data example_model_solutions.jsonl    # on a quiet machine
    python benchmarks/offline_score.py --data example_model_solutions.jsonl --quick

The rows are the given solutions with ids, questions and texts changed, so that no two completions
are equal; no verdict is remembered from one to the next. *Rows per second* is the slope between
the short and the long file, with one worker: files read and written, start and end left out. The
two take turns, and both each repeat's slope and that of the fastest runs are shown, for a shared
machine's speed varies.
*Memory* is the largest sum of the resident sizes of the command and its workers. Then the long file
with two workers, and once more, killed at random moments and started again until it is done.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

MODELS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")
RUN = "import sys; from rlgym_llm.cli import main; sys.exit(main())"
NO_MEMORY = """
import importlib

from rlgym_llm import hookimpl

verify = importlib.import_module("rlgym_llm_rewards.math.verify")
verify._remembered = verify._remembered.__wrapped__

@hookimpl
def rlgym_register(kind):
    return []
"""
"""A plugin that brings nothing and takes the memory of verdicts away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of the command."""

    rows: int
    workers: int
    seconds: float
    peak_mb: float


def main() -> None:
    """Makes the files, runs the command on them and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Raw)
    parser.add_argument("--data", type=Path, required=True, help="example_model_solutions.jsonl")
    parser.add_argument("--quick", action="store_true", help="a hundredth of the rows")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3, help="of the two runs of the slope")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder for the files; default: a temporary one")
    options = parser.parse_args()
    short, long = (2_000, 10_000) if options.quick else (50_000, 1_000_000)
    folder = options.keep or Path(tempfile.mkdtemp(prefix="offline-score-"))
    folder.mkdir(exist_ok=True)
    try:
        (folder / "plugin.py").write_text(NO_MEMORY)
        for rows in (short, long):
            write_rows(options.data, folder / f"{rows}.jsonl", rows)
        pairs = [(run(folder, short, 1), run(folder, long, 1)) for _ in range(options.repeats)]
        show(pairs, run(folder, long, 2))
        kill_and_resume(folder, long, options.kills, random.Random(options.seed))
    finally:
        if options.keep is None:
            shutil.rmtree(folder)


def write_rows(source: Path, path: Path, count: int) -> None:
    """So many rows of which no two have a question and a completion in common."""
    solved = list(solutions(source))
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            question, answer, text, is_correct = solved[number % len(solved)]
            row = {
                "id": f"row-{number}",
                "prompt": f"{question} (version {number // len(solved)})",
                "completion": f"Attempt {number}.\n{text}",
                "answer": answer,
                "is_correct": is_correct,
            }
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def solutions(source: Path) -> Iterator[tuple[str, str, str, bool]]:
    """Question, short answer, worked solution and label of each."""
    with source.open(encoding="utf-8") as file:
        for row in map(json.loads, file):
            answer = row["ground_truth"].rpartition("A: ")[2].strip()
            for model in MODELS:
                yield row["question"], answer, row[model]["solution"], row[model]["is_correct"]


def command(folder: Path, rows: int, out: Path, workers: int) -> list[str]:
    """The command line."""
    flags = ["--reward", "math", "--plugin", str(folder / "plugin.py"), "--workers", str(workers)]
    return [
        sys.executable,
        "-c",
        RUN,
        "score",
        str(folder / f"{rows}.jsonl"),
        *flags,
        "-o",
        str(out),
    ]


def run(folder: Path, rows: int, workers: int) -> Run:
    """Runs the command once; every label must be matched."""
    out = folder / f"{rows}.{workers}.jsonl"
    for path in (out, out.with_suffix(".summary.json")):
        path.unlink(missing_ok=True)
    started = time.perf_counter()
    process = subprocess.Popen(command(folder, rows, out, workers), stdout=subprocess.DEVNULL)
    peak = [0.0]
    watcher = threading.Thread(target=watch, args=(process.pid, peak), daemon=True)
    watcher.start()
    code = process.wait()
    seconds = time.perf_counter() - started
    watcher.join()
    if code:
        raise SystemExit(f"the command ended with {code}")
    labels = json.loads(out.with_suffix(".summary.json").read_text())["accuracy"]["labels"]
    if labels["agree"] != rows:
        raise SystemExit(f"labels not matched: {labels}")
    print(f"{rows:,} rows, {workers} workers: {seconds:.1f} s, {peak[0]:.0f} MB", flush=True)
    return Run(rows=rows, workers=workers, seconds=seconds, peak_mb=peak[0])


def watch(pid: int, peak: list[float]) -> None:
    """Keeps the largest sum of resident sizes of the process and all below it, in MB."""
    while Path(f"/proc/{pid}/statm").exists():
        total = sum(map(resident_mb, [pid, *below(pid)]))
        if not total:
            return  # it has ended and waits to be reaped
        peak[0] = max(peak[0], total)
        time.sleep(0.05)


def below(pid: int) -> list[int]:
    """The process's children and theirs."""
    found = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *below(child)]
    except OSError:
        pass
    return found


def resident_mb(pid: int) -> float:
    """Resident size of one process."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def show(pairs: list[tuple[Run, Run]], both: Run) -> None:
    """The table, and the figures that matter: the slope of every repeat, and the fastest runs'."""
    table = Table("rows", "workers", "seconds", "peak MB", box=None)
    for one in (*(run for pair in pairs for run in pair), both):
        table.add_row(f"{one.rows:,}", str(one.workers), f"{one.seconds:.1f}", f"{one.peak_mb:.0f}")
    Console().print(table)
    slopes = [(y.rows - x.rows) / (y.seconds - x.seconds) for x, y in pairs]
    print("rows/s per core, by repeat: " + ", ".join(f"{slope:,.0f}" for slope in slopes))
    short, long = (min(runs, key=lambda run: run.seconds) for runs in zip(*pairs, strict=True))
    slope = (long.rows - short.rows) / (long.seconds - short.seconds)
    print(f"{slope:,.0f} rows/s per core by the fastest runs ({1e6 / slope:.1f} us a row)")
    print(f"two workers are {long.seconds / both.seconds:.2f} times as fast as one")
    grown = max(y.peak_mb for _, y in pairs) / min(x.peak_mb for x, _ in pairs)
    print(f"memory grows by {grown:.2f} from the short file to the long one")


def kill_and_resume(folder: Path, rows: int, kills: int, draw: random.Random) -> None:
    """Kills the command at random moments, then lets it finish, and compares the bytes."""
    whole, out = folder / f"{rows}.1.jsonl", folder / "killed.jsonl"
    arguments = command(folder, rows, out, 2)
    survived = 0
    work = Path(f"{out}.work")
    num_parts = max(kills, (folder / f"{rows}.jsonl").stat().st_size >> 20)
    for _ in range(kills):
        process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL)
        done = len(list(work.glob("*.done")))
        wanted = done + draw.randrange(0, 2 * num_parts // (kills + 1))
        while process.poll() is None and len(list(work.glob("*.done"))) < wanted:
            time.sleep(0.005)
        time.sleep(draw.random() * 0.3)
        process.send_signal(signal.SIGKILL)
        survived += process.wait() != -signal.SIGKILL
    subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)
    is_same = filecmp.cmp(whole, out, shallow=False)
    ids = [json.loads(line)["id"] for line in out.open(encoding="utf-8")]
    print(
        f"killed {kills - survived} times: the output is "
        f"{'the same, byte for byte' if is_same else 'ANOTHER'}; "
        f"{len(set(ids)):,} ids in {len(ids):,} rows"
    )
    if not is_same or len(set(ids)) != rows:
        raise SystemExit(1)


class _Raw(argparse.RawDescriptionHelpFormatter):
    pass


if __name__ == "__main__":
    main()
