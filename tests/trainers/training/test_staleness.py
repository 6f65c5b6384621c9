"""How old samples are: by the versions that sampled them, at the moment they are trained on."""

from __future__ import annotations

import pytest
from rlgym_llm_trainers.training.staleness import staleness_metrics

from rlgym_llm.types import Completion, Rollout, Task, Turn

PREFIX = "training/off_policy/trajectory"


def rollout(*spans_of_turns):
    """A rollout whose turns were sampled under these (start, end, version) spans."""
    turns = tuple(
        Turn(
            new_prompt_token_ids=(1,),
            completion=Completion(
                text="x",
                token_ids=(7,) * max((end for _, end, _ in spans), default=0),
                version_spans=spans,
            ),
        )
        for spans in spans_of_turns
    )
    return Rollout(id="r", task=Task(prompt="?"), group_id="g", sample_index=0, seed=0, turns=turns)


def figures(rollouts, version):
    found = staleness_metrics(rollouts, version)
    return {name.removeprefix(f"{PREFIX}_"): value for name, value in found.items()}


def test_newest_oldest_and_the_span_between_them():
    metrics = figures([rollout([(0, 4, 3), (4, 6, 4)]), rollout([(0, 5, 6)])], version=6)
    assert metrics == {
        "staleness/mean": 1.0,  # 6 - 4 and 6 - 6
        "staleness/max": 2.0,
        "staleness/min": 0.0,
        "staleness_worst/mean": 1.5,  # 6 - 3 and 6 - 6
        "staleness_worst/max": 3.0,
        "staleness_worst/min": 0.0,
        "spans/mean": 1.5,  # versions 3 to 4, and 6
        "spans/max": 2.0,
        "spans/min": 1.0,
    }


def test_all_turns_of_a_rollout_count():
    metrics = figures([rollout([(0, 2, 1)], [(0, 3, 2)], [(0, 1, 4)])], version=4)
    assert (metrics["staleness/max"], metrics["staleness_worst/max"]) == (0.0, 3.0)
    assert metrics["spans/max"] == 4.0


def test_time_in_the_queue_counts_though_no_update_fell_into_the_sampling():
    # Sampled at one go under version 3, trained three updates later.
    metrics = figures([rollout([(0, 8, 3)])], version=6)
    assert metrics["staleness/max"] == 3.0
    assert metrics["spans/max"] == 1.0


def test_rollouts_without_a_sampled_token_are_in_no_mean():
    empty = rollout([(0, 0, 9)])
    assert staleness_metrics([empty, rollout()], version=2) == {}
    assert figures([empty, rollout([(0, 1, 2)])], version=2)["staleness/mean"] == 0.0


def test_a_token_of_the_future_is_an_error():
    with pytest.raises(ValueError, match="policy version 3, but the learner has 2"):
        staleness_metrics([rollout([(0, 1, 3)])], version=2)
