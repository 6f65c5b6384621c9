import pytest
from rlgym_llm_rewards.length import Length

from rlgym_llm.rewards import RewardContext
from rlgym_llm.types import Completion, Rollout, Task, Turn


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
    [("tokens", 5.0), ("chars", 8.0), ("turns", 2.0)],
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
