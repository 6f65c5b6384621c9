"""Policy filtration: a sample that was drawn k times is worth what k equal samples are."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from rlgym_llm_trainers.algorithms.aggregate import LossAggMode
from rlgym_llm_trainers.algorithms.losses import ppo_clip_loss
from rlgym_llm_trainers.algorithms.losses.binding import bind_policy_loss
from rlgym_llm_trainers.algorithms.losses.gmpo import gmpo_loss
from rlgym_llm_trainers.learner.batch import collate
from rlgym_llm_trainers.learner.batch_logprobs import batch_logprobs
from rlgym_llm_trainers.learner.denominators import Denominators
from rlgym_llm_trainers.learner.filtration import filtrate
from rlgym_llm_trainers.learner.learner import Learner
from rlgym_llm_trainers.learner.mini_batches import mini_batches
from rlgym_llm_trainers.learner.sample import TrainingSample
from rlgym_llm_trainers.models.policy import make_reference

from rlgym_llm.config_samples import PfPpoConfig
from rlgym_llm.config_schema import ActorConfig


def sample(name: str, *, num_reply: int = 1, times: int = 1) -> TrainingSample:
    mask = (False,) + (True,) * num_reply
    return TrainingSample(
        token_ids=(9,) * len(mask),
        loss_mask=mask,
        rollout_logprobs=(0.0,) * len(mask),
        policy_versions=tuple(0 if on else -1 for on in mask),
        rollout_id=name,
        group_id=name[0],
        sample_index=0,
        multiplicity=times,
    )


def test_samples_are_counted_as_they_are_drawn():
    samples = [sample(f"{name}0") for name in "abcd"]
    scores = {"a0": 5.0, "b0": 1.0, "c0": 1.0, "d0": 0.0}
    config = PfPpoConfig(reweight_method="max_min")
    found, metrics = filtrate(samples, scores, config, seed=0)
    times = [one.multiplicity for one in found]
    assert [one.rollout_id for one in found] == ["a0", "b0", "c0", "d0"]
    assert sum(times) == 4  # as many as there were
    assert times[1] == times[2] == 0  # only the best and the worst
    assert metrics == {"training/pf_ppo/drawn_ratio": sum(count > 0 for count in times) / 4}
    assert filtrate(samples, scores, config, seed=0)[0] == found
    others = [filtrate(samples, scores, config, seed=seed)[0] for seed in range(1, 9)]
    assert any(other != found for other in others)
    assert filtrate([], {}, config, seed=0) == ([], {})


def test_mini_batches_are_those_of_the_prompts_as_they_were():
    samples = [
        sample(name, times=times) for name, times in zip("abcdef", [1, 0, 2, 1, 0, 0], strict=True)
    ]
    found = mini_batches(samples, num_prompts=2)
    # Prompts a b, c d, e f: b is left out of the first, and the third has nothing to train.
    assert [[one.rollout_id for one in part] for part in found] == [["a"], ["c", "d"]]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        # Token losses [1, 3] drawn twice, [5] once, of the prompts a and b.
        ("token-mean", (2 * (1 + 3) + 5) / (2 * 2 + 1)),
        ("seq-mean-token-sum", (2 * 4 + 5) / 3),
        ("seq-mean-token-sum-norm", (2 * 4 + 5) / 3 / 10),
        ("seq-mean-token-mean", (2 * 2 + 5) / 3),
        ("prompt-mean", (2 + 5) / 2),  # a prompt's own mean is not moved by doubling all of it
    ],
)
def test_how_often_a_sample_counts_stands_above_and_below(mode, expected):
    samples = [sample("a0", num_reply=2, times=2), sample("b0", times=1)]
    reduce = Denominators.of(samples).reduce(samples, mode=mode, max_length=10)
    losses = torch.tensor([[float("nan"), 1.0, 3.0], [float("nan"), 5.0, float("nan")]])
    mask = torch.tensor([[False, True, True], [False, True, False]])
    assert float(reduce(losses, mask)) == pytest.approx(expected)


def test_within_a_prompt_the_prompt_mean_moves_to_what_was_drawn_more_often():
    samples = [sample("a0", num_reply=2, times=3), sample("a1", times=1)]
    reduce = Denominators.of(samples).reduce(samples, mode="prompt-mean", max_length=10)
    losses = torch.tensor([[0.0, 1.0, 3.0], [0.0, 5.0, 0.0]])
    mask = torch.tensor([[False, True, True], [False, True, False]])
    assert float(reduce(losses, mask)) == pytest.approx((3 * 4 + 5) / (3 * 2 + 1))


def real_samples(policy) -> list[TrainingSample]:
    """Three groups of two, of random ids, sampled by the policy itself up to a factor."""
    draw = torch.Generator().manual_seed(1)
    samples = []
    for i, (num_prompt, num_reply) in enumerate([(3, 5), (3, 2), (6, 9), (6, 1), (5, 7), (5, 3)]):
        length = num_prompt + num_reply
        mask = (False,) * num_prompt + (True,) * num_reply
        bare = TrainingSample(
            token_ids=tuple(torch.randint(6, 100, (length,), generator=draw).tolist()),
            loss_mask=mask,
            rollout_logprobs=(0.0,) * length,
            policy_versions=tuple(0 if on else -1 for on in mask),
            rollout_id=str(i),
            group_id=str(i // 2),
            sample_index=i % 2,
            advantages=tuple((1.5 if i % 2 else -1.0) * on for on in mask),
        )
        with torch.no_grad():
            found, _ = batch_logprobs(policy.model, collate([bare], pad_id=0), temperature=1.0)
        samples.append(replace(bare, rollout_logprobs=tuple(found[0].tolist())))
    return samples


@pytest.mark.parametrize("loss", [ppo_clip_loss, gmpo_loss])
@pytest.mark.parametrize("mode", list(LossAggMode))
def test_an_update_is_that_of_as_many_equal_samples(exact_policy, mode, loss):
    times = [2, 0, 1, 3, 1, 0]
    samples = real_samples(exact_policy)
    counted = [replace(one, multiplicity=n) for one, n in zip(samples, times, strict=True)]
    copies = [
        replace(one, rollout_id=f"{one.rollout_id}.{copy_}")
        for one, n in zip(samples, times, strict=True)
        for copy_ in range(n)
    ]
    config = ActorConfig.model_validate(
        {
            "optim": {"lr": 1e-3},
            "loss_agg_mode": mode.value,
            "ppo_epochs": 2,
            "entropy_coeff": 0.01,
            "use_kl_loss": True,
            "kl_loss_coef": 0.1,
        }
    )
    results = []
    for given in (counted, copies):
        twin = copy.deepcopy(exact_policy)
        learner = Learner(
            twin,
            config,
            policy_loss=bind_policy_loss(loss, config),
            mini_batch_prompts=3,
            micro_batch_size=2,
            reference_batch_size=2,
            temperature=1.0,
            max_response_length=10,
            num_updates=10,
            seed=0,
            reference=make_reference(exact_policy),
        )
        metrics = learner.update(learner.add_reference(given), step=1)
        after = torch.cat([p.detach().flatten() for p in twin.model.parameters()])
        results.append((after, metrics))
    (mine, figures), (theirs, wanted) = results
    before = torch.cat([p.detach().flatten() for p in exact_policy.model.parameters()])
    assert not torch.allclose(mine, before, atol=1e-5)
    assert torch.allclose(mine, theirs, atol=1e-9, rtol=0)
    for name in ("actor/pg_loss", "actor/kl_loss", "actor/grad_norm"):
        assert figures[name] == pytest.approx(wanted[name], rel=1e-7, abs=1e-10)
