"""Draws follow shares, shares follow success, and both repeat."""

from __future__ import annotations

import json
import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlgym_llm.curriculum import (
    ShareSampler,
    SuccessCurriculum,
    kinds_of_tasks,
    read_curriculum,
)
from rlgym_llm.errors import ConfigError, UserError
from rlgym_llm.types import Task

KINDS = ["easy"] * 50 + ["middle"] * 50 + ["hard"] * 50
SHARES = {"easy": 1.0, "middle": 1.0, "hard": 1.0}


def sampler(curriculum=None, *, seed=0, kinds=KINDS, shares=SHARES):
    return ShareSampler(kinds, shares=shares, curriculum=curriculum, seed=seed)


def test_three_to_one_over_ten_thousand_draws():
    drawn = Counter(
        index < 100
        for step in range(1, 1251)
        for index in sampler(kinds=["a"] * 100 + ["b"] * 100, shares={"a": 3, "b": 1}).draw(step, 8)
    )
    assert abs(drawn[True] / 10_000 - 0.75) < 0.01


def test_shares_that_fill_no_whole_place_are_kept_over_the_steps():
    rare = sampler(kinds=["a"] * 9 + ["b"] * 9, shares={"a": 15, "b": 1})
    counts = [sum(index >= 9 for index in rare.draw(step, 4)) for step in range(1, 4001)]
    assert set(counts) == {0, 1}  # 4/16 of a place: never more than one
    assert abs(sum(counts) / 4000 - 0.25) < 0.03


@settings(deadline=None)
@given(
    shares=st.lists(st.floats(0.01, 100), min_size=1, max_size=5),
    size=st.integers(1, 40),
    step=st.integers(1, 10**6),
    seed=st.integers(0, 2**63 - 1),
)
def test_every_kind_comes_as_often_as_its_share_says_to_the_nearest_whole(shares, size, step, seed):
    kinds = [str(place) for place in range(len(shares)) for _ in range(40)]
    named = {str(place): share for place, share in enumerate(shares)}
    drawn = sampler(kinds=kinds, shares=named, seed=seed).draw(step, size)
    assert len(drawn) == len(set(drawn)) == size  # 40 tasks a kind: none twice
    found = Counter(kinds[index] for index in drawn)
    for kind, share in named.items():
        assert abs(found[kind] - size * share / sum(shares)) < 1 + 1e-9


def test_a_draw_depends_on_seed_step_and_state_only():
    first = sampler(SuccessCurriculum(), seed=1)
    ahead = [first.draw(step, 12) for step in range(1, 6)]
    again = sampler(SuccessCurriculum(), seed=1)
    assert [again.draw(step, 12) for step in (5, 4, 3, 2, 1)] == ahead[::-1]
    assert sampler(SuccessCurriculum(), seed=2).draw(1, 12) != ahead[0]


def test_a_kind_with_too_few_tasks_repeats_them():
    assert sorted(sampler(kinds=["a", "a"], shares={"a": 1}).draw(1, 5)) != [0, 1]
    assert len(sampler(kinds=["a", "a"], shares={"a": 1}).draw(1, 5)) == 5


