import dataclasses
import math
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlgym_llm_rewards.length import Length
from rlgym_llm_rewards.length_curves import cosine, group_relative, soft_overlong

from rlgym_llm.errors import ConfigError
from rlgym_llm.rewards import RewardContext, build_reward
from rlgym_llm.score import score_rollouts
from rlgym_llm.scores import ScoreStatus
from rlgym_llm.types import Completion, Rollout, RolloutGroup, Task, Turn


def rollout(*turns: tuple[str, int]) -> Rollout:
    made = tuple(
        Turn(
            new_prompt_token_ids=(9, 9, 9),
            completion=Completion(text=text, token_ids=tuple(range(num_tokens))),
        )
        for text, num_tokens in turns
    )
    task = Task(prompt="?", answer="5")
    return Rollout(id="r", task=task, group_id="g", sample_index=0, seed=0, turns=made)


@pytest.mark.parametrize(
    ("unit", "value"),
    # 3 + 2 sampled tokens (the prompt's 3 a turn do not count); "five\nsix" is 8 characters.
    [("tokens", 5.0), ("chars", 8.0), ("words", 2.0), ("turns", 2.0)],
)
def test_units(unit, value):
    assert Length(unit=unit).score(rollout(("five", 3), ("six", 2)), RewardContext()) == value


def test_nothing_is_nothing():
    assert Length().score(rollout(("", 1)), RewardContext()) == 1.0  # the end-of-text token
    assert Length(unit="chars").score(rollout(("", 1)), RewardContext()) == 0.0


def test_text_without_token_ids_is_no_zero():
    with pytest.raises(ValueError, match="no token ids; use unit: chars"):
        Length().score(rollout(("five", 0)), RewardContext())
    assert Length(unit="chars").score(rollout(("five", 0)), RewardContext()) == 4.0


def of_chars(*lengths: int, info: dict[str, Any] | None = None) -> list[Rollout]:
    task = Task(prompt="?", answer="5", info=info or {})
    return [
        Rollout(
            id=f"r{index}",
            task=task,
            group_id="g",
            sample_index=index,
            seed=index,
            turns=(Turn(new_prompt_token_ids=(), completion=Completion(text="x" * length)),),
        )
        for index, length in enumerate(lengths)
    ]


def values(options: dict[str, Any], *lengths: int, correct: float | None = 1.0) -> list[Any]:
    reward = build_reward(Length, {"unit": "chars", **options})
    ctx = RewardContext(components={"right": (correct,)})
    return [reward.score(rollout, ctx) for rollout in of_chars(*lengths)]


def test_cosine_of_right_and_wrong():
    options = {"mode": "cosine", "max_len": 1000, "correct": "right"}
    # Halfway stands the mean of both ends; at a quarter (1 + cos 45 degrees) / 2 = 0.853553.
    assert values(options, 0, 500, 1000) == pytest.approx([1.0, 0.75, 0.5])
    assert values(options, 250) == pytest.approx([0.5 + 0.5 * 0.8535533905932737])
    assert values(options, 0, 500, 1000, correct=0.0) == pytest.approx([-1.0, -0.75, -0.5])
    assert values(options, 500, correct=0.5) == pytest.approx([-0.75])
    assert values({**options, "correct_from": 0.5}, 500, correct=0.5) == pytest.approx([0.75])
    assert values(options, 500, correct=None) == [None]


def test_cosine_of_what_reaches_the_limit():
    # arXiv 2502.03373: 2 to 1 for correct ones, -10 to 0 for wrong ones, -10 at the limit.
    options = {
        "mode": "cosine",
        "max_len": 100,
        "correct": "right",
        "value_correct_at_0": 2.0,
        "value_correct_at_max": 1.0,
        "value_wrong_at_0": -10.0,
        "value_wrong_at_max": 0.0,
        "value_exceeded": -10.0,
    }
    assert values(options, 0, 50, 100, 200) == pytest.approx([2.0, 1.5, -10.0, -10.0])
    assert values(options, 0, 50, 100, correct=0.0) == pytest.approx([-10.0, -5.0, -10.0])
    assert build_reward(Length, options).range == (-10.0, 2.0)


