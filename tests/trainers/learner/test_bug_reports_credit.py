"""Public bug reports about advantages and values: each is tested with the right values.

The numbers come from the case itself (``input`` and ``right``); nothing is copied from the file.
"""

import functools
import json

import numpy as np
import pytest
import torch
from rlgym_llm_trainers.algorithms.advantages import AdvantageInputs
from rlgym_llm_trainers.algorithms.advantages.gae import gae, lambda_advantages
from rlgym_llm_trainers.algorithms.advantages.gdpo import gdpo
from rlgym_llm_trainers.algorithms.advantages.groups import dr_grpo, grpo, rloo
from rlgym_llm_trainers.algorithms.advantages.siblings import normalize
from rlgym_llm_trainers.algorithms.advantages.whiten import whiten
from rlgym_llm_trainers.algorithms.aggregate import aggregate
from rlgym_llm_trainers.algorithms.dynamic_sampling import carries_signal
from rlgym_llm_trainers.algorithms.losses.value import ExplainedVariance, value_loss

pytestmark = pytest.mark.data

AREAS = {"adv", "gae"}

CASES = {}
"""Id of a case -> its test: a function of the case's ``input`` and ``right``."""


def case(case_id):
    def register(function):
        assert case_id not in CASES
        CASES[case_id] = function
        return function

    return register


def test_every_case_of_these_areas_is_tested(test_data):
    lines = (test_data / "cases" / "bug_reports.jsonl").read_text().splitlines()
    reported = [entry["id"] for entry in map(json.loads, lines) if entry["area"] in AREAS]
    assert len(reported) == len(set(reported)) > 0
    assert sorted(CASES) == sorted(reported)


def approx(value, right):
    return pytest.approx(value, abs=max(right.get("tol", 1e-9), 1e-9))


def advantages_of(rewards, ids=None, estimate=grpo, **options):
    inputs = AdvantageInputs.of_rewards(rewards, ids or ["g"] * len(rewards))
    return estimate(inputs, **options).advantages[:, 0]


@case("adv-equal_rewards_float32_residue")
def equal_rewards(given, right):
    for rewards in (given["rewards"], *given["more"]):
        found = advantages_of(rewards, eps=given["eps"])
        assert found.tolist() == [0.0] * len(rewards)
    assert right["values"]["advantages"] == [0.0] * len(given["rewards"])


@case("adv-loo_std_residue_spike")
def leave_one_out(given, right):
    # Leave-one-out is not divided by any std here; what is divided, in grpo, is bounded.
    found = advantages_of(given["rewards"], estimate=rloo)
    assert found.tolist() == approx(right["values"]["raw_gaps"], right)
    assert found[0] == approx(right["values"]["odd_sample"], right)
    for rewards in (given["rewards"], given["second"]):
        for estimate in (grpo, rloo):
            found = advantages_of(rewards, estimate=estimate)
            assert np.isfinite(found).all()
            assert np.abs(found).max() <= np.sqrt(len(rewards) - 1)


@case("adv-interleaved_group_order")
def interleaved(given, right):
    rewards, ids = given["rewards"], given["prompt_id"]
    found = advantages_of(rewards, ids, eps=given["eps"])
    assert found.tolist() == approx(right["values"]["advantages"], right)
    order = np.random.default_rng(0).permutation(len(rewards))
    moved = advantages_of([rewards[i] for i in order], [ids[i] for i in order], eps=given["eps"])
    assert moved.tolist() == found[order].tolist()


@case("adv-normalise_then_sum")
def normalised_before_the_sum(given, right):
    components = {name: np.array(given[f"reward_{name}"], dtype=np.float64) for name in "ab"}
    weights = dict(zip("ab", given["weights"], strict=True))
    summed = sum(weights[name] * values for name, values in components.items())
    found = advantages_of(summed.tolist(), eps=given["eps"])
    assert found.tolist() == approx(right["values"]["sum_then_normalise"], right)
    parts = [
        weights[name] * normalize(values, by_std=True, eps=given["eps"])
        for name, values in components.items()
    ]
    expected = right["values"]["normalise_then_sum"]
    assert sum(parts).tolist() == approx(expected, right)
    # GDPO is that sum, whitened over the batch: here divided by its unbiased std.
    inputs = AdvantageInputs(
        token_rewards=summed[:, None],
        mask=np.ones((len(summed), 1), dtype=bool),
        group_ids=["g"] * len(summed),
        is_scored=np.ones(len(summed), dtype=bool),
        component_rewards=components,
        component_weights=weights,
    )
    found = gdpo(inputs, eps=given["eps"]).advantages[:, 0]
    assert found.tolist() == approx((np.array(expected) / np.std(expected, ddof=1)).tolist(), right)