def test_success_moves_the_shares_to_what_is_learned_from():
    moved = sampler(SuccessCurriculum(target=0.5, width=0.2, floor=0.05))
    # easy is always solved, middle every second time, hard never.
    moved.observe(1, [0, 1, 50, 51, 100, 101], [1.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    assert [moved.rate(kind) for kind in SHARES] == [1.0, 0.5, 0.0]
    far = 0.05 + math.exp(-6.25)  # ((1 - 0.5) / 0.2)^2 = 6.25
    total = 1.05 + 2 * far
    assert moved.shares == pytest.approx(
        {"easy": far / total, "middle": 1.05 / total, "hard": far / total}
    )
    counts = Counter(KINDS[index] for index in moved.draw(2, 100))
    assert counts["middle"] >= 90
    assert moved.metrics()["curriculum/success/middle"] == 0.5
    assert moved.metrics()["curriculum/share/middle"] == pytest.approx(1.05 / total)


def test_a_simulated_learner_is_led_from_level_to_level():
    """Success at a level grows by practice, and only once the level before is mastered."""
    skill = {"easy": 0.4, "middle": 0.0, "hard": 0.0}
    led = sampler(SuccessCurriculum(window=16))
    mostly = []
    for step in range(1, 120):
        drawn = led.draw(step, 12)
        led.observe(step, drawn, [skill[KINDS[index]] for index in drawn])
        counts = Counter(KINDS[index] for index in drawn)
        mostly.append(counts.most_common(1)[0][0])
        for kind, before in (("easy", None), ("middle", "easy"), ("hard", "middle")):
            if before is None or skill[before] > 0.6:
                skill[kind] = min(1.0, skill[kind] + 0.01 * counts[kind])
    assert skill["hard"] > 0.6
    assert [mostly.index(kind) for kind in SHARES] == sorted(mostly.index(k) for k in SHARES)


def test_only_the_window_counts_and_what_is_unknown_is_left_out():
    seen = sampler(SuccessCurriculum(window=2))
    seen.observe(1, [0, 0, 0, 50], [0.0, 1.0, 0.5, None])
    assert seen.rate("easy") == 0.75
    assert seen.rate("middle") is None


def test_a_run_that_goes_on_draws_what_the_whole_one_draws():
    def play(learner, steps):
        drawn = []
        for step in steps:
            drawn.append(learner.draw(step, 8))
            learner.observe(step, drawn[-1], [(index * step) % 3 / 2 for index in drawn[-1]])
        return drawn

    whole = play(sampler(SuccessCurriculum()), range(1, 21))
    first = sampler(SuccessCurriculum())
    assert play(first, range(1, 11)) == whole[:10]
    resumed = sampler(SuccessCurriculum())
    resumed.load(json.loads(json.dumps(first.state())))
    assert play(resumed, range(11, 21)) == whole[10:]


def test_a_state_of_other_tasks_is_refused():
    with pytest.raises(UserError, match="state is of easy, hard, middle, and the tasks are of a"):
        sampler(SuccessCurriculum(), kinds=["a"], shares={"a": 1}).load(
            sampler(SuccessCurriculum()).state()
        )


@pytest.mark.parametrize(
    ("setting", "value"),
    [("target", 1.5), ("width", 0.0), ("window", 0), ("window", 2.0), ("floor", -1.0)],
)
def test_a_number_out_of_range_is_refused(setting, value):
    with pytest.raises(UserError, match=f"curriculum: {setting} must be"):
        SuccessCurriculum(**{setting: value})


def test_kinds_are_levels_members_or_both():
    def task(**info):
        return Task(prompt="?", info=info)

    assert kinds_of_tasks([task(), task()]) == (["all", "all"], {"all": 1.0})
    levels = [task(level=1), task(level=2), task(level=2), task(level=2)]
    assert kinds_of_tasks(levels)[1] == {"level 1": 0.25, "level 2": 0.75}
    mixed = [task(env="a"), task(env="b", level=1), task(env="b", level=2)]
    assert kinds_of_tasks(mixed, {"a": 1.0, "b": 4.0, "gone": 9.0}) == (
        ["a", "b level 1", "b level 2"],
        {"a": 1.0, "b level 1": 2.0, "b level 2": 2.0},
    )


def test_a_curriculum_is_read_from_true_or_its_settings():
    assert read_curriculum(None) is read_curriculum(False) is None
    assert read_curriculum(True) == read_curriculum({}) == SuccessCurriculum()
    assert read_curriculum({"target": 0.7}).target == 0.7
    with pytest.raises(ConfigError, match="did you mean 'target'"):
        read_curriculum({"targets": 0.7})
    with pytest.raises(ConfigError, match="takes true or its settings, got 'yes'"):
        read_curriculum("yes")