def test_a_component_that_was_not_scored_is_an_error():
    options = {"mode": "cosine", "unit": "chars", "max_len": 9, "correct": "right"}
    reward = build_reward(Length, options)
    (rollout,) = of_chars(1)
    with pytest.raises(LookupError, match=r"no component 'right' was scored.*\(scored: none\)"):
        reward.score(rollout, RewardContext())
    two = RewardContext(components={"right": (1.0, 1.0)})
    with pytest.raises(ValueError, match="2 values for 1 rollouts"):
        reward.score(rollout, two)


def test_target():
    assert values({"mode": "target", "target": 100, "factor": 0.01}, 100, 90, 120) == pytest.approx(
        [0.0, -0.1, -0.2]
    )
    assert math.copysign(1, values({"mode": "target", "target": 100}, 100)[0]) == 1  # no -0.0


def test_target_of_a_column():
    reward = build_reward(Length, {"mode": "target", "unit": "chars", "target": "budget"})
    found = score_rollouts(reward, of_chars(90, info={"budget": 100}), RewardContext())
    assert found[0].value == -10.0
    missing, wrong = (
        score_rollouts(reward, of_chars(90, info=info), RewardContext())[0]
        for info in ({}, {"budget": "long"})
    )
    assert missing.status is wrong.status is ScoreStatus.ERROR
    assert "needs the column 'budget'" in str(missing.error)
    assert "column 'budget' holds 'long', no number of chars" in str(wrong.error)


def group_values(lengths: list[int], **options: Any) -> list[Any]:
    correct = options.pop("values", None)
    reward = build_reward(Length, {"mode": "group_relative", "unit": "chars", **options})
    rollouts = tuple(of_chars(*lengths))
    group = RolloutGroup(group_id="g", task=rollouts[0].task, rollouts=rollouts)
    components = {} if correct is None else {"right": tuple(correct)}
    return list(reward.score_group(group, RewardContext(components=components)))


def test_group_relative():
    assert group_values([100, 200, 300]) == [0.5, 0.0, -0.5]
    assert group_values([7, 7, 7]) == [0.0, 0.0, 0.0]
    assert group_values([7]) == [0.0]
    # The short wrong one earns nothing, the long wrong one pays; lengths of both are compared.
    right = {"correct": "right", "values": [0.0, 1.0, 1.0, 0.0]}
    assert group_values([100, 100, 200, 300], **right) == [0.0, 0.5, 0.0, -0.5]


def test_a_sibling_without_verdict_is_not_compared():
    # Of 100, 200 and 400 the last is left out, so that 200 is the longest.
    right = {"correct": "right", "values": [1.0, 1.0, None]}
    assert group_values([100, 200, 400], **right) == [0.5, -0.5, None]
    assert group_values([1, 2], correct="right", values=[None, None]) == [None, None]


@pytest.mark.parametrize(
    ("options", "declared"),
    [
        ({}, ("sample", (0.0, math.inf), ())),
        ({"mode": "cosine", "max_len": 9}, ("sample", (0.5, 1.0), ())),
        ({"mode": "cosine", "max_len": 9, "correct": "c"}, ("sample", (-1.0, 1.0), ("c",))),
        (
            {"mode": "soft_overlong", "max_len": 9, "cache": 3, "factor": 0.25},
            ("sample", (-0.25, 0.0), ()),
        ),
        ({"mode": "group_relative", "correct": "c"}, ("group", (-0.5, 0.5), ("c",))),
        ({"mode": "target", "target": 9}, ("sample", (-math.inf, 0.0), ())),
    ],
)
def test_what_it_declares_follows_from_its_options(options, declared):
    built = build_reward(Length, options)
    copied = pickle.loads(pickle.dumps(built))
    for reward in (built, copied, dataclasses.replace(built)):  # type: ignore[type-var]
        assert (reward.scope, reward.range, reward.uses) == declared


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cache": 3}, "cache is an option of mode soft_overlong, not of linear"),
        ({"correct": "c"}, "correct is an option of mode cosine and group_relative, not of linear"),
        ({"mode": "cosine"}, "mode cosine needs the option max_len"),
        ({"mode": "soft_overlong", "max_len": 9}, "mode soft_overlong needs the option cache"),
        ({"mode": "target"}, "mode target needs the option target"),
        ({"mode": "soft_overlong", "max_len": 3, "cache": 4}, "the cache 4 is longer than max_len"),
        ({"mode": "cosine", "max_len": 9, "value_wrong_at_0": 0.0}, "needs the option correct"),
        ({"mode": "cosine", "max_len": 9, "correct_from": 0.5}, "correct_from needs the option"),
        ({"mode": "group_relative", "correct_from": 0.5}, "correct_from needs the option correct"),
        ({"mode": "cosine", "max_len": 0}, "greater than 0"),
        ({"mode": "soft_overlong", "max_len": 9, "cache": 3, "factor": -1}, "greater than 0"),
        ({"mode": "cosine", "max_len": 9, "value_exceeded": math.nan}, "finite"),
        ({"mode": "cosin"}, "option 'mode'"),
    ],
)
def test_options_that_do_not_go_together(options, message):
    with pytest.raises(ConfigError, match=message):
        build_reward(Length, options)