@case("adv-double_normalisation")
def normalised_once(given, right):
    rewards = [reward for group in given["groups"] for reward in group]
    ids = [str(i) for i, group in enumerate(given["groups"]) for _ in group]
    found = advantages_of(rewards, ids, eps=given["eps"])[given["kept_indices"]]
    assert found.tolist() == approx(right["values"]["kept"], right)


@case("adv-mean_only_mode")
def mean_only(given, right):
    expected = approx(right["values"]["advantages"], right)
    assert advantages_of(given["rewards"], norm_adv_by_std_in_grpo=False).tolist() == expected
    assert advantages_of(given["rewards"], estimate=dr_grpo).tolist() == expected


@case("adv-whiten_one_valid_token")
def one_valid_token(given, right):
    values = np.array(given["advantages"])
    for mask, name in (("mask", "out"), ("also_mask", "out_all_masked")):
        found = whiten(values, np.array(given[mask], dtype=bool))
        assert found.tolist() == right["values"][name]


@case("adv-dynamic_filter_std_gt_zero")
def constant_groups(given, right):
    kept = [name for name, rewards in given["groups"].items() if carries_signal(rewards)]
    assert kept == right["values"]["kept"]
    ids = [name for name, rewards in given["groups"].items() for _ in rewards]
    rewards = [reward for group in given["groups"].values() for reward in group]
    found = grpo(AdvantageInputs.of_rewards(rewards, ids))
    assert {ids[index] for index in found.advantages[:, 0].nonzero()[0]} == set(
        right["values"]["kept"]
    )
    num_constant = len(given["groups"]) - len(right["values"]["kept"])
    assert found.metrics["frac_reward_zero_std"].value == num_constant


def one_row(given, mask=None, **changes):
    rewards = np.array([given["rewards"]], dtype=np.float64)
    return AdvantageInputs(
        token_rewards=rewards,
        mask=np.ones(rewards.shape, dtype=bool) if mask is None else np.array([mask], dtype=bool),
        group_ids=["g"],
        is_scored=np.array([True]),
        values=np.array([given["values"]], dtype=np.float64),
        **changes,
    )


def unwhitened(inputs, gamma, lam):
    return lambda_advantages(
        inputs.token_rewards,
        inputs.values,
        inputs.mask,
        gamma=gamma,
        lam=lam,
        bootstrap_values=inputs.bootstrap_values,
    )[0].tolist()


@case("gae-observation_tokens_skipped")
def through_observations(given, right):
    inputs, options = one_row(given, given["mask"]), (given["gamma"], given["lam"])
    assert unwhitened(inputs, *options) == approx(right["values"]["advantages"], right)
    returns = gae(inputs, gamma=given["gamma"], lam=given["lam"]).returns[0]
    assert returns.tolist() == approx(right["values"]["returns"], right)


@case("gae-masked_value_bootstraps")
def padding_does_not_bootstrap(given, right):
    found = unwhitened(one_row(given, given["mask"]), given["gamma"], given["lam"])
    assert found == approx(right["values"]["advantages"], right)


@case("gae-truncated_vs_terminated_bootstrap")
def truncation_bootstraps(given, right):
    for name, value in (("terminated", 0.0), ("truncated", given["value_of_final_obs"])):
        inputs = one_row(given, bootstrap_values=np.array([value]))
        found = unwhitened(inputs, given["gamma"], given["lam"])
        assert found == approx(right["values"][name], right)


@case("gae-explained_variance_argument_order")
def explained_variance(given, right):
    values, returns = (torch.tensor([given[name]]).double() for name in ("values", "returns"))
    found = ExplainedVariance.of(values, returns, torch.ones_like(values).bool()).result()
    assert found == approx(right["values"]["explained_variance"], right)


@case("gae-value_loss_clip_semantics")
def value_clip(given, right):
    value, old_value, target = (
        torch.tensor([[given[name]]], dtype=torch.float64)
        for name in ("value", "old_value", "return")
    )
    reduce = functools.partial(aggregate, num_tokens=1, num_sequences=1)
    mask = torch.ones(1, 1, dtype=torch.bool)
    found = value_loss(value, old_value, target, mask, reduce=reduce, clip=given["clip"])
    assert found.loss.item() == approx(right["values"]["loss"], right)


@pytest.mark.parametrize("case_id", sorted(CASES))
def test_case(case_id, bug_report):
    found = bug_report(case_id)
    CASES[case_id](found["input"], found["right"])
