from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from rlgym_llm.commands.score import main as score_main

pytestmark = pytest.mark.browser

OVERLAPPING = """() => [...document.querySelectorAll("svg.chart")].flatMap((svg) => {
  const all = [...svg.querySelectorAll("text.tick")].map((text) => [
    text.getBoundingClientRect(), text.textContent]).filter(([box]) => box.width);
  const meet = (a, b) =>
    a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
  return all.flatMap(([a, said], i) =>
    all.slice(i + 1).filter(([b]) => meet(a, b)).map(([, other]) => `${said} meets ${other}`));
})"""
"""The axis labels that run into another of the same chart."""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, hostile_texts: tuple[str, ...]) -> str:
    """The address of a report on 40 rows in groups of four, hostile ones among them."""
    folder = tmp_path_factory.mktemp("report")
    texts = [*hostile_texts, *("5" * (1 + i % 3) for i in range(35))]
    rows = [
        {
            "prompt": f"<b>{i // 4}</b>",
            "completion": text,
            "answer": "5",
            "is_correct": i % 2 == 0,
            "id": f"</title><script>{i}",
            "group_id": i // 4,
        }
        for i, text in enumerate(texts)
    ]
    (folder / "rows.jsonl").write_text("\n".join([*map(json.dumps, rows), "<script>no row"]))
    score_main(
        [
            *(str(folder / "rows.jsonl"), "--workers", "1", "--report", str(folder / "out.html")),
            *("--reward", "exact_match=1", "--reward", "length=-0.001"),
            *("--option", "length.unit=chars"),
        ]
    )
    return (folder / "out.html").as_uri()


def test_it_renders(report: str, open_page: Callable[..., Any], look: tuple[int, str]) -> None:
    page = open_page(report, *look)
    assert page.title() == "rows.scored.jsonl: scoring report"
    # nothing sticks out of the window, on a telephone either
    assert page.evaluate("document.documentElement.scrollWidth") == look[0]
    charts = page.locator("svg.chart:visible")
    assert charts.count() == 6  # three histograms, length, pass@k, correlations
    for index in range(6):
        box = charts.nth(index).bounding_box()
        assert box["width"] > 150
        assert box["height"] > 100
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 28)"
    assert dark == (look[1] == "dark")


def test_labels_do_not_run_into_each_other(
    report: str, open_page: Callable[..., Any], look: tuple[int, str]
) -> None:
    page = open_page(report, *look)
    overlapping = page.evaluate(OVERLAPPING)
    assert overlapping == []


def test_rows_open_by_keyboard_and_show_text_only(
    report: str, open_page: Callable[..., Any], hostile_texts: tuple[str, ...]
) -> None:
    page = open_page(report)
    first = page.locator("#slowest details").first
    first.locator("summary").focus()
    page.keyboard.press("Enter")
    assert first.locator("pre").first.is_visible()
    page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
    said = page.locator("main").inner_text()
    for text in hostile_texts[:3]:
        assert text in said
    assert "a[U+0000]b[U+202E]gnp.exe[U+D800] {{ 7*7 }}" in said
    assert "994,000 characters left out" in said
    assert page.locator("script, iframe, img").count() == 0
    assert page.title() == "rows.scored.jsonl: scoring report"


def test_it_prints_with_its_rows_open(report: str, open_page: Callable[..., Any]) -> None:
    page = open_page(report, 1280, "dark")
    closed = page.locator("#slowest details pre").first
    assert not closed.is_visible()
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.pdf().startswith(b"%PDF")
