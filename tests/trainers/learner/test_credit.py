"""From score cards to advantages on tokens: what is unscored is not learned from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from rlgym_llm_trainers.algorithms.advantages import Advantages
from rlgym_llm_trainers.algorithms.advantages.gae import gae
from rlgym_llm_trainers.algorithms.advantages.gdpo import gdpo
from rlgym_llm_trainers.algorithms.advantages.groups import dr_grpo
from rlgym_llm_trainers.algorithms.advantages.steps import grpo_step
from rlgym_llm_trainers.learner.credit import advantage_inputs, samples_to_train, with_advantages

from rlgym_llm.composition.card import Term, compose
from rlgym_llm.composition.component import ComponentConfig
from rlgym_llm.errors import RlgymError
from rlgym_llm.scores import CardStatus, Score, ScoreCard, ScoreStatus, StepScore
from rlgym_llm.types import Completion, Message, Rollout, Task, Turn

REWARDS = [1.0, 0.0, None, 1.0]


def rollout(index, *texts, char_ends=True):
    """Turns of a prompt of two tokens and a sampled token a character."""
    turns = []
    for text in texts or ("ab",):
        completion = Completion(
            text=text,
            token_ids=tuple(range(4, 4 + len(text))),
            logprobs=tuple(-0.1 * (place + 1) for place in range(len(text))),
            version_spans=((0, len(text), 0),) if text else (),
            token_char_ends=tuple(range(1, len(text) + 1)) if char_ends else None,
        )
        reply = (Message(role="user", content="go on"),)
        turns.append(Turn(new_prompt_token_ids=(1, 2), completion=completion, reply=reply))
    return Rollout(
        id=str(index),
        task=Task(prompt="q"),
        group_id="g",
        sample_index=index,
        seed=0,
        turns=tuple(turns),
    )


def card(index, reward):
    status = CardStatus.FAILED_REWARD if reward is None else CardStatus.SCORED
    return ScoreCard(rollout_id=str(index), reward=reward, status=status, components={})


@pytest.fixture
def batch():
    rollouts = [rollout(i) for i in range(4)]
    cards = [card(i, reward) for i, reward in enumerate(REWARDS)]
    return rollouts, cards, samples_to_train(rollouts, cards)


def test_unscored_rollouts_give_no_sample_and_do_not_move_the_baseline(batch):
    rollouts, cards, samples = batch
    assert [sample.rollout_id for sample in samples] == ["0", "1", "3"]
    inputs = advantage_inputs(rollouts, cards, samples, {})
    assert inputs.is_scored.tolist() == [True, True, False, True]
    assert inputs.sequence_rewards.tolist() == [1.0, 0.0, 0.0, 1.0]
    trained = with_advantages(samples, rollouts, dr_grpo(inputs))
    # The mean over the three scored siblings is 2/3.
    assert [sample.rollout_id for sample in trained] == ["0", "1", "3"]
    assert trained[1].advantages == pytest.approx((0, 0, -2 / 3, -2 / 3))
    assert trained[2].advantages == pytest.approx((0, 0, 1 / 3, 1 / 3))


def test_samples_in_another_order_keep_their_own(batch):
    rollouts, cards, samples = batch
    base = advantage_inputs(rollouts, cards, samples, {})
    found = advantage_inputs(rollouts, cards, samples[::-1], {})
    assert found.token_rewards.tolist() == base.token_rewards.tolist()
    trained = with_advantages(samples[::-1], rollouts, dr_grpo(found))
    assert [sample.rollout_id for sample in trained] == ["3", "1", "0"]
    assert trained[1].advantages == pytest.approx((0, 0, -2 / 3, -2 / 3))


def test_kl_in_the_reward_is_taken_off_each_token(batch):
    rollouts, cards, samples = batch
    kl = torch.tensor([[9.0, 9.0, 0.5, 0.3]] * 3, dtype=torch.float64)
    inputs = advantage_inputs(rollouts, cards, samples, {}, kl=kl, kl_coef=0.5)
    # 1 - .5 * (.5 + .3) and so on; the outcome lies on the last token.
    assert inputs.sequence_rewards == pytest.approx([0.6, -0.4, 0.0, 0.6])
    assert inputs.token_rewards[0] == pytest.approx([0, 0, -0.25, 0.85])
    assert inputs.token_rewards[2].tolist() == [0.0] * 4


def test_a_rollout_without_tokens_counts_among_its_siblings_and_is_not_trained(batch):
    rollouts, cards, _ = batch
    rollouts = [*rollouts, rollout(4, "")]
    cards = [*cards, card(4, 1.0)]
    samples = samples_to_train(rollouts, cards)
    inputs = advantage_inputs(rollouts, cards, samples, {})
    assert not inputs.mask[4].any()
    trained = with_advantages(samples, rollouts, dr_grpo(inputs))
    assert len(trained) == 3
    # The mean over four is 3/4.
    assert trained[0].advantages == pytest.approx((0, 0, 0.25, 0.25))


STEPS = {
    "prm": ComponentConfig(reward="prm", weight=2.0, placement="step"),
    "right": ComponentConfig(reward="right"),
}


def judged(index, *values, right, of=STEPS):
    """A card of one step a character, worth these values, and an outcome."""
    steps = tuple(
        StepScore(value=value, char_start=place, char_end=place + 1)
        for place, value in enumerate(values)
    )
    scores = {"right": Score(name="right", value=right)}
    if "prm" in of:
        scores["prm"] = Score(name="prm", value=sum(values), steps=steps)
    terms = {name: Term(weight=config.weight) for name, config in of.items()}
    return compose(str(index), {name: scores[name] for name in of}, terms)


def test_process_rewards_land_where_their_steps_end():
    rollouts = [rollout(0, "ab", "c"), rollout(1, "abc")]
    cards = [judged(0, 0.25, 0.5, right=1.0), judged(1, 0.0, 0.5, right=0.0)]
    samples = samples_to_train(rollouts, cards)
    inputs = advantage_inputs(rollouts, cards, samples, STEPS)
    # Two of prompt, "ab", two of the next prompt, "c"; and two of prompt, "abc".
    assert inputs.token_rewards.tolist() == [[0, 0, 0.5, 1.0, 0, 0, 1.0], [0, 0, 0, 1.0, 0, 0, 0]]
    assert inputs.step_ends.astype(int).tolist() == [[0, 0, 1, 1, 0, 0, 1], [0, 0, 1, 1, 1, 0, 0]]
    assert inputs.sequence_rewards.tolist() == [card.reward for card in cards]
    trained = with_advantages(samples, rollouts, grpo_step(inputs, norm_adv_by_std_in_grpo=False))
    # Steps .5, 1, 1, 0, 1, 0 have mean 3.5 / 6: -1/12, 5/12, 5/12 and -7/12, 5/12, -7/12.
    assert trained[0].advantages == pytest.approx((0, 0, 9 / 12, 10 / 12, 0, 0, 5 / 12))
    assert trained[1].advantages == pytest.approx((0, 0, -9 / 12, -2 / 12, -7 / 12))


def test_a_step_that_has_no_place_ends_the_run_with_its_rollout():
    rollouts = [rollout(0, "ab", char_ends=False)]
    cards = [judged(0, 0.25, 0.5, right=1.0)]
    with pytest.raises(RlgymError, match="rollout 0: a step cannot be placed on a token"):
        advantage_inputs(rollouts, cards, samples_to_train(rollouts, cards), STEPS)


def test_components_reach_the_estimator_unweighted():
    weights = {"a": 2.0, "b": 1.0, "metric": 0.0}
    rows = [(0.0, 0.0), (0.0, 1.0), (1.0, None), (1.0, 1.0)]
    cards = [
        compose(
            str(index),
            {
                "a": Score(name="a", value=a),
                "b": Score(name="b", value=b)
                if b is not None
                else Score(name="b", value=None, status=ScoreStatus.NOT_APPLICABLE),
                "metric": Score(name="metric", value=7.0),
            },
            weights,
        )
        for index, (a, b) in enumerate(rows)
    ]
    rollouts = [rollout(i) for i in range(4)]
    components = {name: ComponentConfig(reward=name, weight=w) for name, w in weights.items()}
    inputs = advantage_inputs(rollouts, cards, samples_to_train(rollouts, cards), components)
    assert inputs.component_weights == weights
    assert inputs.component_rewards["a"].tolist() == [0, 0, 1, 1]
    np.testing.assert_array_equal(inputs.component_rewards["b"], [0, 1, np.nan, 1])
    # a: 2 * -/+.866; b: -1.155, .577, nothing, .577. Sums -2.887, -1.155, 1.732, 2.309.
    sums = np.array([-2.886750, -1.154700, 1.732050, 2.309400])
    expected = (sums - sums.mean()) / sums.std(ddof=1)
    assert gdpo(inputs).advantages[:, -1] == pytest.approx(expected, abs=1e-4)


def test_values_and_bootstraps_go_in_and_returns_come_out(batch):
    rollouts, cards, samples = batch
    samples = [replace(sample, values=(9.0, 9.0, 0.25, 0.5)) for sample in samples]
    inputs = advantage_inputs(
        rollouts, cards, samples, {}, bootstrap_values={"1": 0.75}, baselines={"g": 0.5}
    )
    assert inputs.values[0].tolist() == [9.0, 9.0, 0.25, 0.5]
    assert inputs.bootstrap_values.tolist() == [0.0, 0.75, 0.0, 0.0]
    assert inputs.baselines.tolist() == [0.5] * 4
    ones = np.where(inputs.mask, 1.0, 0.0)
    result = Advantages(
        advantages=ones, is_valid=np.array([True, False, False, True]), returns=2 * ones
    )
    trained = with_advantages(samples, rollouts, result)
    assert [sample.rollout_id for sample in trained] == ["0", "3"]
    assert trained[0].returns == (0.0, 0.0, 2.0, 2.0)


def test_a_step_in_which_nothing_was_scored_has_values_where_there_is_a_critic(batch):
    rollouts, cards, _ = batch
    unscored = [replace(card, reward=None, status=CardStatus.MASKED) for card in cards]
    inputs = advantage_inputs(rollouts, unscored, [], {}, bootstrap_values={})
    assert not gae(inputs).is_valid.any()
    with pytest.raises(ValueError, match="needs the values of a critic"):
        gae(advantage_inputs(rollouts, unscored, [], {}))


@pytest.mark.parametrize(
    ("values", "bootstrap_values"),
    [((9.0, 9.0, float("nan"), 0.5), {}), ((0.0,) * 4, {"1": float("inf")})],
)
def test_a_critic_that_has_diverged_is_one_line_with_a_way_out(batch, values, bootstrap_values):
    rollouts, cards, samples = batch
    samples = [replace(sample, values=values) for sample in samples]
    with pytest.raises(RlgymError) as error:
        advantage_inputs(rollouts, cards, samples, {}, bootstrap_values=bootstrap_values)
    assert "values of rollout" in str(error.value)
    assert str(error.value).endswith("the critic has diverged: give a lower --critic.optim.lr")


def test_a_kl_that_is_not_finite_is_one_line_with_a_way_out(batch):
    rollouts, cards, samples = batch
    kl = torch.full((3, 4), float("inf"), dtype=torch.float64)
    with pytest.raises(RlgymError, match=r"^token_rewards of rollout 0 holds -inf.*--actor\.optim"):
        advantage_inputs(rollouts, cards, samples, {}, kl=kl, kl_coef=0.5)
