"""format-only: nothing but the layout counts."""

import sys
from pathlib import Path

import pytest
from rlgym_llm_envs.format_only import FormatOnlyEnv

from rlgym_llm.check_env import check_env
from rlgym_llm.errors import UserError

sys.path.insert(0, str(Path(__file__).parent))
from problem_checks import check_gold_and_garbage, check_other_process, check_splits, play

# Each is right in its own style and wrong in the others.
RIGHT = {
    "hash": "So\n#### 5",
    "boxed": "So \\boxed{5}",
    "think_answer": "<think>hm</think>\n<answer>5</answer>",
}
GARBAGE = [
    "",
    "colourless green ideas sleep furiously",
    "#### five",
    "\\boxed{5",
    "<answer></answer>",
]


@pytest.mark.parametrize("style", list(RIGHT))
def test_gold_earns_the_maximum_and_garbage_nothing(style):
    others = [text for name, text in RIGHT.items() if name != style]
    env = FormatOnlyEnv(style=style)
    check_gold_and_garbage(
        env, maximum=1.0, component="format", garbage=lambda task: [*GARBAGE, *others]
    )
    assert play(env, 0, RIGHT[style])[0] == 1.0, "another number than the one asked for will do"


def test_the_prompt_asks_for_the_style():
    for style, words in [("hash", "####"), ("boxed", "\\boxed{}"), ("think_answer", "<think>")]:
        env = FormatOnlyEnv(style=style)
        assert words in env.tasks[0].prompt[0].content
        assert env.tasks[0].info["style"] == style
    silent = FormatOnlyEnv(system_prompt="")
    assert [message.role for message in silent.tasks[0].prompt] == ["user"]


def test_other_rewards_take_the_place_of_the_style():
    rewards = {"components": {"format": {"reward": "format", "options": {"style": "boxed"}}}}
    assert play(FormatOnlyEnv(rewards=rewards), 0, RIGHT["boxed"])[0] == 1.0


def test_splits_and_processes():
    check_splits(FormatOnlyEnv)
    check_other_process(FormatOnlyEnv, seed=4, style="boxed")


@pytest.mark.parametrize("style", list(RIGHT))
def test_the_contract_is_kept(style):
    check_env(FormatOnlyEnv(split="val", style=style))


def test_an_unknown_style_is_refused():
    with pytest.raises(UserError, match="style must be one of hash, boxed, think_answer, got 'x'"):
        FormatOnlyEnv(style="x")
