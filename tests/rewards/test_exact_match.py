import pytest
from rlgym_llm_rewards.exact_match import ExactMatch

from rlgym_llm.errors import ConfigError
from rlgym_llm.rewards import RewardContext, build_reward
from rlgym_llm.types import Completion, Rollout, Task, Turn


@pytest.mark.parametrize(
    ("text", "answer", "options", "value"),
    [
        ("42", "42", {}, True),
        (" 42\n", "42", {}, True),
        (" 42\n", "42", {"strip": False}, False),
        ("Yes", "yes", {}, False),
        ("Yes", "yes", {"casefold": True}, True),
        ("STRASSE", "straße", {"casefold": True}, True),
        ("the answer is 42", "42", {}, False),
        ("", "42", {}, False),
        ("a  b\nc", "a b c", {}, False),
        ("a  b\nc", "a b c", {"spaces": True}, True),
        (" a  b", " a b", {"spaces": True, "strip": False}, True),
        (" a  b", "a b", {"spaces": True, "strip": False}, False),
        ("cafe\u0301", "café", {}, False),
        ("cafe\u0301", "café", {"unicode": "NFC"}, True),
        ("４２", "42", {"unicode": "NFC"}, False),
        ("４２", "42", {"unicode": "NFKC"}, True),
        ("The Eiffel tower.", "Eiffel Tower", {"squad": True}, True),
        ("the theme of an ant, a-b", "theme of ant ab", {"squad": True}, True),
        ("Eiffel", "Eiffel tower", {"squad": True}, False),
    ],
)
def test_exact_match(text, answer, options, value):
    turn = Turn(new_prompt_token_ids=(), completion=Completion(text=text))
    task = Task(prompt="?", answer=answer)
    rollout = Rollout(id="r", task=task, group_id="g", sample_index=0, seed=0, turns=(turn,))
    assert ExactMatch(**options).score(rollout, RewardContext()).value == float(value)


def test_the_answer_is_what_was_compared():
    task = Task(prompt="?", answer="eiffel tower")
    for text, info in [("The Eiffel tower.", {"answer": "eiffel tower"}), ("x" * 501, {})]:
        turn = Turn(new_prompt_token_ids=(), completion=Completion(text=text))
        rollout = Rollout(id="r", task=task, group_id="g", sample_index=0, seed=0, turns=(turn,))
        assert ExactMatch(squad=True).score(rollout, RewardContext()).info == info


def test_squad_sets_white_space_aside():
    with pytest.raises(ConfigError, match="squad sets white space aside"):
        build_reward(ExactMatch, {"squad": True, "strip": False})
