from __future__ import annotations

import json
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from rlgym_llm.commands.report import main as report_main
from rlgym_llm.commands.score import main as score_main
from rlgym_llm.errors import DataError
from rlgym_llm.report import write_report
from rlgym_llm.report.gather import gather
from rlgym_llm.report.headlines import failure_rows, headlines
from rlgym_llm.report.write import render_report

HOSTILE = (
    "</pre></script><script>document.title='owned'</script>",
    "<img src=x onerror=alert(1)>",
    "a\0b\u202egnp.exe\ud800",
    "{{ 7*7 }}{% raw %}",
    "x" * 1_000_000,
)
PICKY = """
from rlgym_llm import reward

@reward("picky", range=(0, 1))
def picky(completion: str) -> float:
    if "onerror" in completion:
        raise ValueError("<script>no images</script>")
    return 0.25
"""
VOID = {"meta", "link", "img", "br"}


class Page(HTMLParser):
    """What a browser would make of a page: its text, its links, and whether its tags match."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.open: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "d:href")]
        assert not any(name.startswith("on") for name, _ in attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.text.append(data)

    @property
    def said(self) -> str:
        return " ".join("".join(self.text).split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two groups of four, of which one and two are right; then one of hostile texts."""
    folder = tmp_path_factory.mktemp("report")
    texts = {1: ["5", "4", "4", "4"], 2: ["5", "5", "3", "3"]}
    rows = [
        {"prompt": f"q{group}", "completion": text, "answer": "5", "group_id": group}
        for group, said in texts.items()
        for text in said
    ]
    rows += [{"prompt": "q3", "completion": c, "answer": "5", "group_id": 3} for c in HOSTILE[:4]]
    rows.append({"prompt": "q4", "completion": HOSTILE[4], "answer": "<b>5", "group_id": 4})
    lines = [*map(json.dumps, rows), '{"broken": <script>']
    (folder / "rows.jsonl").write_text("\n".join(lines))
    (folder / "picky.py").write_text(PICKY)
    code = score_main(
        [
            *(str(folder / "rows.jsonl"), "--workers", "1", "-o", str(folder / "scored.jsonl")),
            *("--reward", "exact_match=1", "--reward", f"{folder / 'picky.py'}:picky=0.4"),
        ]
    )
    assert code == 1  # a bad line and failures
    return folder


@pytest.fixture(scope="module")
def summary(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "scored.summary.json").read_text())
    return found


def test_headlines_are_the_runs_numbers(summary: Mapping[str, Any]) -> None:
    found = {headline.name: headline for headline in headlines(summary)}
    # 13 rows, of which 3 match exactly; picky fails on one, whose reward is masked:
    # (3 * 1 + 12 * 0.25 * 0.4) / 12
    assert found["mean reward"].value == "0.35"
    assert found["accuracy"].value == "23.1%"
    assert found["rows scored"].value == "12"
    assert found["rows scored"].detail == ("1 without reward, for one failed, 1 bad line set aside")
    # pass@4 over the three groups of four: 1, 1 and 0
    assert found["pass@4"].value == "66.7%"


def test_failures_say_where_how_often_and_show_one(summary: Mapping[str, Any]) -> None:
    found = {failure.where: failure for failure in failure_rows(summary)}
    assert found["picky"].count == 1
    assert found["picky"].lines == "10"
    assert "<script>no images</script>" in found["picky"].example
    assert found["bad line"].lines == "14"


def test_the_page_needs_nothing_and_runs_nothing(folder: Path, summary: dict[str, Any]) -> None:
    page = Page(render_report(folder / "scored.jsonl", summary))
    assert "script" not in page.tags
    assert "img" not in page.tags
    assert set(page.links) == {"data:,", "#failures"}


def test_hostile_texts_are_shown_as_they_are(folder: Path, summary: dict[str, Any]) -> None:
    page = Page(render_report(folder / "scored.jsonl", summary))
    for text in (HOSTILE[0], HOSTILE[1], HOSTILE[3], "<b>5"):
        assert text in page.said
    assert "a[U+0000]b[U+202E]gnp.exe[U+D800]" in page.said
    assert not {"\0", "\u202e"} & set(page.said)


