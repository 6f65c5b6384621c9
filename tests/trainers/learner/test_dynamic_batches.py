"""Micro-batches bounded by tokens: packed or padded, and what the configuration asks of them."""

from __future__ import annotations

import copy

import pytest
import torch
from rlgym_llm_trainers.algorithms.losses import ppo_clip_loss
from rlgym_llm_trainers.algorithms.losses.binding import bind_policy_loss
from rlgym_llm_trainers.learner.batching import Batching
from rlgym_llm_trainers.learner.learner import Learner
from rlgym_llm_trainers.learner.micro_batches import num_computed_tokens, split_micro_batches
from rlgym_llm_trainers.learner.sample import TrainingSample

from rlgym_llm.batch_arithmetic import describe, plan_batches
from rlgym_llm.config import load_config
from rlgym_llm.config_schema import ActorConfig
from rlgym_llm.errors import ConfigError, UserError


def sample(name: str, num_tokens: int, *, prompt: int = 1, advantage: float = 1.0):
    """One prompt token, then ``num_tokens - 1`` that were sampled."""
    mask = (False,) + (True,) * (num_tokens - 1)
    return TrainingSample(
        token_ids=(prompt,) + (9,) * (num_tokens - 1),
        loss_mask=mask,
        rollout_logprobs=tuple(-1.0 * on for on in mask),
        policy_versions=tuple(0 if on else -1 for on in mask),
        rollout_id=name,
        group_id=str(prompt),
        sample_index=0,
        advantages=tuple(advantage * on for on in mask),
    )


def names(parts):
    return [[one.rollout_id for one in part] for part in parts]


def test_padded_parts_count_their_padding():
    samples = [sample(str(length), length) for length in (5, 2, 4, 3)]
    assert names(split_micro_batches(samples, 4, max_tokens=6)) == [["5"], ["4"], ["3", "2"]]
    assert names(split_micro_batches(samples, 4, max_tokens=8)) == [["5"], ["4", "3"], ["2"]]
    assert names(split_micro_batches(samples, 4, max_tokens=20)) == [["5", "4", "3", "2"]]
    assert names(split_micro_batches(samples, 1, max_tokens=20)) == [["5"], ["4"], ["3"], ["2"]]
    with pytest.raises(UserError, match="rollout 5 has 5 tokens, more than the 4") as error:
        split_micro_batches(samples, 4, max_tokens=4)
    assert "--actor.ppo_max_token_len_per_gpu" in str(error.value)


@pytest.mark.parametrize("is_packed", [True, False])
def test_no_micro_batch_computes_more_than_its_bound(is_packed):
    batching = Batching(
        max_tokens=9, is_packed=is_packed, pad_token_id=0, device=torch.device("cpu")
    )
    samples = [sample(str(i), 2 + i % 4, prompt=i % 3 + 1) for i in range(10)]
    seen = []
    for part, batch in batching.parts(samples):
        seen += [one.rollout_id for one in part]
        # Packed, siblings share their prompt; padded, all rows are as long as the longest.
        computed = num_computed_tokens(part) if is_packed else batch.input_ids.numel()
        assert computed <= 9
    assert sorted(seen) == sorted(str(i) for i in range(10))


def test_the_bound_changes_no_result(exact_policy):
    config = ActorConfig.model_validate({"optim": {"lr": 1e-3}})
    samples = [
        sample(str(i), 3 + i % 4, prompt=i // 2 + 1, advantage=(-1.0) ** i) for i in range(8)
    ]
    found = []
    for max_tokens in (None, 6, 11):
        twin = copy.deepcopy(exact_policy)
        learner = Learner(
            twin,
            config,
            policy_loss=bind_policy_loss(ppo_clip_loss, config),
            mini_batch_prompts=4,
            micro_batch_size=8,
            reference_batch_size=8,
            max_tokens=max_tokens,
            reference_max_tokens=max_tokens,
            temperature=1.0,
            max_response_length=10,
            num_updates=10,
            seed=0,
        )
        learner.update(learner.add_old_logprobs(samples), step=1, version=1)
        found.append(torch.cat([p.detach().flatten() for p in twin.model.parameters()]))
    before = torch.cat([p.detach().flatten() for p in exact_policy.model.parameters()])
    assert not torch.allclose(found[0], before, atol=1e-5)
    for other in found[1:]:
        assert torch.allclose(other, found[0], atol=1e-9, rtol=0)


LENGTHS = ["--data.max_prompt_length", "100", "--data.max_response_length", "50"]
BY_TOKENS = ["--actor.use_dynamic_bsz", "true", "--actor.ppo_max_token_len_per_gpu"]


def test_the_plan_counts_tokens_and_no_sequences():
    plan = plan_batches(load_config([*LENGTHS, *BY_TOKENS, "150"]), has_critic=True)
    assert (plan.max_tokens, plan.reference_max_tokens) == (150, 150)
    assert plan.micro_batch_size == plan.reference_batch_size == 32 * 8
    assert plan.critic is not None
    assert plan.critic.max_tokens == 150
    assert "at most 150 tokens on each of 1 rank" in describe(plan)
    plain = plan_batches(load_config(LENGTHS), has_critic=True)
    assert (plain.max_tokens, plain.reference_max_tokens) == (None, None)
    assert plain.critic is not None
    assert plain.critic.max_tokens is None


def test_the_reference_policy_may_have_a_bound_of_its_own():
    flags = [
        "--ref.log_prob_use_dynamic_bsz",
        "true",
        "--ref.log_prob_max_token_len_per_gpu",
        "400",
    ]
    plan = plan_batches(load_config([*LENGTHS, *flags]))
    assert (plan.max_tokens, plan.reference_max_tokens) == (None, 400)
    own = ["--ref.log_prob_micro_batch_size_per_gpu", "4"]
    plan = plan_batches(load_config([*LENGTHS, *BY_TOKENS, "150", *own]))
    assert (plan.reference_max_tokens, plan.reference_batch_size) == (None, 4)


def test_verls_spellings_are_taken():
    config = load_config(
        [
            *("--actor_rollout_ref.actor.use_dynamic_bsz", "True"),
            *("--actor_rollout_ref.actor.ppo_max_token_len_per_gpu", "24000"),
            *("--actor_rollout_ref.ref.log_prob_max_token_len_per_gpu", "48000"),
        ]
    )
    plan = plan_batches(config)
    assert (plan.max_tokens, plan.reference_max_tokens) == (24_000, 48_000)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (
            [*BY_TOKENS, "149"],
            "--actor.ppo_max_token_len_per_gpu 149: one sequence may have 150 tokens",
        ),
        (
            ["--ref.log_prob_use_dynamic_bsz", "true", "--ref.log_prob_max_token_len_per_gpu", "9"],
            "--ref.log_prob_max_token_len_per_gpu 9: one sequence may have 150 tokens",
        ),
        (
            ["--ref.log_prob_max_token_len_per_gpu", "900"],
            "has no effect without --ref.log_prob_use_dynamic_bsz",
        ),
        (["--actor.ppo_max_token_len_per_gpu", "900"], "has no effect without use_dynamic_bsz"),
        (
            [*BY_TOKENS, "150", "--actor.ppo_micro_batch_size_per_gpu", "4"],
            "ppo_micro_batch_size_per_gpu has no effect with use_dynamic_bsz",
        ),
    ],
)
def test_a_bound_that_cannot_hold_or_has_no_effect_is_refused(flags, says):
    with pytest.raises(ConfigError) as error:
        plan_batches(load_config([*LENGTHS, *flags]))
    assert says in str(error.value)
    assert "\n" not in str(error.value)
