"""What is written beside the rows: score cards as JSON, records, and parts that cannot be torn."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlgym_llm.offline.card_json import card_json
from rlgym_llm.offline.lines import BadLine
from rlgym_llm.offline.merge import JoinedLines, part_names
from rlgym_llm.offline.part import Part, Place, error_kind, finished_parts, part_file, place_of
from rlgym_llm.offline.records import Records
from rlgym_llm.rows.json_text import to_json_line
from rlgym_llm.scores import CardStatus, Component, ScoreCard, ScoreStatus, StepScore
from rlgym_llm.store import RolloutRecord, encode_record
from rlgym_llm.types import Completion, Rollout, Task
from rlgym_llm.unchecked import unchecked

numbers = st.none() | st.floats(allow_nan=False, allow_infinity=False)
texts = st.none() | st.text()
json_data = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers(-(2**60), 2**60) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(numbers, numbers, texts, st.dictionaries(st.text(), json_data, max_size=3), st.text())
def test_a_card_reads_back_as_it_was_and_is_strict_json(
    raw: float | None,
    contribution: float | None,
    error: str | None,
    info: dict[str, object],
    name: str,
) -> None:
    part = Component(
        raw=raw,
        weight=0.25,
        transformed=raw,
        contribution=contribution,
        status=ScoreStatus.OK,
        steps=(StepScore(value=0.5, char_start=0, char_end=3),),
        info=info,
        error=error,
    )
    card = ScoreCard(
        rollout_id="r",
        reward=raw,
        status=CardStatus.MASKED if raw is None else CardStatus.SCORED,
        components={name: part},
        error=error,
    )

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    found = json.loads(card_json(card), parse_constant=refuse)
    assert found["reward"] == raw
    assert found.get("error") == error
    written = found["components"][name]
    assert list(written) == [
        *("raw", "weight", "transformed", "contribution", "status", "steps", "info", "error")
    ]
    assert (written["raw"], written["contribution"], written["error"]) == (raw, contribution, error)
    assert written["steps"] == [[0.5, 0, 3]]
    assert written["info"].keys() == info.keys()


def test_a_card_beside_a_row_is_the_card_of_a_record_less_id_and_times() -> None:
    part = Component(
        raw=0.5,
        weight=2.0,
        transformed=0.25,
        contribution=0.5,
        status=ScoreStatus.OK,
        steps=(StepScore(value=0.5, char_start=1, char_end=3),),
        info={"answer": "5"},
        error="late",
        seconds=1.5,
    )
    card = ScoreCard(
        rollout_id="r",
        reward=0.5,
        status=CardStatus.SCORED,
        components={"math": part},
        error="odd",
    )
    task = Task(prompt="2+3?")
    rollout = Rollout(id="r", task=task, group_id="g", sample_index=0, seed=0, turns=())
    row = encode_record(RolloutRecord(rollout=rollout, card=card))
    record = json.loads(to_json_line(row))["card"]
    beside = json.loads(card_json(card))
    assert beside.pop("schema_version") == row["schema_version"]
    del record["rollout_id"], record["components"]["math"]["seconds"]
    steps = record["components"]["math"]["steps"]
    record["components"]["math"]["steps"] = [list(step.values()) for step in steps]
    assert beside == record


def test_numbers_of_other_kinds_are_written_as_numbers() -> None:
    part = Component(
        raw=np.float32(0.5),
        weight=1,
        transformed=True,
        contribution=np.float64(2),
        status=ScoreStatus.OK,
    )
    card = ScoreCard(
        rollout_id="r", reward=np.float64(1.5), status="scored", components={"a": part}
    )
    found = json.loads(card_json(card))
    assert found["reward"] == 1.5
    assert [found["components"]["a"][key] for key in ("raw", "transformed", "contribution")] == [
        *(0.5, 1.0, 2.0)
    ]


def test_records_read_back_as_they_were_packed() -> None:
    records = Records(("a", "b"))
    part = Component(
        raw=0.5, weight=1.0, transformed=0.5, contribution=0.25, status=ScoreStatus.OK, seconds=2.0
    )
    card = ScoreCard(rollout_id="r", reward=None, status="masked", components={"b": part})
    packed = records.pack(
        card, line=7, length=100, file=1, label=True, group=2**64 - 1, answer=3, chars=9
    )
    assert len(packed) == records.size
    (row,) = np.frombuffer(packed, dtype=records.dtype)
    assert (row["line"], row["length"], row["file"], row["label"]) == (7, 100, 1, 1)
    assert (row["group"], row["answer"], row["chars"]) == (2**64 - 1, 3, 9)
    assert np.isnan(row["reward"])
    assert np.isnan(row["0.raw"])
    assert (row["1.raw"], row["1.contribution"], row["1.seconds"]) == (0.5, 0.25, 2.0)


def write(part: Part, number: int) -> None:
    part.write(b"line %d\n" % number, b"%4d" % number)
    part.error(number, "mine", f"reward 'mine' on rollout '{number}': ValueError: no {number}")


def test_what_was_not_flushed_is_written_again(tmp_path: Path) -> None:
    with Part(tmp_path, "part-0") as part:
        write(part, 1)
        part.reject(BadLine.of("in.jsonl", 2, "bad JSON", b"{"))
        part.flush(Place(line=2, sample=1, ordinal=1))
        write(part, 3)  # lost: the process ends here
    # Ends in the middle of writing: bytes behind what the journal knows, and half an entry.
    for kind, torn in (("lines", b"line 3, torn"), ("journal", b"[9, 9, 9")):
        with (tmp_path / f"part-0.{kind}").open("ab") as file:
            file.write(torn)
    assert place_of(tmp_path, "part-0") == Place(line=2, sample=1, ordinal=1)
    assert finished_parts(tmp_path) == set()
    with Part(tmp_path, "part-0") as part:
        assert part.place == Place(line=2, sample=1, ordinal=1)
        write(part, 3)
        part.flush(Place(line=3, sample=1, ordinal=2))
        part.finish(record_size=4)
    assert (tmp_path / "part-0.lines").read_bytes() == b"line 1\nline 3\n"
    assert (tmp_path / "part-0.records").read_bytes() == b"   1   3"
    assert finished_parts(tmp_path) == {"part-0"}
    done = json.loads((tmp_path / "part-0.done").read_text())
    assert (done["num_rows"], done["num_bytes"]) == (2, 14)
    assert done["rejects"] == {"bad JSON": {"count": 1, "lines": [2], "example": "bad JSON"}}
    (kind,) = done["errors"]["mine"]
    assert kind == "ValueError: no N"
    assert done["errors"]["mine"][kind]["lines"] == [1, 3]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("reward 'a' on rollout 'it'\"s: x': TypeError: no 'y' in \"z\"", None),
        ("reward 'a' on rollout '7': TypeError: no 'y' in \"z\"", "TypeError: no '...' in '...'"),
        ("reward 'a' on rollout \"it's\": over 3.5 s", "over N s"),
        ("the gold '12' of 3", "the gold '...' of N"),
    ],
)
def test_errors_are_counted_by_kind(error: str, kind: str | None) -> None:
    assert kind is None or error_kind(error) == kind


def test_an_unchecked_record_equals_a_checked_one() -> None:
    made = unchecked(Task)("2+3?", "5", "here", {"a": 1}, "7")
    assert type(made) is Task
    assert made == Task(prompt="2+3?", answer="5", data_source="here", info={"a": 1}, id="7")
    assert unchecked(Completion)("5") == Completion(text="5")
    with pytest.raises(TypeError, match="info"):  # which a factory makes
        unchecked(Task)("2+3?", "5", "here")
    with pytest.raises(AttributeError):
        made.answer = "6"  # type: ignore[misc]


@pytest.mark.parametrize("harm", ["lines", "journal"])
def test_a_part_that_somebody_cut_is_begun_anew(tmp_path: Path, harm: str) -> None:
    with Part(tmp_path, "part-0") as part:
        part.write(b'{"id": 1}\n', b"record")
        part.flush(Place(line=1, sample=1, ordinal=1))
    assert place_of(tmp_path, "part-0") == Place(line=1, sample=1, ordinal=1)
    part_file(tmp_path, "part-0", harm).write_bytes(b"\xff\n")
    with Part(tmp_path, "part-0") as part:
        assert part.place == Place()
        part.flush(Place())
    assert part_file(tmp_path, "part-0", "lines").read_bytes() == b""


def finish(folder: Path, name: str, line: bytes) -> None:
    with Part(folder, name) as part:
        part.write(line, b"record")
        part.flush(Place(line=1, sample=1, ordinal=1))
        part.finish(record_size=6)


def test_lines_are_joined_in_order_and_stand_on_the_disk_once(tmp_path: Path) -> None:
    first, second, third = part_names(3)
    finish(tmp_path, second, b"two\n")
    finish(tmp_path, first, b"one\n")
    with JoinedLines(tmp_path, finished_parts(tmp_path)) as joined:
        joined.add(first, 0)
        assert not part_file(tmp_path, first, "lines").exists()
        assert JoinedLines.path(tmp_path).read_bytes() == b"one\n"
        assert part_file(tmp_path, second, "lines").read_bytes() == b"two\n"
    # Ends in the middle of joining the second: half of it is behind what is known to be there.
    with JoinedLines.path(tmp_path).open("ab") as file:
        file.write(b"tw")
    finish(tmp_path, third, b"three\n")
    done = finished_parts(tmp_path)
    with JoinedLines(tmp_path, done) as joined:
        for index, name in enumerate((first, second, third)):
            joined.add(name, index)
    assert done == {first, second, third}
    assert JoinedLines.path(tmp_path).read_bytes() == b"one\ntwo\nthree\n"


def test_parts_whose_joined_lines_somebody_cut_are_scored_anew(tmp_path: Path) -> None:
    first, second, third = part_names(3)
    for name in (first, second, third):
        finish(tmp_path, name, name.encode() + b"\n")
    with JoinedLines(tmp_path, finished_parts(tmp_path)) as joined:
        joined.add(first, 0)
        joined.add(second, 1)
    JoinedLines.path(tmp_path).write_bytes(b"part")
    done = finished_parts(tmp_path)
    with JoinedLines(tmp_path, done) as joined:
        assert done == finished_parts(tmp_path) == {third}
        finish(tmp_path, first, b"one\n")
        finish(tmp_path, second, b"two\n")
        for index, name in enumerate((first, second, third)):
            joined.add(name, index)
    assert JoinedLines.path(tmp_path).read_bytes() == b"one\ntwo\n" + third.encode() + b"\n"


def test_a_finished_part_without_its_lines_is_never_passed_over(tmp_path: Path) -> None:
    first, second = part_names(2)
    finish(tmp_path, first, b"one\n")
    finish(tmp_path, second, b"two\n")
    part_file(tmp_path, second, "lines").unlink()
    with JoinedLines(tmp_path, finished_parts(tmp_path)) as joined:
        joined.add(first, 0)
        with pytest.raises(FileNotFoundError):
            joined.add(second, 1)
