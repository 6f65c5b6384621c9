"""What the pages of docs/ show runs, and what they list is complete."""

from __future__ import annotations

import dataclasses
import doctest
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, get_args, get_type_hints

import numpy as np
import pytest
from rlgym_llm_trainers.algorithms.advantages import AdvantageInputs
from rlgym_llm_trainers.algorithms.advantages.gdpo import gdpo
from rlgym_llm_trainers.algorithms.advantages.groups import grpo

from rlgym_llm import CardStatus, Plugins, Reward, ScoreStatus
from rlgym_llm.cli import main
from rlgym_llm.commands.score import _parser as score_parser
from rlgym_llm.composition.combine import Combine
from rlgym_llm.composition.component import ComponentConfig, Placement
from rlgym_llm.composition.schedule import _SCHEDULES
from rlgym_llm.composition.transform import TRANSFORMS
from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.layouts.layout import FIELDS, LayoutName
from rlgym_llm.layouts.targets import TARGETS
from rlgym_llm.reward_config import RewardsConfig, read_rewards
from rlgym_llm.rewards import Backend, build_reward
from rlgym_llm.yaml_text import read_yaml

DOCS = Path(__file__).parents[1] / "docs"
PAGES = (
    *("rewards.md", "write_a_reward.md", "composition.md", "score.md"),
    *("environments.md", "distribution.md", "multi_turn.md", "tools.md", "mixtures.md"),
    *("episodes.md", "adapters.md", "off_policy.md", "weight_sync.md", "algorithms.md"),
    *("samples.md", "write_an_algorithm.md"),
    *sorted(f"environments/{path.name}" for path in (DOCS / "environments").iterdir()),
)
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """A fenced block of a page."""

    line: int
    language: str
    text: str


def blocks(page: str) -> list[Block]:
    text = (DOCS / page).read_text("utf-8")
    return [
        Block(text.count("\n", 0, found.start()) + 1, found[1], found[2])
        for found in _FENCE.finditer(text)
    ]


@pytest.fixture
def page_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module to run a page in, in a folder of its own; pickle finds its classes by name."""
    before = set(sys.modules)
    module = ModuleType("docs_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield module
    for name in set(sys.modules) - before:
        if (origin := getattr(sys.modules[name], "__file__", None)) and str(tmp_path) in origin:
            del sys.modules[name]


@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_run_in_order(
    page: str, page_module: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = set()
    for block in blocks(page):
        where = f"{page}:{block.line}"
        if block.language == "python":
            if named := re.match(r"# ([\w.]+\.py)\n", block.text):
                (tmp_path / named[1]).write_text(block.text, "utf-8")
            exec(compile(block.text, where, "exec"), vars(page_module))
        elif block.language == "pycon":
            _run_session(block, where, page_module)
        elif block.language == "yaml":
            if named := re.match(r"# ([\w.]+\.yaml)\n", block.text):
                (tmp_path / named[1]).write_text(block.text, "utf-8")
            data = read_yaml(block.text, where=where)
            if data.keys() & TrainConfig.model_fields.keys() - {"rewards"}:
                TrainConfig.model_validate(data)
            else:
                read_rewards(data.get("rewards", data), Plugins.discover())
        elif block.language == "":
            _run_commands(block, where, tmp_path, capsys)
        ran.add(block.language)
    assert ran


def _run_session(block: Block, where: str, module: ModuleType) -> None:
    parsed = doctest.DocTestParser().get_doctest(block.text, {}, where, where, block.line)
    parsed.globs = vars(module)  # what a block defines the next one sees
    told: list[str] = []
    result = doctest.DocTestRunner(verbose=False).run(parsed, out=told.append, clear_globs=False)
    assert not result.failed, "".join(told)


def _run_commands(
    block: Block, where: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Runs every line ``$ rlgym ...``; what is shown under one is printed by it, in that order."""
    commands = [part for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE) if part]
    for part in commands:
        command, _, shown = part.partition("\n")
        capsys.readouterr()
        words = shlex.split(command, comments=True)
        if words[0] == "cat":
            print((folder / words[1]).read_text("utf-8"))
        else:
            assert words[0] == "rlgym", f"{where}: {command}"
            assert main(words[1:]) == 0, f"{where}: {command}"
        printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
        rest = iter(printed)
        for line in shown.splitlines():
            assert line == "..." or line.rstrip() in rest, f"{where}: {line!r} not in {printed}"


def table(page: str, head: str) -> dict[str, list[str]]:
    """The rows of the table whose header's first cell is ``head``, by their first cell."""
    lines = iter((DOCS / page).read_text("utf-8").splitlines())
    assert any(line.startswith(f"| {head} |") for line in lines), f"{page} has no table {head!r}"
    next(lines)  # the rule under the header
    rows = {}
    for line in lines:
        if not line.startswith("|"):
            break
        first, *rest = (cell.strip() for cell in line.strip("|").split("|"))
        rows[first.strip("`").partition(":")[0]] = rest
    return rows


