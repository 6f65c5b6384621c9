"""Compiled layers learn what others learn; about a minute of compiling on a CPU."""

from __future__ import annotations

import copy

import pytest
import torch
from rlgym_llm_trainers.algorithms.losses import ppo_clip_loss
from rlgym_llm_trainers.algorithms.losses.binding import bind_policy_loss
from rlgym_llm_trainers.learner.learner import Learner
from rlgym_llm_trainers.learner.sample import TrainingSample
from rlgym_llm_trainers.learner.shard import compile_layers

from rlgym_llm.config_schema import ActorConfig

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # torch's compiler warns


def make_samples(lengths):
    draw = torch.Generator().manual_seed(len(lengths))
    return [
        TrainingSample(
            token_ids=tuple(torch.randint(6, 100, (2 + length,), generator=draw).tolist()),
            loss_mask=(False,) * 2 + (True,) * length,
            rollout_logprobs=(0.0,) * 2 + (-2.0,) * length,
            policy_versions=(-1,) * 2 + (0,) * length,
            rollout_id=str(place),
            group_id=str(place // 2),
            sample_index=place % 2,
            advantages=(0.0,) * 2 + (1.0 - 2 * (place % 2),) * length,
        )
        for place, length in enumerate(lengths)
    ]


@pytest.mark.timeout(900)
def test_compiled_layers_learn_what_others_learn(policy):
    config = ActorConfig.model_validate({"optim": {"lr": 1e-3}})
    found = []
    copies = [copy.deepcopy(policy.model) for _ in range(2)]  # an update renews the policy
    for trained in copies:
        if found:
            compile_layers(trained)
        learner = Learner(
            policy,
            config,
            policy_loss=bind_policy_loss(ppo_clip_loss, config),
            mini_batch_prompts=2,
            micro_batch_size=4,
            reference_batch_size=4,
            temperature=1.0,
            max_response_length=9,
            num_updates=2,
            seed=0,
            trained=trained,
        )
        metrics = [
            learner.update(make_samples(lengths), step=1, version=1)
            for lengths in ([3, 5, 2, 4], [7, 1, 6])  # compiled once, for any length
        ]
        found.append((metrics, [p.detach().clone() for p in trained.parameters()]))
    (plain, weights), (compiled, same) = found
    for one, other in zip(plain, compiled, strict=True):
        assert other["actor/loss"] == pytest.approx(one["actor/loss"], rel=1e-5)
        assert other["actor/grad_norm"] == pytest.approx(one["actor/grad_norm"], rel=1e-5)
    for one, other in zip(weights, same, strict=True):
        assert torch.allclose(one, other, atol=1e-5)
