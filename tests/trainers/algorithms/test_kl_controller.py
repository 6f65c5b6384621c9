import math

import pytest
import torch
from pydantic import ValidationError
from rlgym_llm_trainers.algorithms.kl_controller import make_kl_controller, mean_sequence_kl

from rlgym_llm.config_schema import AlgorithmConfig, KlCtrlConfig

ADAPTIVE = KlCtrlConfig(type="adaptive", kl_coef=0.1, target_kl=0.1, horizon=1000)


def test_a_fixed_coefficient_never_moves():
    controller = make_kl_controller(KlCtrlConfig(kl_coef=0.5))
    assert controller.after(100.0, num_sequences=10**6).kl_coef == 0.5


@pytest.mark.parametrize(
    ("kl", "num_sequences", "expected"),
    [
        (0.5, 100, 0.1 * (1 + 0.2 * 0.1)),  # far above: the error is clipped at .2
        (0.0, 100, 0.1 * (1 - 0.2 * 0.1)),  # far below
        (-3.0, 100, 0.1 * (1 - 0.2 * 0.1)),  # k1 may be negative
        (0.11, 100, 0.1 * (1 + 0.1 * 0.1)),
        (0.1, 100, 0.1),
        (0.5, 10_000, 0.1 * 1.2),  # a batch beyond the horizon counts as one horizon
        (0.0, 10_000, 0.1 * 0.8),
        (math.nan, 100, 0.1),
        (math.inf, 100, 0.1),
    ],
)
def test_hand_computed_adaptation(kl, num_sequences, expected):
    after = make_kl_controller(ADAPTIVE).after(kl, num_sequences=num_sequences)
    assert after.kl_coef == pytest.approx(expected, rel=1e-12)


def test_it_settles_where_the_target_is_met():
    """A policy whose KL falls as the coefficient grows, k = .01 / coefficient."""
    controller = make_kl_controller(KlCtrlConfig(type="adaptive", kl_coef=1.0, target_kl=0.1))
    for _ in range(400):
        controller = controller.after(0.01 / controller.kl_coef, num_sequences=1000)
    assert controller.kl_coef == pytest.approx(0.1, rel=1e-3)


def test_its_state_is_its_coefficient():
    first = make_kl_controller(ADAPTIVE).after(0.3, num_sequences=64)
    again = make_kl_controller(ADAPTIVE, kl_coef=first.kl_coef)
    assert again == first
    assert again.after(0.05, num_sequences=64) == first.after(0.05, num_sequences=64)


def test_the_kl_is_a_mean_of_sequences_and_of_their_tokens():
    kl = torch.tensor([[0.1, 0.3, math.nan], [0.5, math.inf, math.nan], [9.0, 9.0, 9.0]])
    mask = torch.tensor([[True, True, False], [True, False, False], [False, False, False]])
    assert mean_sequence_kl(kl, mask) == pytest.approx((0.2 + 0.5) / 2)
    assert math.isnan(mean_sequence_kl(kl[2:], mask[2:]))


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"kl_ctrl": {"target_kl": 0.2}}, "target_kl has no effect without type adaptive"),
        ({"kl_ctrl": {"horizon": 5}}, "horizon has no effect without type adaptive"),
        ({"kl_ctrl": {"type": "adaptive"}}, "no effect without use_kl_in_reward"),
        (
            {"kl_ctrl": {"type": "adaptive", "kl_coef": 0.0}, "use_kl_in_reward": True},
            "kl_coef 0 cannot adapt",
        ),
    ],
)
def test_keys_without_effect_are_refused(section, message):
    with pytest.raises(ValidationError, match=message):
        AlgorithmConfig.model_validate(section)
