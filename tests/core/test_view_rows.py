from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlgym_llm.errors import DataError, UnknownNameError, UserError
from rlgym_llm.scores import Component, ScoreCard, StepScore
from rlgym_llm.store import write_rollouts
from rlgym_llm.types import Completion, Message, Rollout, Task, Turn
from rlgym_llm.view.browser import RowBrowser
from rlgym_llm.view.row_index import STATUSES, record_type
from rlgym_llm.view.row_query import RowQuery, select
from rlgym_llm.view.spans import Span, step_spans, token_spans
from rlgym_llm.view.visible import excerpt, visible

OK: dict[str, Any] = {
    "transformed": None,
    "contribution": None,
    "status": "ok",
    "info": {},
    "error": None,
}


def scored(text: str, reward: float | None, math: float | None, **columns: Any) -> dict[str, Any]:
    status = "failed_reward" if reward is None else "scored"
    part = {"raw": math, "weight": 1.0, **OK, "transformed": math, "contribution": math}
    if math is None:
        part |= {"status": "error", "error": "reward 'math' on rollout '1': it broke"}
    card = {"schema_version": 1, "reward": reward, "status": status, "components": {"math": part}}
    return {"prompt": "2+3?", "completion": text, "answer": "5", **columns, "rlgym": card}


def write(path: Path, *rows: Any) -> Path:
    path.write_text(
        "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)
    )
    return path


def rows_of(browser: RowBrowser, **query: Any) -> list[int]:
    browser.index.wait()
    return [row["row"] for row in browser.page(RowQuery(**query))["rows"]]


# ---- text


@given(st.text(st.characters()))
def test_visible_text_encodes_and_hides_nothing(text: str) -> None:
    shown = visible(text)
    shown.encode()
    assert not set(shown) & set("\0\x1b\r\u202e\u2066\u200b\u2028\ufeff")


def test_what_can_be_seen_stays() -> None:
    text = "π ≈ 3.14\n\tمرحبا 你好 👩‍👩‍👧 <b>&amp;"
    assert visible(text) == text


def test_excerpts_say_what_is_left_out() -> None:
    found = excerpt("a" * 1000 + "z" * 1000, 100)
    assert (found.head, found.num_left_out, found.tail) == ("a" * 80, 1900, "z" * 20)


# ---- choosing rows


@pytest.fixture
def records() -> Any:
    """Rewards 1, none, -1, 0.5; raw scores 0, 1, none, 1; lengths 4, 3, 2, 1."""
    found = np.zeros(4, record_type(["math"]))
    found["reward"] = [1, np.nan, -1, 0.5]
    found["raw"][:, 0] = [0, 1, np.nan, 1]
    found["chars"] = [4, 3, 2, 1]
    found["status"] = [0, STATUSES.index("failed_reward"), 0, 0]
    found["has_failed"] = [0, 1, 0, 1]
    return found


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        (RowQuery(), [0, 1, 2, 3]),
        (RowQuery(sort="-row"), [3, 2, 1, 0]),
        (RowQuery(min_reward=0.5), [0, 3]),
        (RowQuery(max_reward=0.5), [2, 3]),
        (RowQuery(sort="reward"), [2, 3, 0, 1]),
        (RowQuery(sort="-reward"), [0, 3, 2, 1]),
        (RowQuery(sort="chars"), [3, 2, 1, 0]),
        (RowQuery(component="math", min_value=1, sort="-chars"), [1, 3]),
        (RowQuery(component="math", sort="value"), [0, 1, 3, 2]),
        (RowQuery(status="failed_reward"), [1]),
        (RowQuery(status="failed_component", max_reward=2), [3]),
    ],
)
def test_rows_are_chosen_and_sorted(records: Any, query: RowQuery, rows: list[int]) -> None:
    assert select(records, query, ["math"]).tolist() == rows


def test_queries_that_make_no_sense_are_refused(records: Any) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'math'"):
        select(records, RowQuery(component="mth"), ["math"])
    for fields, wrong in (
        ({"min_reward": "lots"}, "min_reward is no number: 'lots'"),
        ({"min_value": "nan"}, "no number"),
        ({"sort": "colour"}, "cannot sort by 'colour'"),
        ({"status": "scord"}, "did you mean 'scored'"),
        ({"min_rewrad": "1"}, "did you mean 'min_reward'"),
    ):
        with pytest.raises(UserError, match=wrong):
            RowQuery.parse(fields)


# ---- files


