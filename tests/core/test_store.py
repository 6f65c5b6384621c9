"""Rollouts on disk: equal records back, strict JSON, and files that killed writers left."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlgym_llm.errors import DataError, RlgymError
from rlgym_llm.kept_sets import KeptSets
from rlgym_llm.scores import CardStatus, Component, ScoreCard, ScoreStatus
from rlgym_llm.store import RolloutRecord, RolloutWriter, read_rollouts, write_rollouts
from rlgym_llm.types import Completion, FinishReason, Message, Rollout, RolloutStatus, Task, Turn

TEXT = st.text(max_size=20)
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | NUMBER | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
INFO = st.dictionaries(TEXT, JSON, max_size=3)
IDS = st.lists(st.integers(0, 200_000), max_size=6).map(tuple)
MESSAGES = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=TEXT,
    name=st.none() | TEXT,
    tool_calls=st.lists(INFO, max_size=2).map(tuple),
    tool_call_id=st.none() | TEXT,
)


@st.composite
def completions(draw):
    token_ids = draw(IDS)
    size = len(token_ids)
    per_token = {"min_size": size, "max_size": size}
    return Completion(
        text=draw(TEXT),
        token_ids=token_ids,
        logprobs=draw(st.none() | st.lists(NUMBER, **per_token).map(tuple)),
        token_char_ends=draw(st.none() | st.lists(st.integers(0, 9), **per_token).map(tuple)),
        version_spans=((0, size, draw(st.integers(0, 9))),) if size else (),
        finish_reason=draw(st.sampled_from(FinishReason)),
    )


TURNS = st.builds(
    Turn,
    new_prompt_token_ids=IDS,
    completion=completions(),
    reply=st.lists(MESSAGES, max_size=2).map(tuple),
    env_reward=st.none() | NUMBER,
)
TASKS = st.builds(
    Task,
    prompt=st.text(min_size=1, max_size=9) | st.lists(MESSAGES, min_size=1, max_size=3).map(tuple),
    answer=st.none() | TEXT,
    data_source=TEXT,
    info=INFO,
)


@st.composite
def records(draw):
    status = draw(st.sampled_from(RolloutStatus))
    rollout = Rollout(
        id=draw(TEXT),
        task=draw(TASKS),
        group_id=draw(TEXT),
        sample_index=draw(st.integers(0, 9)),
        seed=draw(st.integers(0, 2**53)),
        turns=tuple(draw(st.lists(TURNS, max_size=2))),
        terminated=draw(st.booleans()),
        truncated=draw(st.booleans()),
        status=status,
        error=None if status is RolloutStatus.OK else draw(TEXT),
    )
    component = Component(
        raw=draw(st.none() | NUMBER),
        weight=draw(NUMBER),
        transformed=draw(st.none() | NUMBER),
        contribution=draw(st.none() | NUMBER),
        status=draw(st.sampled_from(ScoreStatus)).value,
        info=draw(INFO),
        error=draw(st.none() | TEXT),
        seconds=draw(NUMBER),
    )
    card_status = draw(st.sampled_from(CardStatus))
    card = ScoreCard(
        rollout_id=rollout.id,
        reward=draw(NUMBER) if card_status is CardStatus.SCORED else None,
        status=card_status,
        components={draw(TEXT): component},
        error=draw(st.none() | TEXT),
    )
    step = draw(st.none() | st.integers(0, 9))
    return RolloutRecord(rollout=rollout, card=draw(st.sampled_from([None, card])), step=step)


def rollout(text="#### 5", answer="5", **task):
    return Rollout(
        id="r1",
        task=Task(prompt="2 + 3 = ?", answer=answer, **task),
        group_id="g",
        sample_index=0,
        seed=1,
        turns=(Turn(new_prompt_token_ids=(1,), completion=Completion(text=text)),),
        terminated=True,
    )


def card(reward=1.2):
    status = CardStatus.FAILED_REWARD if reward is None else CardStatus.SCORED
    raw = None if reward is None else 1.0
    component = Component(
        raw=raw,
        weight=1.0,
        transformed=raw,
        contribution=raw,
        status=ScoreStatus.ERROR if reward is None else ScoreStatus.OK,
    )
    return ScoreCard(rollout_id="r1", reward=reward, status=status, components={"math": component})


@settings(max_examples=60, deadline=None)
@given(batch=st.lists(records(), max_size=3))
def test_equal_records_come_back(tmp_path_factory, batch):
    path = tmp_path_factory.mktemp("store") / "rollouts.jsonl"
    for record in batch:
        cards = None if record.card is None else [record.card]
        write_rollouts(path, [record.rollout], cards, step=record.step)
    if batch:
        stored = read_rollouts(path)
        assert stored.records == tuple(batch)
        assert stored.torn_line is None
        for was, now in zip(batch, stored.records, strict=True):
            if was.card is not None:
                # Times do not take part in equality, so they are compared by hand.
                assert [c.seconds for c in was.card.components.values()] == [
                    c.seconds for c in now.card.components.values()
                ]


def test_a_line_opens_with_what_people_read(tmp_path):
    path = tmp_path / "rollouts.jsonl"
    write_rollouts(path, [rollout("naïve 中 #### 5")], [card()], step=3)
    text = path.read_text(encoding="utf-8")
    line = json.loads(text)
    assert list(line)[:6] == ["step", "prompt", "completion", "answer", "reward", "components"]
    assert [line[key] for key in list(line)[:6]] == [
        *(3, "2 + 3 = ?", "naïve 中 #### 5", "5", 1.2, {"math": 1.0})
    ]
    assert "naïve 中" in text, "scripts beyond ASCII are readable in the file"


@pytest.mark.parametrize("text", ["\ud800 alone", "a\u2028b\x85c", "\x00\r\n"])
def test_odd_characters_survive(tmp_path, text):
    path = tmp_path / "rollouts.jsonl"
    write_rollouts(path, [rollout(text), rollout("next")])
    assert [r.rollout.text for r in read_rollouts(path).records] == [text, "next"]


@pytest.mark.data
def test_an_unscored_rollout_is_null_and_nan_is_refused(bug_report, tmp_path):
    right = bug_report("data-nan_in_output_json")["right"]["values"]
    path = tmp_path / "rollouts.jsonl"
    write_rollouts(path, [rollout()], [card(None)])

    def refuse(name):
        raise AssertionError(f"{name} is not strict JSON")

    line = json.loads(path.read_text(), parse_constant=refuse)
    assert line["reward"] is right["score"]
    assert line["components"] == {"math": None}
    for bad in (float("nan"), float("inf"), {1, 2}):
        with pytest.raises(DataError, match="rollout r1 cannot be stored"):
            write_rollouts(path, [rollout(), rollout(info={"x": bad})])
    assert len(read_rollouts(path).records) == 1, "a refused batch writes nothing"


@pytest.mark.data
def test_lines_keep_the_order_they_were_given_in(bug_report, tmp_path):
    case = bug_report("data-output_order_and_join_key")
    path = tmp_path / "rollouts.jsonl"
    write_rollouts(path, [rollout(name) for name in case["input"]["ids"]])
    order = [record.rollout.text for record in read_rollouts(path).records]
    assert order == case["right"]["values"]["order"]


def test_lines_that_name_the_kept_tokens_are_read_as_before(tmp_path):
    path = tmp_path / "rollouts.jsonl"
    write_rollouts(path, [rollout()])
    row = json.loads(path.read_text())
    row["rollout"]["turns"][0]["completion"]["kept_token_ids"] = None
    path.write_text(json.dumps(row) + "\n")
    assert read_rollouts(path).records[0].rollout == rollout()


def test_kept_sets_are_left_out(tmp_path):
    path, bare = tmp_path / "rollouts.jsonl", rollout()
    kept = KeptSets.uncut(bare.turns[0].completion.num_tokens)
    completion = replace(bare.turns[0].completion, kept_token_ids=kept)
    cut = replace(bare, turns=(replace(bare.turns[0], completion=completion), *bare.turns[1:]))
    assert cut != bare
    write_rollouts(path, [cut])
    assert "kept_token_ids" not in path.read_text()
    assert read_rollouts(path).records[0].rollout == bare


def test_numpy_numbers_are_stored_as_numbers(tmp_path):
    path = tmp_path / "rollouts.jsonl"
    write_rollouts(path, [rollout(info={"x": np.float32(0.5), "n": np.int64(3)})])
    assert read_rollouts(path).records[0].rollout.task.info == {"x": 0.5, "n": 3}


def test_cards_must_belong_to_their_rollouts(tmp_path):
    with pytest.raises(ValueError, match="do not match"):
        write_rollouts(tmp_path / "r.jsonl", [rollout()], [])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_names_the_file():
    with pytest.raises(RlgymError) as raised, RolloutWriter("/dev/full") as writer:
        writer.write([rollout()])
    assert str(raised.value) == "/dev/full: cannot be written: No space left on device"


def test_a_torn_last_line_is_reported_and_mended(tmp_path):
    path = tmp_path / "rollouts.jsonl"
    write_rollouts(path, [rollout("one"), rollout("two é")])
    whole = path.read_bytes()
    second = whole.index(b"\n") + 1
    # Cut within the second line: in its text, in the middle of a character, before its end.
    for cut in (second + 1, whole.index("é".encode()) + 1, len(whole) - 2):
        path.write_bytes(whole[:cut])
        stored = read_rollouts(path)
        assert [r.rollout.text for r in stored.records] == ["one"]
        assert stored.torn_line == 2
        with RolloutWriter(path) as writer:
            writer.write([rollout("three")])
        stored = read_rollouts(path)
        assert [r.rollout.text for r in stored.records] == ["one", "three"]
        assert stored.torn_line is None


def test_a_whole_last_line_without_its_newline_is_kept(tmp_path):
    path = tmp_path / "rollouts.jsonl"
    write_rollouts(path, [rollout("one")])
    path.write_bytes(path.read_bytes()[:-1])
    assert read_rollouts(path).torn_line is None
    write_rollouts(path, [rollout("two")])
    assert [r.rollout.text for r in read_rollouts(path).records] == ["one", "two"]


def test_bad_lines_and_unknown_versions_name_file_and_line(tmp_path):
    path = tmp_path / "rollouts.jsonl"
    write_rollouts(path, [rollout(), rollout()])
    first, second = path.read_text().splitlines()
    path.write_text(first + "\n" + second.replace('"schema_version": 1', '"schema_version": 9'))
    with pytest.raises(DataError, match=r"jsonl:2: unknown schema_version 9 \(this"):
        read_rollouts(path)
    path.write_text(f'{first}\n{{"a": 1}}\n{second}\n')
    with pytest.raises(DataError, match=r"jsonl:2: not a stored rollout \(KeyError"):
        read_rollouts(path)
    with pytest.raises(DataError, match="cannot be read: No such file"):
        read_rollouts(tmp_path / "gone.jsonl")
