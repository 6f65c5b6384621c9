"""What docs/math_verifier.md says is what the code does."""

from __future__ import annotations

import dataclasses
import doctest
import re
import shlex
import typing
from pathlib import Path

import pytest
import yaml
from rlgym_llm_rewards.math import Policy, VerdictStatus, verify
from rlgym_llm_rewards.math.algebra.canonical import _MAX_STEPS
from rlgym_llm_rewards.math.algebra.effort import MAX_EFFORT
from rlgym_llm_rewards.math.algebra.form import MAX_BITS, MAX_EXPANDED, MAX_TERMS
from rlgym_llm_rewards.math.algebra.functions import _MAX_FACTORIAL
from rlgym_llm_rewards.math.algebra.probe import _MAX_MAGNITUDE, DIGITS
from rlgym_llm_rewards.math.extraction.unmarked import _MAX_REMARK
from rlgym_llm_rewards.math.gold import _remembered as remembered_golds
from rlgym_llm_rewards.math.parsing.cursor import MAX_DEPTH
from rlgym_llm_rewards.math.parsing.reading import _read
from rlgym_llm_rewards.math.parsing.tokens import MAX_CHARS, MAX_DIGITS, MAX_TOKENS
from rlgym_llm_rewards.math.proof import DEADLINE_S, MEMORY_MB, NUM_WORKERS
from rlgym_llm_rewards.math.symbolic import PATIENCE_S
from rlgym_llm_rewards.math.verify import _MAX_REMEMBERED, _remembered

from rlgym_llm import Plugins
from rlgym_llm.cli import main
from rlgym_llm.reward_config import build_rewards, read_rewards

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "math_verifier.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
HEAD = "completion | gold | verdict"


def blocks(language: str, text: str = PAGE) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def table(heading: str) -> dict[str, list[str]]:
    """The rows of the first table under a heading, by their first cell without backticks."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:2] == "| "]
    return {cells[0].strip("` "): [cell.strip() for cell in cells[1:]] for cells in rows[1:]}


def examples() -> list[tuple[str, str, str]]:
    found = []
    for block in blocks("examples"):
        head, *lines = block.splitlines()
        assert head == HEAD
        for line in lines:
            if not line.startswith("-- "):
                completion, gold, verdict = line.split(" | ")
                found.append((completion, gold, verdict))
    return found


@pytest.mark.parametrize(("completion", "gold", "status"), examples())
def test_every_example(completion: str, gold: str, status: str) -> None:
    assert verify(completion, gold).status == status


def test_every_kind_has_two_examples() -> None:
    (kinds,) = (block for block in blocks("examples") if "\n-- " in block)
    for kind in kinds.split("\n-- ")[1:]:
        name, *lines = kind.strip().splitlines()
        assert len(lines) == 2, name
        assert lines[0].endswith("| correct"), name
        assert not lines[1].endswith("| correct"), name


def test_every_option_with_its_default_and_the_others() -> None:
    rows = table("The options")
    kinds = typing.get_type_hints(Policy)
    assert list(rows) == [field.name for field in dataclasses.fields(Policy)]
    for field in dataclasses.fields(Policy):
        default, others, _ = rows[field.name]
        assert default == f"`{field.default}`"
        allowed = (False, True) if kinds[field.name] is bool else typing.get_args(kinds[field.name])
        if allowed:
            rest = [f"`{value}`" for value in allowed if value != field.default]
            assert others == ", ".join(rest)


def test_every_status() -> None:
    assert list(table("Statuses")) == [status.value for status in VerdictStatus]


def test_every_limit() -> None:
    limits = {row: cells[0] for row, cells in table("Limits").items()}
    figures = {
        "characters of an answer or gold that is parsed": f"{MAX_CHARS:,}",
        "tokens": f"{MAX_TOKENS:,}",
        "nesting": f"{MAX_DEPTH} levels",
        "digits of one number": f"{MAX_DIGITS:,}",
        "bits of a number that is worked out": f"{MAX_BITS:,}",
        "factorials that are worked out": f"{_MAX_FACTORIAL:,}!",
        "whole powers of a sum that are multiplied out": f"{MAX_EXPANDED}",
        "terms of a sum or product sign that is worked out": f"{_MAX_STEPS}",
        "terms of one form": f"{MAX_TERMS}",
        "binary exponent of a probed value": f"{_MAX_MAGNITUDE:,}",
        "steps of work for one verdict": f"{MAX_EFFORT:,}",
        "time that sympy may think about one proof": f"{PATIENCE_S} s",
        "time of one proof": f"{DEADLINE_S} s",
        "time of all proofs of one verdict": f"{1.8 * DEADLINE_S} s",
        "memory of one proof process": f"{MEMORY_MB} MiB",
        "proof processes of one process": "4, or the number of CPUs if that is less",
    }
    assert limits == figures
    assert NUM_WORKERS <= 4
    caches = [cache.cache_info().maxsize for cache in (remembered_golds, _read, _remembered)]
    said = f"{caches[0]:,} golds, {caches[1]:,} readings and {caches[2]:,}\nverdicts"
    assert f"{said} (of answers and golds up to {_MAX_REMEMBERED} characters)" in PAGE
    assert f"in {DIGITS} digits" in PAGE
    assert f"if at most {_MAX_REMARK} characters follow it" in PAGE


def test_the_session_in_python() -> None:
    (session,) = blocks("pycon")
    test = doctest.DocTestParser().get_doctest(session, {}, "math_verifier.md", None, 0)
    assert doctest.DocTestRunner().run(test).failed == 0
    assert len(test.examples) == 9


def test_the_reward_in_a_configuration() -> None:
    (text,) = blocks("yaml")
    plugins = Plugins.discover()
    reward = build_rewards(read_rewards(yaml.safe_load(text)["rewards"]), plugins)["correct"]
    assert isinstance(reward, Policy)
    assert (reward.extraction, reward.form) == ("strict", "reduced")


@pytest.mark.parametrize("text", [PAGE, README], ids=["page", "readme"])
def test_the_command_prints_what_is_shown(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = (block for block in blocks("", text) if block.startswith("$ rlgym verify"))
    command, _, shown = block.removeprefix("$ ").partition("\n")
    assert main(shlex.split(command)[1:]) == 0
    assert capsys.readouterr().out == shown


def test_every_file_it_names_exists() -> None:
    folder = ROOT / "reward_plugins" / "rlgym_llm_rewards" / "math"
    named = set(re.findall(r"`(\w+\.py)`", PAGE))
    assert named
    assert named <= {path.name for path in folder.rglob("*.py")}


def test_the_readme_names_every_folder_of_the_verifier() -> None:
    folder = ROOT / "reward_plugins" / "rlgym_llm_rewards" / "math"
    (line,) = (line for line in README.splitlines() if line.startswith("  math/ "))
    named = set(re.findall(r"(\w+)/", line)) - {"math"}
    assert named == {path.parent.name for path in folder.rglob("__init__.py")} - {"math"}
