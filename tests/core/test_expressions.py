import pytest

from rlgym_llm.compose import RewardComposer
from rlgym_llm.composition.expressions import Clip, Gate, Max, Min, Product, R, Switch
from rlgym_llm.errors import ConfigError
from rlgym_llm.plugins import Plugins
from rlgym_llm.reward_config import read_rewards
from rlgym_llm.types import Completion, Rollout, Task, Turn


def rollout(text: str, data_source: str = "maths") -> Rollout:
    return Rollout(
        id="r",
        task=Task(prompt="36 + 36?", answer="72", data_source=data_source),
        group_id="g",
        sample_index=0,
        seed=0,
        turns=(Turn(new_prompt_token_ids=(), completion=Completion(text=text)),),
    )


def reward(expression, text, **fields):
    with RewardComposer(read_rewards(expression), Plugins.discover()) as composer:
        return composer([rollout(text, **fields)])[0].reward


CHARS = R("length", unit="chars")


def test_the_same_as_the_section_in_data():
    expression = Clip(
        1.0 * R("math", name="correct") + 0.2 * R("format", style="hash") - 0.001 * CHARS, -1, 2
    )
    assert read_rewards(expression) == read_rewards(
        {
            "components": {
                "correct": {"reward": "math", "weight": 1.0},
                "format": {"reward": "format", "weight": 0.2, "options": {"style": "hash"}},
                "length": {"reward": "length", "weight": -0.001, "options": {"unit": "chars"}},
            },
            "clip": [-1, 2],
        }
    )


@pytest.mark.parametrize(
    ("expression", "right", "wrong"),
    [
        # "#### 72" is right and has 7 characters, "#### 7" is wrong and has 6.
        (R("math") + 0.1 * CHARS, 1.7, 0.6),
        (2 * (R("math") + 0.1 * CHARS), 3.4, 1.2),
        (-R("math") + CHARS, 6.0, 6.0),
        (R("math") + 0.1 * Gate(of=CHARS, on=R("math")), 1.7, 0.0),
        (1.0 * Gate(of=CHARS, on=R("math"), op="<", value=1.0), 0.0, 6.0),
        (1.0 * Product(R("math"), CHARS), 7.0, 0.0),
        (1.0 * Min(R("format"), CHARS), 1.0, 1.0),
        (1.0 * Max(R("math"), R("format"), Clip(CHARS, 0, 6.5)), 6.5, 6.0),
        (1.0 * Product(R("math") + R("format"), CHARS), 14.0, 6.0),
        (1.0 * Product(Gate(of=Clip(CHARS, 0, 5), on=R("math")), R("format")), 5.0, 0.0),
        (1.0 * Clip(R("math") + R("format"), 0, 1.5) + 0.0 * CHARS, 1.5, 1.0),
    ],
)
def test_values(expression, right, wrong):
    assert reward(expression, "#### 72") == pytest.approx(right, abs=1e-12)
    assert reward(expression, "#### 7") == pytest.approx(wrong, abs=1e-12)


def test_a_switch_goes_by_a_column():
    switch = 1.0 * Switch(on="data_source", cases={"maths": R("math")}, default=CHARS)
    assert reward(switch, "#### 72") == 1.0
    assert reward(switch, "#### 72", data_source="prose") == 7.0


def test_arithmetic():
    halves = sum([R("math"), R("format")]) / 2
    assert [c.weight for c in halves.to_config().components.values()] == [0.5, 0.5]
    with pytest.raises(ConfigError, match=r"take Product\(a, b\)"):
        R("math") * R("format")
    with pytest.raises(ConfigError, match="1 cannot be added to a reward"):
        R("math") + 1


def test_the_composer_takes_an_expression():
    with RewardComposer(R("math") + 0.1 * CHARS, Plugins.discover()) as composer:
        assert composer([rollout("#### 72")])[0].reward == pytest.approx(1.7)


def test_a_leaf_that_stands_twice_is_scored_once():
    config = (R("math") + Product(R("math"), CHARS)).to_config()
    assert list(config.components) == ["math", "length", "product"]
    assert [c.weight for c in config.components.values()] == [1.0, 0.0, 1.0]


def test_two_rewards_of_one_name_are_refused():
    with pytest.raises(ConfigError, match="two different rewards are named 'format'; give one"):
        (R("format", style="hash") + R("format", style="boxed")).to_config()
    named = R("format", style="hash") + R("format", style="boxed", name="boxed")
    assert list(named.to_config().components) == ["format", "boxed"]


def test_what_is_no_expression_is_refused():
    with pytest.raises(ConfigError, match="is no expression of rewards"):
        Product(R("math"), 2).to_config()
    with pytest.raises(ConfigError, match="at least one"):
        Min()


def test_rules_go_to_the_section_and_to_the_component():
    config = R("math", rules={"schedule": {"linear": [1, 0, 10]}}).to_config(on_truncated="mask")
    assert config.on_truncated == "mask"
    assert config.components["math"].schedule == {"linear": [1, 0, 10]}
