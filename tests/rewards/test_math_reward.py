import pytest
from rlgym_llm_rewards.math import Math

from rlgym_llm.errors import ConfigError
from rlgym_llm.rewards import RewardContext, build_reward
from rlgym_llm.score import score_rollouts
from rlgym_llm.scores import Score, ScoreStatus
from rlgym_llm.types import Completion, Rollout, Task, Turn


def score(text: str, answer: str | None, **options: str) -> Score:
    turn = Turn(new_prompt_token_ids=(), completion=Completion(text=text))
    rollout = Rollout(
        id="r0",
        task=Task(prompt="?", answer=answer, id="t0"),
        group_id="g",
        sample_index=0,
        seed=0,
        turns=(turn,),
    )
    return score_rollouts(build_reward(Math, options), [rollout], RewardContext())[0]


@pytest.mark.parametrize(
    ("text", "value", "info"),
    [
        ("a\n#### 72", 1.0, {"status": "correct", "answer": "72", "where": "hash"}),
        (r"\boxed{7}", 0.0, {"status": "wrong", "answer": "7", "where": "boxed"}),
        ("72", 1.0, {"status": "correct", "answer": "72", "where": "text"}),
        ("I do not know.", 0.0, {"status": "no_answer", "answer": None, "where": None}),
        ("#### ?", 0.0, {"status": "unparsable", "answer": "?", "where": "hash"}),
    ],
)
def test_scores(text, value, info):
    found = score(text, "He sold 72.\n#### 72")
    assert found.value == value
    assert {key: found.info[key] for key in info} == info
    assert set(found.info) >= {"rule", "answer_form", "gold", "gold_form", "reason"}


def test_extraction_is_an_option():
    assert score("it is 72", "72").value == 1.0
    assert score("it is 72", "72", extraction="strict").value == 0.0
    with pytest.raises(ConfigError, match=r"'math', option 'extraction'.*'lenient'"):
        build_reward(Math, {"extraction": "loose"})


@pytest.mark.parametrize("gold", ["", "1/0", r"\frac{1", r"\frac{" + "x+" * 400], ids=len)
def test_a_bad_gold_is_an_error_and_no_reward(gold):
    found = score("#### 72", gold)
    assert (found.value, found.status) == (None, ScoreStatus.ERROR)
    assert found.info["status"] == "bad_gold"
    assert found.error is not None
    assert found.error.startswith("reward 'math' on rollout 'r0': the gold answer ")
    assert "of task t0 cannot be used: " in found.error
    assert len(found.error) < 300


def test_a_missing_gold_is_an_error_and_no_reward():
    found = score("#### 72", None)
    assert (found.value, found.status) == (None, ScoreStatus.ERROR)
    assert "needs the column 'answer'" in (found.error or "")
