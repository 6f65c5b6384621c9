from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rlgym_llm.scores import Component, ScoreCard, StepScore
from rlgym_llm.store import write_rollouts
from rlgym_llm.types import Completion, Rollout, Task, Turn
from rlgym_llm.view.server import ViewServer

pytestmark = pytest.mark.browser


def scored(text: str, reward: float | None, group: int, number: int) -> dict[str, Any]:
    verdict = None if reward is None else float(reward > 0)
    part = {
        "raw": verdict,
        "weight": 1.0,
        "transformed": verdict,
        "contribution": verdict,
        "status": "error" if reward is None else "ok",
        "info": {"said": text[:50]},
        "error": f"it broke: {text[:50]}" if reward is None else None,
    }
    return {
        "id": f"id-{number}",
        "prompt": f"<b>question {group}</b>",
        "completion": text,
        "answer": "5",
        "group_id": group,
        "rlgym": {
            "schema_version": 1,
            "reward": reward,
            "status": "failed_reward" if reward is None else "scored",
            "components": {"math": part},
        },
    }


@pytest.fixture
def view(tmp_path: Path, hostile_texts: tuple[str, ...]) -> Iterator[ViewServer]:
    """200 rows in groups of four: row i has reward i/100 - 1, but every tenth failed."""
    texts = [hostile_texts[i % 5] if i % 20 < 5 else f"Row {i} says five." for i in range(200)]
    rows = [
        scored(text, None if i % 10 == 9 else i / 100 - 1, i // 4, i)
        for i, text in enumerate(texts)
    ]
    path = tmp_path / "scored.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with ViewServer(path) as server:
        server.browser.index.wait()
        yield server


def counted(page: Any, text: str) -> None:
    page.locator("#count", has_text=re.compile(f"^{re.escape(text)}$")).wait_for()


def unfold(page: Any) -> None:
    """Filters are folded away on narrow screens."""
    if not page.locator("#filters").is_visible():
        page.click("#filter-box summary")


def test_it_renders(view: ViewServer, open_page: Callable[..., Any], look: tuple[int, str]) -> None:
    page = open_page(view.url, *look)
    counted(page, "200 of 200 rows")
    assert page.locator("#rows button").count() == 50
    assert page.locator("#facts").inner_text() == (
        "200 rows: 180 scored, 20 failed reward, 20 failed component"
    )
    page.click("#more")
    page.locator("#rows [data-row='99']").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") == look[0]


def test_filters_work_by_clicking(
    view: ViewServer, open_page: Callable[..., Any], look: tuple[int, str]
) -> None:
    page = open_page(view.url, *look)
    unfold(page)
    page.fill("[name=min_reward]", "0.895")
    page.click("button[type=submit]")
    counted(page, "9 of 200 rows")  # 190 to 198; 199 has no reward
    page.select_option("#sort", "-reward")
    page.locator("#rows li:first-child [data-row='198']").wait_for()
    page.click("button[type=reset]")
    counted(page, "200 of 200 rows")
    page.select_option("#status", "failed_reward")
    counted(page, "20 of 200 rows")
    page.select_option("#status", "")
    page.select_option("#component", "math")
    page.fill("[name=max_value]", "0")
    page.click("button[type=submit]")
    counted(page, "91 of 200 rows")  # 0 to 100, without ten that failed
    page.click("button[type=reset]")
    page.fill("#text", "row 18 SAYS")
    page.press("#text", "Enter")
    counted(page, "1 of 200 rows")
    assert page.locator("#active").inner_text() == "1"


def test_a_wrong_filter_says_so(view: ViewServer, open_page: Callable[..., Any]) -> None:
    page = open_page(view.url, forgives="400 (Bad Request)")
    page.fill("[name=min_reward]", "much")
    page.click("button[type=submit]")
    counted(page, "min_reward is no number: 'much'")


def test_hostile_rows_are_text(
    view: ViewServer, open_page: Callable[..., Any], hostile_texts: tuple[str, ...]
) -> None:
    page = open_page(view.url)
    for row, text in enumerate(hostile_texts[:3]):
        page.click(f"#rows [data-row='{row}']")
        page.locator("#detail h2", has_text=f"Row {row}").wait_for()
        assert page.locator("#detail .sampled pre").first.inner_text() == text
    page.click("#rows [data-row='3']")
    page.locator("#detail .sampled", has_text="a[U+0000]b[U+202E]gnp.exe[U+D800]").wait_for()
    page.click("#rows [data-row='4']")
    page.locator("#detail .left-out", has_text="980,000 characters left out").first.wait_for()
    page.get_by_role("button", name="Show the whole text").click()
    sampled = page.locator("#detail .sampled pre").first
    while sampled.evaluate("node => node.innerText.length") != 10**6:
        page.wait_for_timeout(50)  # the test's own deadline ends it
    assert (
        page.locator("#detail :is(script, iframe, img, svg), #rows :is(script, img)").count() == 0
    )
    assert page.title() == "scored.jsonl · rlgym view"


def test_siblings_stand_side_by_side(
    view: ViewServer, open_page: Callable[..., Any], look: tuple[int, str]
) -> None:
    page = open_page(view.url, *look)
    page.click("#rows [data-row='10']")
    page.locator(".sibling").first.wait_for()
    cards = page.locator(".sibling")
    assert cards.count() == 4
    assert page.locator(".sibling.this button").inner_text() == "row 10"
    boxes = [cards.nth(index).bounding_box() for index in range(4)]
    assert len({box["y"] for box in boxes}) == 1
    assert all(a["x"] + a["width"] <= b["x"] for a, b in pairwise(boxes))
    page.locator(".sibling button", has_text="row 9").click()
    page.locator("#detail h2", has_text="Row 9").wait_for()
    assert "it broke" in page.locator("#components").inner_text()


def test_keys_walk_through_the_rows(view: ViewServer, open_page: Callable[..., Any]) -> None:
    page = open_page(view.url)
    counted(page, "200 of 200 rows")
    for key, row in (("j", 0), ("j", 1), ("j", 2), ("k", 1)):
        page.keyboard.press(key)
        page.locator("#detail h2", has_text=f"Row {row}").wait_for()
    assert page.locator("#rows [aria-current=true]").get_attribute("data-row") == "1"
    page.keyboard.press("/")
    page.keyboard.type("row 5 says")
    page.keyboard.press("Enter")
    counted(page, "1 of 200 rows")
    page.go_back()
    page.locator("#detail h2", has_text="Row 2").wait_for()


def test_on_a_narrow_screen_a_row_takes_it_all(
    view: ViewServer, open_page: Callable[..., Any]
) -> None:
    page = open_page(view.url, 400)
    page.click("#rows [data-row='10']")
    page.locator("#detail h2", has_text="Row 10").wait_for()
    assert not page.locator("#list").is_visible()
    page.click(".back")
    assert page.locator("#list").is_visible()
    assert not page.locator("#detail").is_visible()


def test_token_rewards_colour_the_text(tmp_path: Path, open_page: Callable[..., Any]) -> None:
    text = "2 + 3 = 5\n#### 6"
    completion = Completion(text=text, token_ids=(4, 5, 6, 2), token_char_ends=(9, 15, 16, 16))
    turn = Turn(new_prompt_token_ids=(1,), completion=completion)
    rollout = Rollout(
        id="r",
        task=Task(prompt="2+3?", answer="5"),
        group_id="g",
        sample_index=0,
        seed=0,
        turns=(turn,),
    )
    steps = (
        StepScore(value=0.5, char_start=0, char_end=9),
        StepScore(value=-0.25, char_start=10, char_end=16),
    )
    part = Component(
        raw=0.25,
        weight=2.0,
        transformed=0.25,
        contribution=0.5,
        status="ok",  # type: ignore[arg-type]
        steps=steps,
    )
    card = ScoreCard(rollout_id="r", reward=0.5, status="scored", components={"prm": part})  # type: ignore[arg-type]
    write_rollouts(tmp_path / "1.jsonl", [rollout], [card])
    with ViewServer(tmp_path / "1.jsonl") as view:
        page = open_page(view.url)
        page.click("#rows button")
        coloured = page.locator("#coloured .earned")
        coloured.first.wait_for()
        # "2 + 3 = 5" earns 2 * 0.5, the 6 earns 2 * -0.25; the others nothing
        assert coloured.evaluate_all("all => all.map(e => [e.textContent, e.dataset.value])") == [
            ["2 + 3 = 5", "1"],
            ["\n#### ", "0"],
            ["6", "-0.5"],
        ]
        colours = coloured.evaluate_all("all => all.map(e => getComputedStyle(e).backgroundColor)")
        red_and_blue = [re.findall(r"[\d.]+", colour)[:3:2] for colour in colours]
        assert float(red_and_blue[0][1]) > float(red_and_blue[0][0])  # blue: earned
        assert float(red_and_blue[2][0]) > float(red_and_blue[2][1])  # orange: lost
        page.get_by_role("button", name="steps of prm").click()
        assert coloured.all_text_contents() == ["2 + 3 = 5", "#### 6"]