def test_lines_of_all_kinds_have_their_places(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [scored("one", 1.0, 1.0), scored("zwei", -0.5, 0.0), scored("drei", None, None)]
    lines = [json.dumps(row, ensure_ascii=False).encode() for row in rows]
    path.write_bytes(
        b"\xef\xbb\xbf" + lines[0] + b"\r\n\n{broken\n[1]\n" + lines[1] + b"\n" + lines[2]
    )
    with RowBrowser(path) as browser:
        browser.index.wait()
        about = browser.about()
        assert about["num_rows"] == 5
        assert about["statuses"] == {
            "scored": 2,
            "failed_reward": 1,
            "bad_line": 2,
            "failed_component": 1,
        }
        assert [row["line"] for row in browser.page(RowQuery())["rows"]] == [1, 3, 4, 5, 6]
        assert browser.row(0)["components"][0]["raw"] == 1.0
        bad = browser.row(1)
        assert bad["text"]["head"] == "{broken\n"
        assert bad["error"].startswith("bad JSON")
        assert browser.row(4)["components"][0]["error"].endswith("it broke")
        assert browser.row(4)["reward"] is None
        with pytest.raises(LookupError, match="there is no row 5: 5 are read"):
            browser.row(5)


def test_a_text_is_found_in_any_case_and_script(tmp_path: Path) -> None:
    texts = ["So it is FIVE", 'a "quoted" five', "fünf Äpfel", "six"]
    path = write(tmp_path / "rows.jsonl", *(scored(text, 1.0, 1.0) for text in texts), "{five")
    with RowBrowser(path) as browser:
        assert rows_of(browser, text="five") == [0, 1, 4]
        assert rows_of(browser, text='"quoted"') == [1]
        assert rows_of(browser, text="äpfel") == [2]
        assert rows_of(browser, text="completion") == []  # a key is no text
        assert rows_of(browser, text="five", sort="-row", min_reward=0) == [1, 0]


def test_pages_follow_each_other(tmp_path: Path) -> None:
    path = write(
        tmp_path / "rows.jsonl", *(scored(f"say {i}", i / 7, float(i % 2)) for i in range(700))
    )
    with RowBrowser(path) as browser:
        browser.index.wait()
        seen: list[int] = []
        start: int | None = 0
        while start is not None:
            page = browser.page(RowQuery(component="math", min_value=1, sort="-reward"), start)
            assert page["num_fitting"] == 350
            seen += [row["row"] for row in page["rows"]]
            start = page["next"]
        assert seen == list(range(699, 0, -2))


def test_siblings_are_found_wherever_they_stand(tmp_path: Path) -> None:
    rows = [scored(f"{i}", 0.0, 0.0, group_id=f"g{i % 100}") for i in range(350)]
    with RowBrowser(write(tmp_path / "rows.jsonl", *rows)) as browser:
        browser.index.wait()
        found = browser.siblings(117)
        assert [row["row"] for row in found["rows"]] == [17, 117, 217, 317]
        assert found["num_siblings"] == 4


def test_parquet_answers_as_json_lines_do(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    rows = [scored("one", 1.0, 1.0, level=3), scored("two", -0.5, 0.0, level=None)]
    for row in rows:
        row["rlgym"]["components"]["math"]["info"] = '{"rule": "number"}'  # parquet's JSON text
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    with (
        RowBrowser(write(tmp_path / "rows.jsonl", *rows)) as lines,
        RowBrowser(tmp_path / "rows.parquet") as table,
    ):
        assert lines.index.wait()
        assert table.index.wait()
        assert [table.row(i) for i in (0, 1)] == [lines.row(i) for i in (0, 1)]
        assert table.row(1)["components"][0]["info"] == {"rule": "number"}
        assert rows_of(table, sort="-row") == [1, 0]


def test_plain_rows_have_the_reward_of_their_file(tmp_path: Path) -> None:
    row = {"input": "2+3?", "output": "5", "gts": "5", "score": 0.75, "step": 3, "extra": [1]}
    with RowBrowser(write(tmp_path / "dump.jsonl", row)) as browser:
        browser.index.wait()
        shown = browser.row(0)
        assert (shown["reward"], shown["status"]) == (0.75, "unscored")
        assert shown["others"] == {"extra": "[1]"}


def test_columns_can_be_named(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", {"q": "2+3?", "said": "5"})
    with pytest.raises(DataError, match="no column holds the completion"):
        RowBrowser(path)
    with RowBrowser(path, mapping={"completion": "said", "prompt": "q"}) as browser:
        browser.index.wait()
        assert [part["head"] for part in browser.row(0)["parts"]] == ["2+3?", "5"]


def test_files_that_cannot_be_browsed_say_why(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n")
    (tmp_path / "empty.jsonl").touch()
    write(tmp_path / "bad.jsonl", "nothing here")
    for name, wrong in (
        ("rows.csv", "unknown file type"),
        ("gone.jsonl", "no such file"),
        ("empty.jsonl", "no row"),
        ("bad.jsonl", r"bad\.jsonl:1: bad JSON"),
    ):
        with pytest.raises(DataError, match=wrong):
            RowBrowser(tmp_path / name)


def test_long_texts_are_cut_until_asked_for(tmp_path: Path) -> None:
    with RowBrowser(write(tmp_path / "rows.jsonl", scored("x" * 50_000, 1.0, 1.0))) as browser:
        browser.index.wait()
        assert browser.row(0)["parts"][1]["num_left_out"] == 30_000
        assert browser.row(0, is_whole=True)["parts"][1]["head"] == "x" * 50_000


def test_a_file_can_be_left_while_it_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", *(scored(f"{i}", 1.0, 1.0) for i in range(20_000)))
    browser = RowBrowser(path)
    assert len(browser.page(RowQuery())["rows"]) == 50  # the first page does not wait for the rest
    browser.close()
    assert not browser.index._thread.is_alive()


# ---- rewards on the text

TEXT = "2 + 3 = 5\n#### 5"


def rollout(text: str = TEXT, ends: tuple[int, ...] | None = (9, 15, 16, 16)) -> Rollout:
    completion = Completion(text=text, token_ids=(4, 5, 6, 2), token_char_ends=ends)
    return Rollout(
        id="r1",
        task=Task(prompt=(Message(role="user", content="2+3?"),), answer="5"),
        group_id="g1",
        sample_index=0,
        seed=0,
        turns=(Turn(new_prompt_token_ids=(1,), completion=completion),),
    )


CARD = ScoreCard(
    rollout_id="r1",
    reward=2.5,
    status="scored",  # type: ignore[arg-type]
    components={
        "correct": Component(raw=1.0, weight=1.0, transformed=1.0, contribution=1.0, status="ok"),  # type: ignore[arg-type]
        "prm": Component(
            raw=0.75,
            weight=2.0,
            transformed=0.75,
            contribution=1.5,
            status="ok",  # type: ignore[arg-type]
            steps=(
                StepScore(value=0.25, char_start=0, char_end=9),
                StepScore(value=0.5, char_start=10, char_end=16),
            ),
        ),
    },
)


def test_tokens_show_what_they_earned() -> None:
    # the steps end in the first and in the third token and count twice; the answer is worth 1
    assert token_spans(rollout(), CARD, {}) == [
        Span("2 + 3 = 5", 0.5),
        Span("\n#### ", 0.0),
        Span("5", 1.0),
        Span("", 1.0),
    ]


def test_tokens_of_unknown_places_are_not_coloured() -> None:
    assert token_spans(rollout(ends=None), CARD, {}) is None


@given(
    st.text(max_size=30),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=5),
)
def test_spans_of_steps_are_the_text(text: str, edges: list[tuple[int, int]]) -> None:
    steps = [StepScore(value=1.0, char_start=min(e), char_end=max(e)) for e in edges]
    spans = step_spans(text, steps)
    assert "".join(span.text for span in spans) == text
    assert sum(span.value is not None for span in spans) == len(steps)


def test_a_rollout_dump_is_shown_with_its_colours(tmp_path: Path) -> None:
    path = tmp_path / "3.jsonl"
    write_rollouts(path, [rollout()], [CARD], step=3)
    with RowBrowser(path) as browser:
        browser.index.wait()
        shown = browser.row(0)
    assert shown["reward"] == 2.5
    assert [part["role"] for part in shown["parts"]] == ["user", "completion"]
    assert shown["others"] == {}
    assert list(shown["spans"]) == ["token rewards", "steps of prm"]
    assert shown["spans"]["steps of prm"]["spans"] == [
        ("2 + 3 = 5", 0.25),
        ("\n", None),
        ("#### 5", 0.5),
    ]


def test_steps_of_scored_lines_are_coloured(tmp_path: Path) -> None:
    row = scored(TEXT, 1.0, 0.75)
    row["rlgym"]["components"]["math"]["steps"] = [[0.25, 0, 9], [0.5, 10, 16]]
    with RowBrowser(write(tmp_path / "rows.jsonl", row)) as browser:
        browser.index.wait()
        assert browser.row(0)["spans"]["steps of math"]["spans"][2] == ("#### 5", 0.5)
