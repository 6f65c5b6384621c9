"""The rows of the verifier's benchmarks: GSM8K's model solutions and the labelled cases."""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import dataclass
from pathlib import Path

PAYLOAD_FILE = Path("/tmp/rlgymllmpwned")
"""What a case's code creates where a grader runs it; some create ``marker`` where they stand."""
ENDINGS = {"boxed": "\\boxed{%s}", "####": "#### %s", "plain": "The final result is %s."}
"""What the last line of a GSM8K solution, ``A: x``, is rewritten to. The few solutions that were
cut off before it stay as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One labelled completion."""

    completion: str
    gold: str
    expected: bool
    kind: str

    @property
    def is_payload(self) -> bool:
        """Whether it is code that a careless grader would run."""
        return self.kind.endswith("code-payload")

    @property
    def is_hostile(self) -> bool:
        """Whether it was written to break a grader."""
        return self.kind.startswith("hostile") or self.is_payload

    @property
    def is_ordinary(self) -> bool:
        """Whether it is an answer as models give it."""
        short = max(len(self.completion), len(self.gold)) < 5_000
        return short and not self.is_hostile and self.kind not in ("resource-tower", "garbage")


def add_data_argument(parser: argparse.ArgumentParser) -> None:
    """Adds ``--data`` to a benchmark's arguments."""
    parser.add_argument(
        "--data",
        type=Path,
        default=os.environ.get("RLGYM_LLM_TEST_DATA"),
        help="folder with cases/verifier.jsonl and data/gsm8k/example_model_solutions.jsonl "
        "(default: RLGYM_LLM_TEST_DATA)",
    )


def check_data(parser: argparse.ArgumentParser, data: Path | None, *files: str) -> Path:
    """The folder, or the end of the program with a line that says what is missing."""
    if data is None:
        parser.error("which rows? give --data DIR or set RLGYM_LLM_TEST_DATA")
    for name in files:
        if not (data / name).is_file():
            parser.error(f"{data} holds no {name}; give another --data DIR")
    if PAYLOAD_FILE.exists():
        parser.error(f"{PAYLOAD_FILE} is there already: a payload ran once; remove it first")
    return data


def read_cases(data: Path) -> list[Row]:
    """The labelled cases, in the order of the file."""
    with (data / "cases/verifier.jsonl").open() as lines:
        cases = [json.loads(line) for line in lines]
    keys = ("completion", "gold", "expected", "kind")
    return [Row(**{key: case[key] for key in keys}) for case in cases]


def read_gsm8k(data: Path, ending: str) -> list[Row]:
    """Every model solution with its last line rewritten; the label is the file's ``is_correct``."""
    rows = []
    with (data / "data/gsm8k/example_model_solutions.jsonl").open() as lines:
        for question in map(json.loads, lines):
            gold = question["ground_truth"].rpartition("A: ")[2]
            for model in question.values():
                if not isinstance(model, dict):
                    continue
                head, separator, last = model["solution"].rpartition("\n")
                if last.startswith("A: "):
                    last = ENDINGS[ending] % last.removeprefix("A: ")
                text = head + separator + last
                expected = model["is_correct"]
                rows.append(Row(completion=text, gold=gold, expected=expected, kind="gsm8k"))
    return rows


def payload_files(folder: Path) -> list[str]:
    """The files that only a payload can have made, given the folder the graders ran in."""
    return [str(path) for path in (PAYLOAD_FILE, folder / "marker") if path.exists()]
