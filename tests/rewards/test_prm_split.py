import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlgym_llm_rewards.prm import split_rollout, split_text
from rlgym_llm_rewards.prm.splitters import check_split

from rlgym_llm.errors import UserError
from rlgym_llm.types import Completion, Rollout, Task, Turn

SPLITS = ("newline", "blank_line", "sentence", "step")


def rollout(*texts: str) -> Rollout:
    turns = tuple(Turn(new_prompt_token_ids=(), completion=Completion(text=t)) for t in texts)
    task = Task(prompt="?", answer="5")
    return Rollout(id="r", task=task, group_id="g", sample_index=0, seed=0, turns=turns)


def pieces(text, split, pattern=None):
    return [text[start:end] for start, end in split_text(text, split, pattern)]


@pytest.mark.parametrize(
    ("split", "pattern", "text", "steps"),
    [
        ("newline", None, "\n a \n\n\tb\n", ["a", "b"]),
        ("newline", None, "", []),
        ("newline", None, " \n\t\r\n", []),
        ("blank_line", None, "a\nb\n \n\n\nc", ["a\nb", "c"]),
        ("sentence", None, "He has 3.5 kg. Is it 4? No!", ["He has 3.5 kg.", "Is it 4?", "No!"]),
        ("sentence", None, "1. Add 2. 2. Stop.", ["1. Add 2.", "2. Stop."]),
        ("sentence", None, "Buy it, e.g. now, Mr. Lee. Two", ["Buy it, e.g. now, Mr. Lee.", "Two"]),
        ("sentence", None, "一共5个。再加1个！完", ["一共5个。", "再加1个！", "完"]),
        ("step", None, "H.\nStep 1: a\nb\n**Step 2.** c", ["H.", "Step 1: a\nb", "**Step 2.** c"]),
        # In the middle of a line it opens nothing.
        (
            "step",
            None,
            "step 1) a\n# Step 12: b\nin step 3: c",
            ["step 1) a", "# Step 12: b\nin step 3: c"],
        ),
        ("step", None, "### Step 1\na\n### Step 2 Add\nb", ["### Step 1\na", "### Step 2 Add\nb"]),
        ("step", None, "Step one: a\nSTEP TWO - b", ["Step one: a", "STEP TWO - b"]),
        ("step", None, "Step 1\r\na\nStep 2\nb", ["Step 1\r\na", "Step 2\nb"]),
        ("step", None, "- Step #1: a\n## **Step (2)** b", ["- Step #1: a", "## **Step (2)** b"]),
        ("step", None, "Step IV: a\n__Step v__ b", ["Step IV: a", "__Step v__ b"]),
        # What only speaks of a step opens none.
        ("step", None, "a\nStep 1 was so.\nStep ones: b", ["a\nStep 1 was so.\nStep ones: b"]),
        ("step", None, "a\n#### 6\nStep by step: b", ["a\n#### 6\nStep by step: b"]),
        ("regex", r"\s*;\s*", "a ; b;c", ["a", "b", "c"]),
        ("regex", r"(?=^\d+\. )", "1. a\n2. b", ["1. a", "2. b"]),
        ("separator", "<extra_0>", "a<extra_0> b<extra_0>", ["a", "b"]),
        ("separator", "ки", "a ки\nb ки", ["a", "b"]),
    ],
)
def test_splits(split, pattern, text, steps):
    assert pieces(text, split, pattern) == steps


TEXTS = st.text(alphabet="ab .\n\t!?1:Step*\u2028。", max_size=60)


@given(texts=st.lists(TEXTS, min_size=1, max_size=3), split=st.sampled_from(SPLITS))
def test_spans_are_exact_ordered_and_within_their_turn(texts, split):
    episode = rollout(*texts)
    steps = split_rollout(episode, split)
    starts = [sum(len(text) + 1 for text in texts[:turn]) for turn in range(len(texts))]
    end = 0
    for step in steps:
        assert episode.text[step.char_start : step.char_end] == step.text == step.text.strip() != ""
        assert end <= step.char_start
        end = step.char_end
        assert starts[step.turn] <= step.char_start
        assert step.char_end <= starts[step.turn] + len(texts[step.turn])


@given(texts=st.lists(TEXTS, min_size=1, max_size=3), split=st.sampled_from(SPLITS))
def test_nothing_but_white_space_is_lost(texts, split):
    kept = "".join(step.text for step in split_rollout(rollout(*texts), split))
    assert "".join(kept.split()) == "".join("".join(texts).split())


def test_turns_are_never_joined():
    steps = split_rollout(rollout("a\nb", "c"), "blank_line")
    assert [(s.text, s.turn, s.char_start, s.char_end) for s in steps] == [
        ("a\nb", 0, 0, 3),
        ("c", 1, 4, 5),
    ]


@pytest.mark.parametrize("text", [" " * 300_000, "." * 300_000, "e.g. " * 60_000, "#\n" * 60_000])
@pytest.mark.parametrize("split", SPLITS)
def test_hostile_texts_end(split, text):
    assert len(split_text(text, split)) <= 60_000


def test_wrong_patterns_are_said():
    with pytest.raises(UserError, match="split: regex needs a pattern"):
        check_split("regex", None)
    with pytest.raises(UserError, match=r"pattern '\(' is no regular expression"):
        check_split("regex", "(")
    with pytest.raises(UserError, match="split: newline takes no pattern"):
        check_split("newline", "x")
