from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlgym_llm_rewards.format import Format
from rlgym_llm_rewards.format_demands import is_blank, tag_demands
from rlgym_llm_rewards.math.extraction.extract import extract
from rlgym_llm_rewards.math.policy import Policy

from rlgym_llm.errors import ConfigError
from rlgym_llm.rewards import RewardContext, build_reward
from rlgym_llm.scores import Score
from rlgym_llm.types import Completion, Rollout, Task, Turn


def score(text: str, style: str, **options: Any) -> Score:
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


@pytest.mark.parametrize(
    ("style", "text"),
    [
        ("think", "<think></think>a"),
        ("think", "<think>\u200b \u2800</think>a"),  # characters that show nothing
        ("think", "<think>a</think>"),
        ("think", "<think>a</think> \n"),
        ("think", "a<think>b</think>c"),
        ("think", "<think>a</think><think>b</think>c"),
        ("think", "<think>a</think>b</think>c"),
        ("think", "<think>the answer is 5"),
        ("think", "<THINK>a</THINK><think>a</think>b"),
        ("think_answer", "<think></think>a"),
        ("think_answer", "<think>a</think><answer><think>b</think>7</answer>"),
        ("think_answer", "<think>a</think><answer>7</answer><answer>7</answer>"),
        ("think_answer", "<think>a<answer>7</answer></think>"),
        ("think_answer", "<think>a</think><answer>7</Answer></answer>"),
        ("think_answer", "<think>a</think><answer>7<answer ></answer>"),
        ("think_answer", '<think>a</think><answer class="x">8</answer><answer>7</answer>'),
        ("think_answer", "<think>a</think><answer>7</answer"),
        ("hash", "<think>\n#### 5\n</think>"),
        ("hash", "<think>so\n#### 5"),
        ("hash", "<think>a</think>\n#### 5\n<think>"),
        ("hash", "<think>a</think><think>b</think>\n#### 5"),
        ("hash", "a</think>b</think>\n#### 5"),
        ("hash", "a\n#### <answer>5</answer>"),
        ("boxed", r"<think>\boxed{5}</think>"),
        ("boxed", r"<think>\boxed{5}</think> so 5"),
        ("boxed", r"<think>so \boxed{5}"),
        ("boxed", r"\boxed{5}<think>"),
        ("boxed", r"\boxed{<think>a</think>5}"),
        ("boxed", r"\boxed{<answer>5</answer>}"),
        ("boxed", r"\boxed{5} or \fbox{6}"),
        ("boxed", "\\boxed{\u200b}"),
    ],
)
def test_hacks_earn_nothing(style, text):
    found = score(text, style)
    assert found.value == 0.0
    assert found.info["reason"]


@pytest.mark.parametrize(
    ("style", "text"),
    [
        ("think", "<think>a\nb</think>\n\n7"),
        ("hash", "<think>a</think>\nso\n#### 5"),
        ("boxed", r"<think>first \boxed{4}, no: \boxed{5}</think> It is \boxed{5}."),
        ("boxed", r"a</think> \boxed{5}"),
        ("boxed", "<think>\n\n</think>\n\\boxed{5}"),  # no thinking is asked for
    ],
)
def test_thinking_stands_apart_from_the_answer(style, text):
    assert score(text, style).value == 1.0


def test_thinking_is_reasoning():
    assert score(r"<think>a</think>\boxed{5}", "boxed", require_reasoning=True).value == 1.0
    assert score(r"<think> </think>\boxed{5}", "boxed", require_reasoning=True).value == 0.0
    assert score("<think>a</think>\n#### 5", "hash", require_reasoning=True).value == 1.0
    assert score("<think>\n</think>\n#### 5", "hash", require_reasoning=True).value == 0.0


