"""Which estimator a run takes, and what is refused before it starts."""

import pytest
from rlgym_llm_trainers.algorithms.advantages import AdvantageInputs
from rlgym_llm_trainers.learner.estimator import load_estimator

from rlgym_llm.config import load_config
from rlgym_llm.errors import UserError
from rlgym_llm.plugins import Plugins
from rlgym_llm.reward_config import read_rewards

COMPONENTS = {"components": {"math": {}, "format": {"weight": 0.5}}}


@pytest.fixture(scope="module")
def plugins():
    return Plugins.discover()


def load(plugins, *flags, **rules):
    return load_estimator(load_config(flags), read_rewards({**COMPONENTS, **rules}), plugins)


def test_keys_of_the_section_are_options_by_their_names(plugins):
    inputs = AdvantageInputs.of_rewards([3, 1, 1, 1], ["g"] * 4)
    flags = ["--algorithm.norm_adv_by_std_in_grpo", "false"]
    assert load(plugins, *flags)(inputs).advantages[:, 0].tolist() == [1.5, -0.5, -0.5, -0.5]
    # (3 - 1.5) / (1 + eps): with eps 1 half of it.
    eps = load(plugins, "--algorithm.adv_kwargs.eps", "1.0")
    assert eps(inputs).advantages[:, 0].tolist() == [0.75, -0.25, -0.25, -0.25]


def test_normalize_then_sum_is_gdpo(plugins):
    estimate = load(plugins, aggregate="normalize_then_sum")
    with pytest.raises(ValueError, match="gdpo needs the components"):
        estimate(AdvantageInputs.of_rewards([1, 0], ["g", "g"]))


@pytest.mark.parametrize(
    ("flags", "rules", "says"),
    [
        (["--rollout.n", "1"], {}, "--rollout.n 1: grpo compares the responses"),
        (["--algorithm.adv_estimator", "rloo", "--rollout.n", "1"], {}, "--rollout.n 1: rloo"),
        (["--critic.optim.lr", "1e-3"], {}, "--critic.optim.lr 0.001: has no effect on the est"),
        (["--critic.optim.eps", "1"], {}, "--critic.optim.eps 1.0: has no effect on the estimator"),
        (["--trainer.critic_warmup", "2"], {}, "--trainer.critic_warmup 2: has no effect on the"),
        (["--algorithm.use_pf_ppo", "true"], {}, "--algorithm.use_pf_ppo: grpo compares siblings"),
        (
            [
                *("--algorithm.adv_estimator", "reinforce_plus_plus", "--rollout.n", "1"),
                *("--algorithm.filter_groups.enable", "true"),
            ],
            {},
            "--algorithm.filter_groups.enable: a lone response has no other",
        ),
        (["--algorithm.gamma", "0.9"], {}, "--algorithm.gamma 0.9: has no effect on the estimator"),
        (
            ["--algorithm.adv_estimator", "rloo", "--algorithm.norm_adv_by_std_in_grpo", "no"],
            {},
            "--algorithm.norm_adv_by_std_in_grpo false: has no effect on the estimator rloo",
        ),
        (["--algorithm.adv_kwargs.epz", "1"], {}, "no such option; did you mean 'eps'?"),
        (["--algorithm.adv_estimator", "rlo"], {}, "did you mean 'rloo'?"),
        (
            ["--algorithm.adv_estimator", "rloo"],
            {"aggregate": "normalize_then_sum"},
            "rewards.aggregate normalize_then_sum is the estimator gdpo",
        ),
        (
            ["--algorithm.use_kl_in_reward"],
            {"aggregate": "normalize_then_sum"},
            "take --actor.use_kl_loss",
        ),
        (
            ["--algorithm.use_kl_in_reward", "--algorithm.adv_estimator", "gdpo"],
            {},
            "the KL penalty is none of them",
        ),
    ],
)
def test_what_cannot_work_is_refused(plugins, flags, rules, says):
    with pytest.raises(UserError) as error:
        load(plugins, *flags, **rules)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_one_rollout_a_prompt_is_enough_without_siblings(plugins):
    flags = ["--algorithm.adv_estimator", "reinforce_plus_plus", "--rollout.n", "1"]
    estimate = load(plugins, *flags, "--algorithm.gamma", "0.5")
    found = estimate(AdvantageInputs.of_rewards([1.0, 3.0], ["p", "q"]))
    assert found.advantages[:, 0] == pytest.approx([-(2**-0.5), 2**-0.5])
