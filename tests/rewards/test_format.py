import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlgym_llm_rewards.format import Format
from rlgym_llm_rewards.math.extraction.extract import extract
from rlgym_llm_rewards.math.policy import Policy

from rlgym_llm.rewards import RewardContext
from rlgym_llm.types import Completion, Rollout, Score, Task, Turn


def score(text: str, style: str, **options: bool) -> Score:
    turn = Turn(new_prompt_token_ids=(), completion=Completion(text=text))
    task = Task(prompt="?", answer="5")
    rollout = Rollout(id="r", task=task, group_id="g", sample_index=0, seed=0, turns=(turn,))
    return Format(style=style, **options).score(rollout, RewardContext())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12 + 60 = 72\n#### 72", 1.0),
        ("a\n#### $1,234.50\n\n", 1.0),
        ("a\r\n#### 72\r\n", 1.0),
        ("#### 72", 1.0),
        ("a\n  #### 72  ", 1.0),
        ("a #### 72", 0.0),
        ("a\n#### 72\nbye", 0.0),
        ("a\n#### 72 apples", 0.0),
        ("a\n####", 0.0),
        ("#### 72\n#### 72", 0.0),
        ("#### 71\nno:\n#### 72", 0.0),
        ("#### Step 1\nadd\n#### 72", 1.0),
        ("a\n##### 72", 0.0),
        ("72", 0.0),
        ("", 0.0),
    ],
)
def test_hash(text, value):
    found = score(text, "hash")
    assert found.value == value
    assert (found.info["reason"] is None) == (value == 1.0)


def test_hash_may_ask_for_reasoning():
    assert score("#### 72", "hash", require_reasoning=True).value == 0.0
    assert score("so\n#### 72", "hash", require_reasoning=True).value == 1.0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"so \boxed{72}.", 1.0),
        (r"so \boxed{\frac{1}{2}}", 1.0),
        (r"\boxed{1} or \boxed{2}", 0.0),
        (r"\boxed{1} or \boxed{2", 0.0),
        (r"\boxed{\boxed{1}}", 0.0),
        (r"\boxed{ }", 0.0),
        (r"\boxed{1", 0.0),
        ("1", 0.0),
    ],
)
def test_boxed(text, value):
    assert score(text, "boxed").value == value


def test_boxed_may_ask_for_reasoning():
    assert score(r"\boxed{1}", "boxed", require_reasoning=True).value == 0.0
    assert score(r"so \boxed{1}", "boxed", require_reasoning=True).value == 1.0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("<think>a</think><answer>7</answer>", 1.0),
        ("\n<think>\na\nb\n</think>\n\n<answer>\n7\n</answer>\n", 1.0),
        ("<think></think>a", 0.0),
        ("<think> \n</think><answer>7</answer>", 0.0),
        ("<think>a</think><answer> </answer>", 0.0),
        ("<answer>7</answer><think>a</think>", 0.0),
        ("<think>a<answer>7</answer></think>", 0.0),
        ("hm <think>a</think><answer>7</answer>", 0.0),
        ("<think>a</think><answer>7</answer> bye", 0.0),
        ("<think>a</think><answer>7</answer><answer>8</answer>", 0.0),
        ("<think><think>a</think><answer>7</answer>", 0.0),
        ("<think>a</think>", 0.0),
        ("", 0.0),
    ],
)
def test_think_answer(text, value):
    assert score(text, "think_answer").value == value


def test_the_last_turn_is_read():
    turns = tuple(
        Turn(new_prompt_token_ids=(), completion=Completion(text=text))
        for text in ("let me look", "so\n#### 5")
    )
    task = Task(prompt="?", answer="5")
    rollout = Rollout(id="r", task=task, group_id="g", sample_index=0, seed=0, turns=turns)
    assert Format(style="hash").score(rollout, RewardContext()).value == 1.0


@given(st.text(alphabet="#12 \n.a"))
def test_what_has_the_hash_style_has_a_marked_answer(text):
    if score(text, "hash").value == 1.0:
        found = extract(text, Policy())
        assert found is not None
        assert found.where == "hash"


@pytest.mark.data
class TestReports:
    def test_newline_needs_dotall(self, bug_report):
        case = bug_report("format-newline_needs_dotall")
        found = score(case["input"]["completion"], "think_answer")
        assert found.value == case["right"]["values"]["score"]

    def test_duplicate_close_tag(self, bug_report):
        case = bug_report("format-duplicate_close_tag")
        found = score(case["input"]["completion"], "think_answer")
        assert found.value == case["right"]["values"]["score"]
        assert "</answer>" in found.info["reason"]

    def test_whitespace_between_blocks(self, bug_report):
        case = bug_report("format-whitespace_between_blocks")
        found = [score(text, "think_answer").value for text in case["input"]["completions"]]
        assert found == case["right"]["values"]["scores"]
