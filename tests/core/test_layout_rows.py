"""Rows into other layouts and back, equal for what the other layout can carry."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlgym_llm import Completion, Message, Rollout, RolloutStatus, ScoreCard, Task, Turn
from rlgym_llm.layouts.layout import recognise
from rlgym_llm.layouts.rows import messages_row, rlgym_row, trl_row
from rlgym_llm.layouts.table import TABLE_TYPES, table_row
from rlgym_llm.layouts.verl import to_verl
from rlgym_llm.scores import CardStatus, Component, ScoreStatus
from rlgym_llm.store import RolloutRecord, encode_record

USER = [{"role": "user", "content": "2+3?"}]


def to_ours(row, **options):
    layout = recognise([row], needs=("prompt",), **options)
    return [rlgym_row(sample, layout) for sample in layout.to_samples(row)]


TEXT = st.text(min_size=1).filter(str.strip)
JSON = st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.integers(), max_size=2)
OURS = st.fixed_dictionaries(
    {"prompt": TEXT | st.just(USER)},
    optional={
        "id": st.integers(0, 2**40) | st.text(min_size=1),
        "answer": st.text() | st.integers(),
        "completion": st.text(),
        "data_source": TEXT.filter(lambda name: name != "unknown"),
        "ability": TEXT.filter(lambda name: name != "unknown"),
        "extra_info": st.dictionaries(st.sampled_from(["split", "index", "level"]), JSON),
        "level": JSON,
        "index": st.integers(),
        "rlgym": JSON,
        "split": st.just("train"),
    },
)


@given(row=OURS, index=st.integers(0, 9))
def test_ours_to_verl_and_back(row, index):
    theirs = json.loads(json.dumps(to_verl(row, index)))
    assert set(theirs) - {"responses"} == {
        *("data_source", "prompt", "ability", "reward_model", "extra_info")
    }
    assert all(set(message) == {"role", "content"} for message in theirs["prompt"])
    assert theirs["reward_model"]["ground_truth"] is None or isinstance(
        theirs["reward_model"]["ground_truth"], str
    )
    [back] = to_ours(theirs)
    assert back == row


def test_verl_to_ours_and_back():
    theirs = {
        "data_source": "openai/gsm8k",
        "prompt": USER,
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": "5"},
        "extra_info": {"split": "train", "index": 7, "answer": "2+3=5\n#### 5", "question": "2+3?"},
    }
    [ours] = to_ours(theirs)
    assert (ours["id"], ours["prompt"], ours["answer"]) == (7, USER, "5")
    assert ours["extra_info"] == theirs["extra_info"]
    assert to_verl(ours, 0) == theirs
    by_model = {**theirs, "reward_model": {"style": "model", "ground_truth": "5", "rubric": "r"}}
    [ours] = to_ours(by_model)
    assert to_verl(ours, 0) == by_model


def test_many_responses_become_many_rows():
    theirs = {
        "prompt": USER,
        "reward_model": {"style": "rule", "ground_truth": "5"},
        "extra_info": {"index": 7},
        "responses": ["5", "6"],
    }
    rows = to_ours(theirs)
    assert [(row["id"], row["completion"]) for row in rows] == [("7-0", "5"), ("7-1", "6")]
    assert all("responses" not in row for row in rows)


@pytest.mark.parametrize("prompt", ["2+3?", USER])
def test_ours_to_trl_and_back(prompt):
    ours = {"id": 1, "prompt": prompt, "completion": "5", "answer": 5, "level": 2}
    theirs = trl_row(ours)
    # Both text or both messages, as TRL demands.
    assert type(theirs["prompt"]) is type(theirs["completion"])
    assert to_ours(theirs) == [ours]
    task = {"prompt": prompt, "answer": "5"}
    assert trl_row(task) == task


def test_ours_to_messages_and_back():
    ours = {"id": 1, "prompt": USER, "completion": "5", "answer": 5}
    theirs = messages_row(ours)
    assert theirs["messages"] == [*USER, {"role": "assistant", "content": "5"}]
    assert to_ours(theirs) == [ours]
    assert messages_row({"prompt": "2+3?"}) == {"messages": USER}


def rollout(**fields):
    turns = (
        Turn(
            new_prompt_token_ids=(1, 2),
            completion=Completion(
                text="4 5", token_ids=(4, 5), logprobs=(-0.5, -0.25), version_spans=((0, 2, 3),)
            ),
            reply=(Message(role="user", content="6"),),
        ),
        Turn(
            new_prompt_token_ids=(6,),
            completion=Completion(
                text="7", token_ids=(7,), logprobs=(-1.0,), version_spans=((0, 1, 4),)
            ),
        ),
    )
    task = Task(prompt=(Message(role="user", content="2+3?"),), answer="5", info={"level": 2})
    common = {
        "id": "r0",
        "turns": turns,
        "group_id": "g0",
        "sample_index": 1,
        "seed": 0,
        "terminated": True,
    }
    return Rollout(task=task, **{**common, **fields})


def card(reward):
    component = Component(
        raw=reward, weight=1.0, transformed=reward, contribution=reward, status=ScoreStatus.OK
    )
    return ScoreCard(
        rollout_id="r0", reward=reward, status=CardStatus.SCORED, components={"math": component}
    )


def stored(found, found_card, **more):
    record = RolloutRecord(rollout=found, card=found_card, step=12)
    return {**json.loads(json.dumps(encode_record(record))), **more}


def test_a_rollout_as_a_row_of_the_table():
    # Prompt [1, 2], sampled [4, 5], the environment adds [6], sampled [7].
    row = stored(rollout(), card(1.0), advantage=1, values=[0.1, 0.2, 0.3, 0.4], host="node-1")
    layout = recognise([row])
    [sample] = layout.to_samples(row)
    assert table_row(sample, layout) == {
        "id": "r0",
        "group_id": "g0",
        "sample_index": 1,
        "step": 12,
        "data_source": "unknown",
        "prompt": USER,
        "response": "4 5\n7",
        "answer": "5",
        "reward": 1.0,
        "advantage": 1.0,
        "length": 3,
        "prompt_length": 2,
        "num_turns": 2,
        "finish_reason": "stop",
        "terminated": True,
        "truncated": False,
        "status": "ok",
        "error": None,
        "min_policy_version": 3,
        "max_policy_version": 4,
        "prompt_token_ids": [1, 2],
        "token_ids": [4, 5, 6, 7],
        "mask": [True, True, False, True],
        "logprobs": [-0.5, -0.25, None, -1.0],
        "ref_logprobs": None,
        "values": [0.1, 0.2, 0.3, 0.4],
        "advantages": None,
        "weight_versions": [3, 3, None, 4],
        "components": {"math": 1.0},
        "level": 2,
        "host": "node-1",
    }


def test_a_failed_rollout_in_the_table():
    found = rollout(turns=(), status=RolloutStatus.TIMEOUT, error="took too long", terminated=False)
    row = stored(found, None)
    layout = recognise([row])
    [sample] = layout.to_samples(row)
    made = table_row(sample, layout)
    assert (made["status"], made["error"], made["response"]) == ("timeout", "took too long", "")
    assert (made["reward"], made["finish_reason"], made["length"]) == (None, None, 0)
    assert (made["token_ids"], made["logprobs"], made["weight_versions"]) == ([], None, None)


def test_plain_rows_in_the_table_have_every_column():
    row = {"question": "q", "output": "c", "score": 1, "log_probs": [-0.5], "completion_ids": [7]}
    layout = recognise([row])
    [sample] = layout.to_samples(row)
    made = table_row(sample, layout)
    assert set(made) == set(TABLE_TYPES)
    assert (made["prompt"], made["response"], made["reward"]) == ("q", "c", 1.0)
    assert (made["token_ids"], made["logprobs"], made["mask"]) == ([7], [-0.5], [True])
    assert made["length"] == 1


def test_a_rollout_as_a_row_of_ours():
    row = stored(rollout(), card(1.0))
    assert to_ours(row) == [
        {
            "id": "r0",
            "prompt": USER,
            "completion": "4 5\n7",
            "answer": "5",
            "group_id": "g0",
            "sample_index": 1,
            "reward": 1.0,
            "step": 12,
            "level": 2,
        }
    ]
