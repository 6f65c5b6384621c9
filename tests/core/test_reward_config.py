import pytest

from rlgym_llm.errors import ConfigError, UnknownNameError
from rlgym_llm.plugins import Plugins
from rlgym_llm.reward_config import (
    ComponentConfig,
    Const,
    RewardsConfig,
    build_rewards,
    read_rewards,
)
from rlgym_llm.reward_flags import parse_reward_flag, read_reward_flags, with_options


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return Plugins.discover()


def test_the_long_form(plugins):
    config = read_rewards(
        {
            "components": {
                "correct": {"reward": "math", "weight": 1.0, "options": {"extraction": "lenient"}},
                "style": {"reward": "format", "weight": 0.2, "eval_weight": 0},
            },
            "on_error": {"const": -1},
            "on_truncated": "mask",
            "clip": [-1, 2],
            "max_error_rate": 0.5,
        },
        plugins,
    )
    assert config.components["correct"].options == {"extraction": "lenient"}
    assert config.on_error == Const(const=-1.0)
    assert (config.on_truncated, config.clip, config.max_error_rate) == ("mask", (-1.0, 2.0), 0.5)
    style = config.components["style"]
    assert style.weight_in(evaluation=False) == 0.2
    assert style.weight_in(evaluation=True) == 0.0
    assert config.components["correct"].weight_in(evaluation=True) == 1.0


@pytest.mark.parametrize(
    "short",
    [
        {"math": 1.0, "format": 0.2},
        {"components": {"math": 1.0, "format": 0.2}},
        {"components": {"math": {}, "format": {"weight": 0.2}}},
    ],
    ids=str,
)
def test_short_forms_mean_the_long_one(short):
    assert read_rewards(short) == RewardsConfig(
        components={
            "math": ComponentConfig(reward="math", weight=1.0),
            "format": ComponentConfig(reward="format", weight=0.2),
        }
    )


def test_the_defaults():
    config = RewardsConfig()
    assert config.components == {}
    assert (config.on_error, config.on_truncated, config.clip) == ("mask", "keep", None)
    assert config.max_error_rate == 0.1


def test_the_section_is_frozen_and_survives_a_dump():
    config = read_rewards({"math": 1.0, "format": 0.2})
    with pytest.raises(ValueError, match="frozen"):
        config.clip = (0.0, 1.0)
    assert read_rewards(config.model_dump(mode="json")) == config


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"components": {"math": {"wieght": 1}}}, "components.math: unknown key 'wieght'; did you"),
        ({"on_eror": "mask"}, "unknown key 'on_eror'; did you mean 'on_error'"),
        ({"components": {"math": float("nan")}}, "components.math.weight: .*finite"),
        ({"components": {"math": {"weight": float("inf")}}}, "components.math.weight: .*finite"),
        ({"components": {"math": "heavy"}}, r"components\.math: "),
        ({"clip": [1, 0]}, "clip .* is empty"),
        ({"clip": [1]}, "clip"),
        ({"max_error_rate": 1.5}, "max_error_rate: .*less than or equal to 1"),
        ({"on_error": "skip"}, "on_error"),
        ({"on_truncated": "hard"}, "on_truncated: takes keep, zero, soft, mask or"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_wrong_is_said_in_one_line(wrong, message):
    with pytest.raises(ConfigError, match=message) as error:
        read_rewards(wrong)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith("rewards")


def test_unknown_rewards_fail_when_the_section_is_read(plugins):
    with pytest.raises(UnknownNameError) as error:
        read_rewards({"mth": 1.0}, plugins)
    assert str(error.value).startswith("unknown reward 'mth'; did you mean 'math'? (known: ")


def test_unknown_options_fail_when_the_section_is_read(plugins):
    wrong = {"components": {"style": {"reward": "format", "options": {"stile": "hash"}}}}
    with pytest.raises(ConfigError) as error:
        read_rewards(wrong, plugins)
    assert str(error.value).startswith(
        "rewards.components.style: reward 'format' has no option 'stile'; did you mean 'style'? "
        "(options: style, "
    )


def test_every_component_is_built_under_its_name(plugins):
    config = read_rewards({"components": {"a": {"reward": "math"}, "b": {"reward": "math"}}})
    built = build_rewards(config, plugins)
    assert [(name, found.name) for name, found in built.items()] == [("a", "math"), ("b", "math")]


@pytest.mark.parametrize(
    ("flag", "name", "reward", "weight"),
    [
        ("math=1.0", "math", "math", 1.0),
        ("math", "math", "math", 1.0),
        ("length=-0.001", "length", "length", -0.001),
        (" n_chars = 0 ", "n_chars", "n_chars", 0.0),
        ("mine.py:brevity=1e-2", "brevity", "function", 0.01),
    ],
)
def test_flags(flag, name, reward, weight):
    found, component = parse_reward_flag(flag)
    assert (found, component.reward, component.weight) == (name, reward, weight)


def test_one_name_is_given_once():
    found = read_reward_flags(["math=1.0", "format=0.2", "mine.py:brevity"])
    assert [(name, part.weight) for name, part in found.items()] == [
        *(("math", 1.0), ("format", 0.2), ("brevity", 1.0))
    ]
    for flags in (["math=1.0", "math=1.0"], ["math", "a.py:math=2"]):
        with pytest.raises(ConfigError, match="reward 'math' is given twice, as 'math"):
            read_reward_flags(flags)


@pytest.mark.parametrize("flag", ["", "=1", "math=", "math=heavy", "math=nan", "math=inf"])
def test_wrong_flags(flag):
    with pytest.raises(ConfigError, match="--reward"):
        parse_reward_flag(flag)


@pytest.mark.parametrize(
    ("flag", "options"),
    [
        ("math.kwargs.limit=3", {"kwargs": {"limit": 3, "old": 1}}),
        ("math.kwargs={limit: 3}", {"kwargs": {"limit": 3}}),
        ("math.tags=[think, answer]", {"kwargs": {"old": 1}, "tags": ["think", "answer"]}),
        ("math.word=a=b", {"kwargs": {"old": 1}, "word": "a=b"}),
    ],
)
def test_options_by_flag(flag, options):
    component = ComponentConfig(reward="math", options={"kwargs": {"old": 1}})
    assert with_options({"math": component}, [flag])["math"].options == options


def test_an_option_below_what_is_no_mapping():
    component = ComponentConfig(reward="math", options={"unit": "chars"})
    with pytest.raises(ConfigError, match="'unit' is no mapping"):
        with_options({"math": component}, ["math.unit.x=1"])