_LEAST_OPTIONS: dict[str, dict[str, Any]] = {
    "regex": {"pattern": "a"},
    "prm": {"function": "operator:add"},
    "reward_model": {"model": "a"},
    "judge": {"base_url": "http://localhost:1/v1", "model": "a", "criteria": "good"},
    "function": {"path": "textwrap:dedent"},
}


def test_every_built_in_reward_has_a_row_that_is_true() -> None:
    plugins = Plugins.discover()
    rows = table("rewards.md", "reward")
    specs = [s for s in plugins.rewards().values() if s.entry_point.startswith("rlgym_llm_rewards")]
    assert sorted(rows) == sorted(spec.name for spec in specs)
    for spec in specs:
        _, span, needs, options = rows[spec.name]
        cls = plugins.load(spec)
        built = build_reward(cls, _LEAST_OPTIONS.get(spec.name, {}))
        assert span == "{:g} to {:g}".format(*built.range), spec.name
        assert needs == ", ".join(f"`{column}`" for column in built.needs), spec.name
        named = re.findall(r"`([a-z_]+)(?:: \w+)?`", options)
        assert set(named) <= {field.name for field in dataclasses.fields(cls)}, spec.name


def test_everything_that_a_reward_declares_has_a_row() -> None:
    rows = table("rewards.md", "name")
    assert list(rows) == list(get_type_hints(Reward))
    for name, (default, _) in rows.items():
        declared = getattr(Reward, name)
        if isinstance(declared, tuple) and declared:
            declared = tuple(int(number) for number in declared)
        assert default.strip("`") == str(declared), name


@pytest.mark.parametrize(
    ("page", "head", "known"),
    [
        ("composition.md", "key", ComponentConfig.model_fields),
        ("composition.md", "rule", RewardsConfig.model_fields),
        ("composition.md", "transform", TRANSFORMS),
        ("composition.md", "schedule", _SCHEDULES),
        ("composition.md", "combine", Combine.model_fields),
        ("composition.md", "placement", get_args(Placement)),
        ("composition.md", "backend", get_args(Backend)),
        ("score.md", "layout", get_args(LayoutName)),
        ("score.md", "`--to`", TARGETS),
    ],
)
def test_a_table_has_a_row_for_everything(page: str, head: str, known: Any) -> None:
    assert sorted(table(page, head)) == sorted(known)


@pytest.mark.parametrize(
    ("head", "section"), [("key", ComponentConfig), ("rule", RewardsConfig)], ids=["key", "rule"]
)
def test_the_defaults_of_the_configuration(head: str, section: Any) -> None:
    # Words such as "the reward's" say what None stands for, and are not compared.
    for key, (default, _) in table("composition.md", head).items():
        declared = section.model_fields[key].get_default(call_default_factory=True)
        if declared is not None:
            assert default.strip("`") == str(declared), key


def test_score_names_every_option_status_and_field() -> None:
    page = (DOCS / "score.md").read_text("utf-8")
    for action in score_parser()._actions:
        if action.option_strings and action.help != "==SUPPRESS==":
            is_named = any(re.search(rf"{name}\b", page) for name in action.option_strings)
            assert is_named or action.dest in ("help", "plugin"), action.option_strings
    for status in (*CardStatus, *ScoreStatus):
        assert f"`{status}`" in page, status
    for field in FIELDS:
        assert f"`{field}`" in page, field


def test_the_advantages_of_gdpo() -> None:
    components = {"correct": [0.0, 0.0, 1.0, 1.0], "bonus": [0.0, 100.0, 0.0, 100.0]}
    rewards = [sum(pair) for pair in zip(*components.values(), strict=True)]
    inputs = dataclasses.replace(
        AdvantageInputs.of_rewards(rewards, ["group"] * 4),
        component_rewards={name: np.array(values) for name, values in components.items()},
        component_weights=dict.fromkeys(components, 1.0),
    )
    page = " ".join((DOCS / "composition.md").read_text("utf-8").split())
    summed, alone = (estimate(inputs).advantages[:, 0].round(2) for estimate in (grpo, gdpo))
    told = (f"{a:.3g}" for a in summed)
    assert f"the sum's advantages {', '.join(told)} are those of the bonus" in page
    told = (f"{a + 0.0:.3g}" for a in alone)
    assert f"GDPO's are {', '.join(told)}." in page


@pytest.mark.parametrize("page", PAGES)
def test_a_page_links_to_what_exists(page: str) -> None:
    text = (DOCS / page).read_text("utf-8")
    for target in re.findall(r"\]\(([^)#]+)", text):
        assert (DOCS / page).parent.joinpath(target).exists(), target
    assert len(text.splitlines()) < 200
