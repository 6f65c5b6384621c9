import pytest
from rlgym_llm_trainers.algorithms.options import bind_options, option_names

from rlgym_llm.errors import ConfigError

CONFIG = {"gamma": 0.9, "lam": 0.5, "clip_low": 0.2}
KEY = "algorithm.adv_kwargs"


def estimate(inputs, *, gamma=1.0, width=3):
    return inputs, gamma, width


def needy(inputs, *, temperature):
    return temperature


def loss(inputs, *, reduce, clip_low=0.1, **options):
    return reduce(inputs), clip_low, options


def test_options_come_by_their_names():
    assert bind_options(estimate, CONFIG, {}, KEY)("x") == ("x", 0.9, 3)
    assert bind_options(estimate, CONFIG, {"width": 5}, KEY)("x") == ("x", 0.9, 5)
    assert bind_options(lambda inputs: inputs, CONFIG, {}, KEY)("x") == "x"


def test_what_is_given_at_the_call_is_no_option():
    bound = bind_options(loss, CONFIG, {"more": 1}, "actor.policy_loss_kwargs", at_call=("reduce",))
    assert bound(3, reduce=lambda x: 2 * x) == (6, 0.2, {"more": 1})
    assert option_names(loss, at_call=("reduce",)) == ["clip_low"]
    with pytest.raises(ConfigError, match=r"policy_loss_kwargs\.reduce: no such option"):
        bind_options(loss, CONFIG, {"reduce": 1}, "actor.policy_loss_kwargs", at_call=("reduce",))


@pytest.mark.parametrize(
    ("function", "extra", "says"),
    [
        (
            estimate,
            {"widht": 1},
            "--algorithm.adv_kwargs.widht: no such option; did you mean 'width'? (options: width)",
        ),
        (
            estimate,
            {"gamma": 1.0},
            "--algorithm.adv_kwargs.gamma: this option has a key of its own; give "
            "--algorithm.gamma",
        ),
        (
            estimate,
            {"lam": 1.0},
            "--algorithm.adv_kwargs.lam: no such option (options: width)",
        ),
        (
            needy,
            {},
            "--algorithm.adv_kwargs.temperature must be given: this option has no default",
        ),
        (
            lambda inputs: inputs,
            {"a": 1},
            "--algorithm.adv_kwargs.a: no such option (options: none)",
        ),
    ],
)
def test_what_cannot_be_meant_is_one_line(function, extra, says):
    with pytest.raises(ConfigError) as error:
        bind_options(function, CONFIG, extra, KEY)
    assert str(error.value) == says


def test_a_needed_option_that_is_given():
    assert bind_options(needy, CONFIG, {"temperature": 2.0}, KEY)("x") == 2.0