LENGTHS = st.integers(0, 10_000)


@given(LENGTHS, LENGTHS, st.integers(1, 5000), st.floats(-5, 5), st.floats(-5, 5))
def test_cosine_goes_one_way_and_stays_between_its_ends(one, other, max_len, at_0, at_max):
    short, long = sorted([one, other])
    first, last = (cosine(n, max_len, at_0=at_0, at_max=at_max) for n in (short, long))
    assert min(at_0, at_max) - 1e-9 <= first <= max(at_0, at_max) + 1e-9
    assert (last - first) * (at_max - at_0) >= -1e-9


@given(LENGTHS, LENGTHS, st.integers(1, 5000), st.integers(1, 5000), st.floats(0.01, 9))
def test_soft_overlong_never_rises_and_is_bounded(one, other, max_len, cache, factor):
    short, long = sorted([one, other])
    found = [soft_overlong(n, max_len, cache=cache, factor=factor) for n in (short, long)]
    assert 0.0 >= found[0] >= found[1] >= -factor


@given(st.lists(st.tuples(LENGTHS, st.booleans()), min_size=1, max_size=8))
def test_group_relative_rewards_no_wrong_one_and_is_bounded(siblings):
    lengths, correct = (list(column) for column in zip(*siblings, strict=True))
    found = group_relative(lengths, correct)
    assert all(
        -0.5 <= value <= (0.5 if right else 0.0)
        for value, right in zip(found, correct, strict=True)
    )
    # Twice the lengths are worth the same.
    assert group_relative([2 * n for n in lengths], correct) == pytest.approx(found)


@pytest.mark.data
class TestReports:
    def test_soft_overlong_values(self, bug_report):
        case = bug_report("length-soft_overlong_values")
        given, right = case["input"], case["right"]
        options = {"mode": "soft_overlong", "max_len": given["L_max"], "cache": given["cache"]}
        found = values(options, *given["lengths"])
        assert found == pytest.approx(right["values"]["penalty"], abs=right["tol"])

    def test_soft_overlong_interval(self, bug_report):
        case = bug_report("length-soft_overlong_interval")
        given, right = case["input"], case["right"]
        options = {"mode": "soft_overlong", "max_len": given["L_max"], "cache": given["cache"]}
        found = values(options, given["length"])
        assert found == pytest.approx([right["values"]["penalty"]], abs=right["tol"])

    def test_overlong_factor_cap(self, bug_report):
        case = bug_report("length-overlong_factor_cap")
        given, right = case["input"], case["right"]
        options = {
            "mode": "soft_overlong",
            "max_len": given["L_max"],
            "cache": given["cache"],
            "factor": given["factor"],
        }
        found = values(options, *given["lengths"])
        assert found == pytest.approx(right["values"]["penalty"], abs=right["tol"])

    def test_cosine_not_clamped(self, bug_report):
        case = bug_report("length-cosine_not_clamped")
        given, right = case["input"], case["right"]
        at_max, at_0 = given["correct_range"]
        options = {
            "mode": "cosine",
            "max_len": given["max_len"],
            "value_correct_at_0": at_0,
            "value_correct_at_max": at_max,
        }
        found = values(options, *given["lengths"])
        assert found == pytest.approx(right["values"]["reward"], abs=right["tol"])

    def test_cosine_wrong_answers_direction(self, bug_report):
        case = bug_report("length-cosine_wrong_answers_direction")
        given, right = case["input"], case["right"]
        options = {
            "mode": "cosine",
            "max_len": given["max_len"],
            "correct": "right",
            "value_wrong_at_0": given["wrong"]["at_len_0"],
            "value_wrong_at_max": given["wrong"]["at_max_len"],
        }
        found = values(options, *given["lengths"], correct=0.0)
        assert found == pytest.approx(right["values"]["reward"], abs=right["tol"])