def test_a_long_text_is_cut_with_a_note(folder: Path, summary: dict[str, Any]) -> None:
    text = render_report(folder / "scored.jsonl", summary)
    assert "994,000 characters left out" in text
    assert len(text) < 300_000


def test_the_same_run_gives_the_same_page(folder: Path, summary: dict[str, Any]) -> None:
    first = render_report(folder / "scored.jsonl", summary)
    assert first == render_report(folder / "scored.jsonl", summary)


def test_every_part_is_there(folder: Path, summary: dict[str, Any]) -> None:
    said = Page(render_report(folder / "scored.jsonl", summary)).said
    for title in (
        "Components",
        "How the scores are spread",
        "Length against reward",
        "pass@k and maj@k",
        "Correlation of the components",
        "Failures",
        "Slowest rows",
    ):
        assert title in said
    assert "Histogram of picky" in said


def test_the_sample_holds_the_rows_as_they_were_scored(
    folder: Path, summary: dict[str, Any]
) -> None:
    found = gather(folder / "scored.jsonl", summary)
    assert sorted(found.samples["exact_match"]) == [0.0] * 10 + [1.0] * 3
    assert len(found.points) == 12
    assert max(point.chars for point in found.points) == 1_000_000
    assert [point.is_right for point in found.points[:2]] == [True, False]


def test_parquet_gives_the_same_page(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "rows.jsonl").write_bytes((folder / "rows.jsonl").read_bytes())
    rewards = ("--reward", "exact_match=1", "--reward", f"{folder / 'picky.py'}:picky=0.4")
    parts = {}
    for kind in ("jsonl", "parquet"):
        output = tmp_path / f"scored.{kind}"
        score_main([str(tmp_path / "rows.jsonl"), "-o", str(output), "--overwrite", *rewards])
        found = json.loads((tmp_path / "scored.summary.json").read_text())
        parts[kind] = gather(output, {**found, "slowest": []})
    assert parts["jsonl"] == parts["parquet"]


def test_a_file_that_has_changed_is_noticed(
    folder: Path, summary: dict[str, Any], tmp_path: Path
) -> None:
    changed = tmp_path / "scored.jsonl"
    changed.write_bytes((folder / "scored.jsonl").read_bytes()[50:])
    with pytest.raises(DataError, match="has changed since it was scored"):
        render_report(changed, summary)
    with pytest.raises(DataError, match="no such file"):
        render_report(tmp_path / "gone.jsonl", summary)


def test_disputed_rows_say_who_disagrees(tmp_path: Path) -> None:
    rows = [
        {"prompt": "q", "completion": "5", "answer": "5", "is_correct": True},
        {"prompt": "q", "completion": "5", "answer": "5", "is_correct": False},
        {"prompt": "q", "completion": "4", "answer": "5", "is_correct": False},
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    report = tmp_path / "report.html"
    score_main([str(tmp_path / "rows.jsonl"), "--reward", "exact_match=1", "--report", str(report)])
    said = Page(report.read_text()).said
    assert "exact_match 1, labelled wrong" in said
    assert "2 of 3; 1 false positives, 0 false negatives" in said


def test_rows_without_any_reward_make_a_page_too(tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text(PICKY.replace('"onerror" in completion', "True"))
    (tmp_path / "rows.jsonl").write_text('{"completion": "5"}\n{"completion": "6"}\n')
    report = tmp_path / "report.html"
    score_main(
        [
            *(str(tmp_path / "rows.jsonl"), "--report", str(report)),
            *("--reward", f"{tmp_path / 'fails.py'}:picky=1"),
        ]
    )
    said = Page(report.read_text()).said
    assert "2 errors" in said
    assert "Length against reward" not in said


def test_the_command_finds_the_summary_beside(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out.html"
    assert report_main([str(folder / "scored.jsonl"), str(target)]) == 0
    assert "out.html" in capsys.readouterr().out
    assert target.read_text().startswith("<!doctype html>")
    alone = tmp_path / "alone.jsonl"
    alone.write_text("{}\n")
    with pytest.raises(DataError, match=r"no alone\.summary\.json"):
        report_main([str(alone)])


def test_a_report_that_cannot_be_written_says_so(folder: Path, summary: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="cannot be written"):
        write_report(folder / "scored.jsonl", summary, folder / "no" / "such" / "folder.html")
