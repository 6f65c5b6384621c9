"""Keys that say which samples a step learns from, and verl's spellings of their values."""

from __future__ import annotations

import pytest

from rlgym_llm.config import load_config
from rlgym_llm.errors import ConfigError


def test_verls_keys_and_values_are_taken():
    config = load_config(
        [
            *("--algorithm.filter_groups.enable", "True"),
            *("--algorithm.filter_groups.metric", "seq_reward"),
            *("--algorithm.filter_groups.max_num_gen_batches", "10"),
            *("--algorithm.use_pf_ppo", "True", "--algorithm.pf_ppo.weight_pow", "3.0"),
            *("--algorithm.adv_estimator", "rloo_vectorized"),
        ]
    )
    algorithm = config.algorithm
    assert (algorithm.filter_groups.metric, algorithm.filter_groups.max_num_gen_batches) == (
        "reward",
        10,
    )
    assert (algorithm.pf_ppo.reweight_method, algorithm.pf_ppo.weight_pow) == ("pow", 3.0)
    assert algorithm.adv_estimator == "rloo"


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--algorithm.filter_groups.metric", "acc"], "metric has no effect without enable true"),
        (
            ["--algorithm.filter_groups.max_num_gen_batches", "3"],
            "max_num_gen_batches has no effect without enable true",
        ),
        (["--algorithm.pf_ppo.weight_pow", "3.0"], "pf_ppo has no effect without use_pf_ppo"),
        (
            [
                *("--algorithm.use_pf_ppo", "true", "--algorithm.pf_ppo.weight_pow", "3.0"),
                *("--algorithm.pf_ppo.reweight_method", "max_min"),
            ],
            "weight_pow has no effect on reweight_method max_min",
        ),
        (
            ["--algorithm.filter_groups.max_inflight_gen_batches", "2"],
            "rollout.max_staleness is that",
        ),
        # verl bounds 1 / rho: its spellings must not bound rho by the same numbers unsaid.
        (
            ["--algorithm.rollout_correction.rollout_rs", "token_k1"],
            "take one of them with rollout_rs_threshold 1 / lower",
        ),
        (
            ["--algorithm.rollout_correction.rollout_rs", "seq_mean_k3"],
            "seq_mean_k3 bounds p_generator / p_learner or a divergence",
        ),
    ],
)
def test_what_would_have_no_effect_or_another_is_refused_in_one_line(flags, says):
    with pytest.raises(ConfigError) as error:
        load_config(flags)
    assert says in str(error.value)
    assert "\n" not in str(error.value)