@pytest.mark.parametrize(
    ("style", "text", "value"),
    [
        ("think", "a</think>7", 1.0),
        ("think", "<think>a</think>7", 0.0),
        ("think", "</think>7", 0.0),
        ("think", "7", 0.0),
        ("think_answer", "a</think>\n<answer>7</answer>", 1.0),
        ("think_answer", "a</think></think><answer>7</answer>", 0.0),
        ("hash", "a\n#### 5", 0.0),  # it never stopped thinking
        ("hash", "a</think>\n#### 5", 1.0),
        ("boxed", r"a</think>\boxed{5}", 1.0),
        ("boxed", r"<think>a</think>\boxed{5}", 0.0),
        ("boxed", r"a \boxed{5}", 0.0),
    ],
)
def test_the_prompt_may_open_the_thinking(style, text, value):
    assert score(text, style, opened_by_prompt=True).value == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("<plan>a</plan>\n<code>b</code> <answer>c</answer>", 1.0),
        ("<plan></plan><code>b</code><answer>c</answer>", 1.0),
        ("<plan>a</plan><code> </code><answer>c</answer>", 0.0),
        ("<code>b</code><plan>a</plan><answer>c</answer>", 0.0),
        ("<plan>a</plan><answer>c</answer>", 0.0),
        ("<plan>a</plan><code>b</code>, <answer>c</answer>", 0.0),
        ("<plan>a<code>b</plan></code><answer>c</answer>", 0.0),
        ("<plan>a</plan><code>b</code></answer><answer>c", 0.0),
        ("<plan>a<plans></plan><code>b</code><answer>c</answer>", 1.0),  # another tag
    ],
)
def test_tags(text, value):
    tags = ("plan", "code", "answer")
    assert score(text, "tags", tags=tags, may_be_empty=("plan",)).value == value


def test_text_after_the_tags():
    asked = {"tags": ("plan",), "text_after": True}
    assert score("<plan>a</plan> done", "tags", **asked).value == 1.0
    assert score("<plan>a</plan> ", "tags", **asked).value == 0.0
    assert score("<plan>a</plan> done", "tags", tags=("plan",)).value == 0.0


@pytest.mark.parametrize(
    ("style", "text", "met", "demands"),
    [
        # think once, answer once, each not empty, in order, nothing outside
        ("think_answer", "<think>a</think><answer>7</answer>", 6, 6),
        ("think_answer", "<think>a</think><answer>7</answer> bye", 5, 6),
        ("think_answer", "<think></think><answer>7</answer>", 5, 6),
        ("think_answer", "<answer>7</answer><think>a</think>", 4, 6),
        ("think_answer", "<think>a</think>", 2, 6),
        ("think_answer", "<think></think>a", 1, 6),
        ("think_answer", "", 0, 6),
        # think once, not empty, in order, nothing outside, text behind
        ("think", "<think>a</think>", 4, 5),
        ("boxed", r"\boxed{1} or \boxed{2}", 1, 2),
        ("boxed", r"\boxed{", 0, 2),
        ("hash", "#### 1\n#### 1", 1, 2),
        ("hash", "", 0, 2),
    ],
)
def test_partial_credit_is_the_share_of_demands_met(style, text, met, demands):
    found = score(text, style, credit="partial")
    assert found.value == met / demands
    assert (found.info["met"], found.info["demands"]) == (met, demands)
    assert score(text, style).value == float(met == demands)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"style": "tags"}, "style tags needs tags"),
        ({"style": "hash", "tags": ["a"]}, "style hash takes no tags"),
        ({"style": "tags", "tags": ["<a>"]}, "'<a>' is no tag's name"),
        ({"style": "tags", "tags": ["a", "A"]}, "a tag is repeated"),
        ({"style": "think", "may_be_empty": ["answer"]}, "may_be_empty names 'answer'"),
        ({"style": "think", "require_reasoning": True}, "takes no require_reasoning"),
        ({"style": "boxed", "text_after": True}, "takes no text_after"),
        ({"style": "xml"}, "option 'style'"),
    ],
)
def test_options_that_do_not_go_together(options, message):
    with pytest.raises(ConfigError, match=message):
        build_reward(Format, options)


@given(st.text(alphabet="</thinkaswer> \n", max_size=60))
def test_strict_is_partial_in_full(text):
    for style in ("think", "think_answer", "hash", "boxed"):
        partial = score(text, style, credit="partial").value
        assert partial is not None
        assert 0.0 <= partial <= 1.0
        assert score(text, style).value == float(partial == 1.0)


def test_of_all_orders_only_the_right_one_is_met():
    # Two parts and a space: 2520 texts, of which the space's 7 places in the right order are met.
    texts = {
        "".join(pieces) for pieces in permutations(["<a>", "</a>", "<b>", "</b>", "x", "x", " "])
    }
    assert len(texts) == 2520
    met = {text for text in texts if all(d.is_met for d in tag_demands(text, ("a", "b")))}
    right = ["<a>", "x", "</a>", "<b>", "x", "</b>"]
    assert met == {"".join([*right[:place], " ", *right[place:]]) for place in range(7)}


def test_blank():
    assert is_blank("\x00\u200b\u3164\n")
    assert not is_blank("-")


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
