"""The figures of an evaluation, by hand."""

from __future__ import annotations

import json

import pytest
from rlgym_llm_trainers.commands.eval_rows import eval_row
from rlgym_llm_trainers.commands.eval_summary import summarize, summary_text

from rlgym_llm.scores import CardStatus, Component, ScoreCard, ScoreStatus
from rlgym_llm.types import Completion, FinishReason, Rollout, RolloutStatus, Task, Turn


def row(task, sample, raw, answer=None, *, source="d", status=RolloutStatus.OK, cut=False, **info):
    """One rollout of two tokens with a raw score (or None, a failed one) and a final answer."""
    finish = FinishReason.LENGTH if cut else FinishReason.STOP
    done = Completion(text="x", token_ids=(1, 2), finish_reason=finish)
    has_ended = status is RolloutStatus.OK
    rollout = Rollout(
        id=f"{task}-{sample}",
        task=Task(prompt=task, data_source=source),
        group_id=task,
        sample_index=sample,
        seed=0,
        turns=(Turn(new_prompt_token_ids=(), completion=done),) if has_ended else (),
        status=status,
        error=None if has_ended else "down",
    )
    component = Component(
        raw=raw,
        weight=2.0,
        transformed=raw,
        contribution=None if raw is None else 2 * raw,
        status=ScoreStatus.ERROR if raw is None else ScoreStatus.OK,
        info={"answer": answer, "answer_form": None, **info},
    )
    is_scored = raw is not None and has_ended
    unscored = CardStatus.FAILED_REWARD if has_ended else CardStatus.FAILED_ROLLOUT
    card = ScoreCard(
        rollout_id=rollout.id,
        reward=2 * raw if is_scored else None,
        status=CardStatus.SCORED if is_scored else unscored,
        components={"right": component} if has_ended else {},
    )
    return eval_row(rollout, card, accuracy="right", right_from=1.0)


def summary(rows, **options):
    defaults = {"num_wanted": len(rows), "num_samples": 4, "ks": (1, 2, 4), "accuracy": "right"}
    found = summarize(rows, **{**defaults, **options})
    json.dumps(found, allow_nan=False)
    return found


TWO_TASKS = [
    row("a", 0, 1.0, "5"),
    row("a", 1, 1.0, "5.0"),
    row("a", 2, 0.0, "7"),
    row("a", 3, 0.0, None),
    row("b", 0, 0.0, "1"),
    row("b", 1, 0.0, "1"),
    row("b", 2, 1.0, "2"),
    row("b", 3, 0.0, "3", cut=True),
]


def test_two_tasks_by_hand():
    found = summary(TWO_TASKS)
    assert found["accuracy"]["mean"] == 3 / 8
    assert found["accuracy"]["count"] == 8
    # a: 1/2, 1 - 1/6, 1; b: 1/4, 1/2, 1
    assert [found["pass@k"][k]["mean"] for k in "124"] == pytest.approx([3 / 8, 2 / 3, 1.0])
    # a: 5 and 5.0 are one vote and win 2:1, b: 1 wins
    assert found["maj@k"]["4"]["mean"] == pytest.approx(0.5)
    assert found["maj@k"]["4"]["count"] == 2
    assert found["reward"]["mean"] == 0.75
    assert found["components"]["right"] == found["accuracy"]
    assert (found["truncated"], found["failed_rollouts"], found["failed_scores"]) == (1, {}, {})
    assert found["is_complete"] is True


def test_what_was_not_scored_is_in_no_mean():
    rows = [
        row("a", 0, 1.0, "5"),
        row("a", 1, None, "5"),
        row("a", 2, None, status=RolloutStatus.GENERATOR_ERROR),
        row("b", 0, 0.0, "1"),
        row("b", 1, 0.0, "1"),
    ]
    found = summary(rows, ks=(1, 2), num_wanted=6)
    assert found["accuracy"]["mean"] == 1 / 3
    assert found["pass@k"]["1"]["mean"] == 0.5
    assert found["pass@k"]["2"] == {"mean": 0.0, "low": 0.0, "count": 1} | {
        "high": pytest.approx(3.8415 / 4.8415, abs=1e-4)
    }
    assert found["failed_rollouts"] == {"generator_error": 1}
    assert found["failed_scores"] == {"right": 1}
    assert [r.has_failed for r in rows] == [False, True, True, False, False]
    assert found["is_complete"] is False


def test_normal_forms_are_the_votes():
    rows = [
        row("a", 0, 1.0, "3"),
        row("a", 1, 0.0, "1/2", answer_form="1/2"),
        row("a", 2, 0.0, "0.5", answer_form="1/2"),
    ]
    assert summary(rows, ks=(3,))["maj@k"]["3"]["mean"] == 0.0


def test_without_answers_the_texts_vote_and_without_accuracy_there_is_no_share():
    silent = [
        eval_row(
            Rollout(
                id=f"{i}",
                task=Task(prompt="q"),
                group_id="g",
                sample_index=i,
                seed=0,
                turns=(Turn(new_prompt_token_ids=(), completion=Completion(text=text)),),
            ),
            ScoreCard(
                rollout_id=f"{i}",
                reward=0.5,
                status=CardStatus.SCORED,
                components={
                    "right": Component(
                        raw=0.5,
                        weight=1.0,
                        transformed=0.5,
                        contribution=0.5,
                        status=ScoreStatus.OK,
                    )
                },
            ),
            accuracy="right",
            right_from=1.0,
        )
        for i, text in enumerate(["seven ", "eight"])
    ]
    assert [one.answer for one in silent] == ["seven", "eight"]
    found = summary(silent, ks=(1,))
    assert found["maj@k"]["1"]["mean"] == 0.0
    assert found["pass@k"]["1"]["mean"] == 0.0  # half right is not right
    found = summary(silent, ks=(1,), accuracy=None)
    assert (found["accuracy"], found["pass@k"], found["maj@k"]) == (None, None, None)
    assert found["reward"]["mean"] == 0.5


def test_several_data_sources_are_told_apart():
    found = summary([row("a", 0, 1.0), row("b", 0, 0.0, source="e")], ks=(1,))
    by_source = found["accuracy_by_data_source"]
    assert (by_source["d"]["mean"], by_source["e"]["mean"]) == (1.0, 0.0)
    assert "accuracy_by_data_source" not in summary(TWO_TASKS)


def test_speed_is_tokens_over_the_seconds_that_sampled_them():
    found = summary(TWO_TASKS, totals={"num_tokens": 300, "gen_s": 1.5, "score_s": 9})
    assert found["timing"]["tokens_per_second"] == 200
    assert summary(TWO_TASKS)["timing"]["tokens_per_second"] is None


def test_text_for_people():
    text = summary_text(summary(TWO_TASKS, about={"env": "sums", "model": "starter"}))
    assert text.splitlines()[0] == "sums, model starter: 2 tasks, 4 responses each"
    assert "accuracy         37.5%  [" in text
    assert "pass@4           100.0%  [34.2%, 100.0%]" in text
    assert "truncated        1 of 8 rollouts" in text
    assert "so far" in summary_text(summary(TWO_TASKS, num_wanted=12))
    assert "accuracy" not in summary_text(summary([], num_wanted=12))
