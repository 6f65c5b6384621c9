"""Validation figures: by hand, and missing scores are no zeros."""

from __future__ import annotations

from rlgym_llm_trainers.training.validate import validation_metrics

from rlgym_llm.scores import CardStatus, Component, ScoreCard, ScoreStatus
from rlgym_llm.types import Rollout, Task


def rollout(index, source="d"):
    task = Task(prompt=f"q{index}", answer="1", data_source=source)
    return Rollout(id=str(index), task=task, group_id="g", sample_index=0, seed=0, turns=())


def card(index, math, form):
    def component(value, weight):
        return Component(
            raw=value,
            weight=weight,
            transformed=value,
            contribution=None if value is None else weight * value,
            status=ScoreStatus.ERROR if value is None else ScoreStatus.OK,
        )

    is_scored = math is not None
    return ScoreCard(
        rollout_id=str(index),
        reward=math + 0.2 * form if is_scored else None,
        status=CardStatus.SCORED if is_scored else CardStatus.FAILED_REWARD,
        components={"math": component(math, 1.0), "format": component(form, 0.2)},
    )


def test_accuracy_is_core_the_rest_is_aux_and_missing_scores_leave_the_mean():
    rollouts = [rollout(i) for i in range(3)]
    cards = [card(0, 1.0, 1.0), card(1, 0.0, 1.0), card(2, None, 0.0)]
    metrics = validation_metrics(rollouts, cards, num_samples=1, accuracy="math")
    assert metrics["val-core/d/acc/mean@1"] == 0.5
    assert metrics["val-aux/d/format/mean@1"] == 2 / 3
    assert metrics["val-aux/d/reward/mean@1"] == 0.7
    assert metrics["val-aux/d/unscored_ratio"] == 1 / 3


def test_without_an_accuracy_component_the_reward_is_core():
    metrics = validation_metrics([rollout(0)], [card(0, 1.0, 0.0)], num_samples=2, accuracy=None)
    assert metrics["val-core/d/reward/mean@2"] == 1.0
    assert metrics["val-aux/d/math/mean@2"] == 1.0


def test_data_sources_are_kept_apart():
    rollouts = [rollout(0, "a"), rollout(1, "b")]
    cards = [card(0, 1.0, 1.0), card(1, 0.0, 1.0)]
    metrics = validation_metrics(rollouts, cards, num_samples=1, accuracy="math")
    assert metrics["val-core/a/acc/mean@1"] == 1.0
    assert metrics["val-core/b/acc/mean@1"] == 0.0
