from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rlgym_llm_trainers.algorithms.metrics import finalize
from rlgym_llm_trainers.learner.reward_kl import kl_metrics, penalized, reward_kl
from rlgym_llm_trainers.learner.sample import TrainingSample

MASK = np.array([[False, True, False, True], [False, True, True, False]])
KL = np.array([[9.0, 0.1, 5.0, 0.2], [9.0, 0.4, 0.6, float("nan")]])


def sample(**changes):
    given = {
        "token_ids": (1, 4, 5),
        "loss_mask": (False, True, True),
        "rollout_logprobs": (0.0, -0.1, -0.2),
        "policy_versions": (-1, 3, 3),
        "rollout_id": "r",
        "group_id": "g",
        "sample_index": 0,
        "ref_logprobs": (9.0, -0.6, -0.5),
    }
    return TrainingSample(**given | changes)


def test_kl_stays_on_its_own_tokens():
    outcomes = np.array([[0.0, 0, 0, 1], [0, 0, 2, 0]])
    found = penalized(outcomes, KL, MASK, kl_coef=0.5)
    # 1 - .5 * .2 = .9 and 2 - .5 * .6 = 1.7 at the ends; what is masked stays 0.
    assert found == pytest.approx(np.array([[0.0, -0.05, 0.0, 0.9], [0.0, -0.2, 1.7, 0.0]]))
    assert found[~MASK].tolist() == [0.0] * 4


def test_reward_assembly_of_a_group():
    # env [8, 0, 8] + format [1.5, 1.5, 0] - 0.01 * length [100, 50, 200] = [8.5, 1.0, 6.0],
    # minus beta .1 * (kl sums [.3, 1.0, .4]) = [8.47, .9, 5.96].
    env, form, length = [8.0, 0.0, 8.0], [1.5, 1.5, 0.0], [100, 50, 200]
    scores = [e + f - 0.01 * n for e, f, n in zip(env, form, length, strict=True)]
    mask = np.concatenate([MASK, MASK[:1]])
    kl = np.concatenate([KL, [[9.0, 0.0, 5.0, 0.4]]])
    outcomes = np.zeros(mask.shape)
    outcomes[[0, 1, 2], [3, 2, 3]] = scores
    found = penalized(outcomes, kl, mask, kl_coef=0.1)
    assert found.sum(-1) == pytest.approx([8.47, 0.9, 5.96])


def test_the_kl_is_of_the_policy_before_the_update():
    kl, mask = reward_kl([sample()], "k1")
    assert mask.tolist() == [[False, True, True]]
    assert kl.tolist() == [pytest.approx([0.0, 0.5, 0.3])]
    # Where the generator was another policy, the learner's own log-probs count.
    kl, _ = reward_kl([sample(old_logprobs=(0.0, -0.4, -0.4))], "k1")
    assert kl.tolist() == [pytest.approx([0.0, 0.2, 0.1])]


def test_shorter_samples_are_padded_on_the_right():
    longer = replace(
        sample(),
        token_ids=(1, 4, 5, 6),
        loss_mask=(False, True, False, True),
        rollout_logprobs=(0.0, -0.1, 0.0, -0.2),
        policy_versions=(-1, 3, -1, 3),
        ref_logprobs=(0.0, -0.1, -50.0, -0.7),
    )
    kl, mask = reward_kl([sample(), longer], "k1")
    assert kl.tolist() == [pytest.approx([0, 0.5, 0.3, 0]), pytest.approx([0, 0, 0, 0.5])]
    assert mask.sum(-1).tolist() == [2, 2]


def test_without_a_reference_it_is_refused():
    with pytest.raises(ValueError, match="needs the reference's log-probs"):
        reward_kl([sample(), sample(ref_logprobs=None)], "k1")


def test_kl_metrics_are_over_sampled_tokens():
    numbers = finalize(kl_metrics(torch.tensor(KL), torch.tensor(MASK), kl_coef=0.5))
    assert numbers["actor/reward_kl_penalty"] == pytest.approx((0.1 + 0.2 + 0.4 + 0.6) / 4)
    assert numbers["actor/reward_kl_penalty_coeff"] == 0.5


@given(st.data())
def test_a_row_sums_to_its_reward_less_its_kl(data):
    width = data.draw(st.integers(1, 6))
    mask = np.array([data.draw(st.lists(st.booleans(), min_size=width, max_size=width))])
    numbers = st.lists(st.floats(-5, 5), min_size=width, max_size=width)
    kl, rewards = np.array([data.draw(numbers)]), np.array([data.draw(numbers)])
    beta = data.draw(st.floats(0, 2))
    found = penalized(rewards, kl, mask, kl_coef=beta)
    assert found.sum() == pytest.approx(rewards.sum() - beta * kl[mask].sum(), abs=1e-9)
