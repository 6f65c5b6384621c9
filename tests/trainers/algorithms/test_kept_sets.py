"""Training under top-k and top-p: every log-prob of a token is over what it was sampled from."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from rlgym_llm_trainers.algorithms.kept_sets import KeptRows, KeptSetsRecorder, fault_of
from rlgym_llm_trainers.algorithms.logprobs import hidden_to_logprobs
from rlgym_llm_trainers.algorithms.losses import ppo_clip_loss
from rlgym_llm_trainers.algorithms.metrics import finalize
from rlgym_llm_trainers.generators.hf_generator import HFGenerator
from rlgym_llm_trainers.generators.sampling import keep_top
from rlgym_llm_trainers.learner.agreement import check_agreement, generator_agreement
from rlgym_llm_trainers.learner.batch import collate
from rlgym_llm_trainers.learner.batch_logprobs import batch_logprobs
from rlgym_llm_trainers.learner.learner import Learner
from rlgym_llm_trainers.learner.micro_batches import split_micro_batches
from rlgym_llm_trainers.learner.sample import sample_from_rollout
from rlgym_llm_trainers.models.policy import load_policy
from rlgym_llm_trainers.models.starter import starter_model_path

from rlgym_llm.config_schema import ActorConfig
from rlgym_llm.errors import GeneratorError
from rlgym_llm.generate import GenerateRequest, SamplingParams
from rlgym_llm.kept_sets import KeptSets
from rlgym_llm.types import Completion, Message, Rollout, Task, Turn

PROBS = [0.5, 0.3, 0.15, 0.05]
PROMPTS = ["2 + 3 = ?", "hello", "a rather longer prompt than the others", "2 + 3 = ?"]


def rows_of(*sets):
    kept = KeptSets.of(sets)
    ids = np.frombuffer(kept.ids, dtype=np.int32).copy()
    return KeptRows(torch.tensor(kept.counts), torch.from_numpy(ids))


def requests_of(generator, *, prompts=PROMPTS, max_new_tokens=24, **params):
    wanted = SamplingParams(max_new_tokens=max_new_tokens, **params)
    return [
        GenerateRequest(
            prompt_token_ids=generator.encode_prompt((Message(role="user", content=text),)),
            params=wanted,
            seed=seed,
        )
        for seed, text in enumerate(prompts)
    ]


def samples_of(policy, *, prompts=PROMPTS, is_cut=True, **params):
    """What a generator over the policy sampled, advantages +1 and -1 in turn."""
    generator = HFGenerator(policy)
    requests = requests_of(generator, prompts=prompts, **params)
    samples = []
    for i, (request, done) in enumerate(zip(requests, generator.generate(requests), strict=True)):
        rollout = Rollout(
            id=f"r{i}",
            task=Task(prompt="?"),
            group_id=f"g{i // 2}",
            sample_index=i % 2,
            seed=i,
            turns=(Turn(new_prompt_token_ids=request.prompt_token_ids, completion=done),),
        )
        sample = sample_from_rollout(rollout, is_cut=is_cut)
        sign = (-1.0) ** i
        samples.append(replace(sample, advantages=tuple(sign * on for on in sample.loss_mask)))
    return samples


def over_all_ids(sample):
    return replace(sample, kept_sets=None)


def by_explicit_mask(policy, batch, samples, temperature):
    """Log-probs and entropies [B, T] from all logits, each row cut by hand with a mask."""
    inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
    logits = policy.model(**inputs, position_ids=batch.position_ids).logits / temperature
    logprobs = torch.zeros(batch.input_ids.shape, dtype=logits.dtype)
    entropies = torch.zeros_like(logprobs)
    for b, sample in enumerate(samples):
        for t in range(1, sample.num_tokens):
            if not sample.loss_mask[t]:
                continue
            row, kept = logits[b, t - 1], sample.kept_sets and sample.kept_sets[t]
            if kept is not None:
                mask = torch.full_like(row, -torch.inf)
                mask[list(kept)] = 0
                row = row + mask
            found = row.log_softmax(-1)
            logprobs[b, t] = found[sample.token_ids[t]]
            finite = found[found > -torch.inf]
            entropies[b, t] = -(finite.exp() * finite).sum()
    return logprobs, entropies


# By hand


def test_log_prob_and_entropy_of_the_two_that_top_p_left():
    logits = torch.tensor([PROBS, PROBS], dtype=torch.float64).log()
    recorder = KeptSetsRecorder(1)
    recorder.add(np.array([0]), keep_top(logits[:1], top_p=0.8))
    assert list(recorder.of(0)) == [(0, 1)]
    # p = [.625, .375] over {0, 1}; the second row was sampled from all four.
    found, entropy = hidden_to_logprobs(
        logits, None, torch.tensor([0, 0]), with_entropy=True, kept=rows_of((0, 1), None)
    )
    assert found.tolist() == pytest.approx([math.log(0.625), math.log(0.5)], abs=1e-12)
    of_two = -0.625 * math.log(0.625) - 0.375 * math.log(0.375)
    of_four = -sum(p * math.log(p) for p in PROBS)
    assert entropy.tolist() == pytest.approx([of_two, of_four], abs=1e-12)


def test_the_set_is_that_of_the_tempered_distribution():
    # At temperature 1/2 p is squared: [.25, .09, .0225, .0025] / .365 = [.685, .247, .062, .007].
    logits = torch.tensor([PROBS], dtype=torch.float64).log()
    hand = math.log(0.25 / 0.34)
    kept = rows_of((0, 1))
    found, _ = hidden_to_logprobs(logits, None, torch.tensor([0]), 0.5, kept=kept)
    assert found.item() == pytest.approx(hand, abs=1e-12)


def test_tokens_outside_get_no_gradient_and_those_inside_sum_to_zero():
    logits = torch.tensor([PROBS], dtype=torch.float64).log().requires_grad_()
    found, _ = hidden_to_logprobs(logits, None, torch.tensor([0]), kept=rows_of((0, 1)))
    found.sum().backward()
    # d log p_0 / d z = onehot - p over the kept set.
    assert logits.grad[0].tolist() == pytest.approx([0.375, -0.375, 0.0, 0.0], abs=1e-12)


def test_the_recorder_follows_requests_as_rows_leave_the_batch():
    recorder = KeptSetsRecorder(3)
    cut = -torch.inf
    recorder.add(np.array([0, 1, 2]), torch.tensor([[1.0, cut], [1.0, 2.0], [cut, 2.0]]))
    recorder.add(np.array([2]), torch.tensor([[0.0, cut]]))
    assert [list(recorder.of(i)) for i in range(3)] == [[(0,)], [None], [(1,), (0,)]]


@pytest.mark.parametrize("chunk_size", [1, 2, 3, 100])
def test_no_chunk_changes_anything(chunk_size):
    draw = torch.Generator().manual_seed(0)
    hidden = torch.randn(5, 3, dtype=torch.float64, generator=draw)
    weight = torch.randn(7, 3, dtype=torch.float64, generator=draw)
    sets = [(0, 4), None, (1, 2, 6), (3,), (0, 1, 2, 3, 4, 5)]
    targets = torch.tensor([4, 5, 1, 3, 0])
    found, entropy = hidden_to_logprobs(
        hidden, weight, targets, 0.7, chunk_size=chunk_size, with_entropy=True, kept=rows_of(*sets)
    )
    for row, kept in enumerate(sets):
        scaled = (hidden[row] @ weight.T / 0.7)[list(kept or range(7))].log_softmax(-1)
        place = list(kept or range(7)).index(int(targets[row]))
        assert found[row].item() == pytest.approx(scaled[place].item(), abs=1e-12)
        assert entropy[row].item() == pytest.approx(float(-(scaled.exp() * scaled).sum()))


def test_only_a_chunk_of_logits_and_of_their_mask_exists_at_a_time():
    saved, hidden = [], torch.ones(64, 3, requires_grad=True)

    def pack(tensor):
        if tensor.shape[-1] == 50:
            saved.append(tensor.shape)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        found, _ = hidden_to_logprobs(
            hidden,
            torch.ones(50, 3),
            torch.zeros(64, dtype=torch.long),
            chunk_size=8,
            kept=rows_of(*[(0, 1)] * 64),
        )
    assert saved == [(8, 50)]
    assert found.tolist() == pytest.approx([math.log(0.5)] * 64)


# Samples


def turn(sampled, kept):
    count = len(sampled)
    completion = Completion(
        text="x",
        token_ids=tuple(sampled),
        logprobs=(-0.5,) * count,
        version_spans=((0, count, 0),),
        kept_token_ids=kept,
    )
    return Turn(new_prompt_token_ids=(1, 2), completion=completion)


def rollout_of(*turns):
    return Rollout(id="r", task=Task(prompt="?"), group_id="g", sample_index=0, seed=0, turns=turns)


def test_a_sample_has_the_sets_of_its_turns_where_they_were_sampled():
    rollout = rollout_of(
        turn([4, 5], KeptSets.of([(4, 6), None])), turn([7], KeptSets.of([(3, 7, 8)]))
    )
    sample = sample_from_rollout(rollout, is_cut=True)
    expected = [None, None, (4, 6), None, None, None, (3, 7, 8)]
    assert list(sample.kept_sets) == expected
    batch = collate([sample, replace(sample, kept_sets=None)], pad_id=0)
    assert batch.kept_counts.tolist() == [[0, 0, 2, 0, 0, 0, 3], [0] * 7]
    assert batch.kept_ids.tolist() == [4, 6, 3, 7, 8]
    assert batch.kept_rows.counts.tolist() == [2, 0, 3, 0, 0, 0]
    assert batch.to("cpu").kept_ids.dtype == torch.int32
    without = collate([replace(sample, kept_sets=None)], pad_id=0)
    assert without.kept_counts is without.kept_ids is without.kept_rows is None


def test_no_kept_sets_under_a_cut_are_the_generators_fault():
    uncut = rollout_of(turn([4], None))
    assert sample_from_rollout(uncut).kept_sets is None
    with pytest.raises(GeneratorError, match="rollout r, turn 1: its generator did not say which"):
        sample_from_rollout(
            rollout_of(turn([4], KeptSets.of([(4,)])), turn([4], None)), is_cut=True
        )


def test_a_sampled_token_is_in_its_own_set():
    with pytest.raises(ValueError, match="rollout r: token 3 has the id 5, which is not in its"):
        sample_from_rollout(rollout_of(turn([4, 5], KeptSets.of([(4,), (4, 6)]))))
    sample = sample_from_rollout(rollout_of(turn([4], KeptSets.of([(4,)]))))
    with pytest.raises(ValueError, match="token 1 has a kept set but was not sampled"):
        replace(sample, kept_sets=KeptSets.of([None, (2,), (4,)]))
    with pytest.raises(ValueError, match="3 token_ids but 2 kept_sets"):
        replace(sample, kept_sets=KeptSets.uncut(2))
    assert fault_of(KeptSets.of([None, (3, 5)]), [9, 5], [False, True]) is None


# The generator


@pytest.mark.parametrize("params", [{"top_p": 0.8}, {"top_k": 5}, {"top_p": 0.9, "top_k": 7}])
def test_the_generator_says_what_it_sampled_from(policy, params):
    generator = HFGenerator(policy)
    requests = requests_of(generator, temperature=0.7, **params)
    for request, done in zip(requests, generator.generate(requests), strict=True):
        assert len(done.kept_token_ids) == done.num_tokens == len(done.logprobs)
        ids = torch.tensor([[*request.prompt_token_ids, *done.token_ids]])
        with torch.no_grad():
            rows = policy.model(ids).logits[0, len(request.prompt_token_ids) - 1 : -1] / 0.7
        for token, logprob, row, kept in zip(
            done.token_ids, done.logprobs, rows, done.kept_token_ids, strict=True
        ):
            assert token in kept
            over_kept = row[list(kept)].log_softmax(-1)[kept.index(token)]
            assert logprob == pytest.approx(over_kept.item(), abs=1e-4)
            mass = row.softmax(-1)[list(kept)].sum()
            assert len(kept) <= params.get("top_k", len(row))
            assert row[list(kept)].min() >= row.topk(len(kept)).values[-1] - 1e-5
            if "top_k" not in params:
                assert mass >= params["top_p"] - 1e-5
                assert mass - row.softmax(-1)[list(kept)].min() < params["top_p"] + 1e-5


def test_without_a_cut_there_are_none_and_a_cut_of_nothing_takes_no_room(policy):
    generator = HFGenerator(policy)
    plain = generator.generate(requests_of(generator))
    wide = generator.generate(requests_of(generator, top_k=10**6))
    assert all(one.kept_token_ids is None for one in plain)
    assert all(one.kept_token_ids == KeptSets.uncut(one.num_tokens) for one in wide)
    assert [one.token_ids for one in wide] == [one.token_ids for one in plain]
    assert [one.logprobs for one in wide] == [one.logprobs for one in plain]


def test_sets_do_not_depend_on_the_batch(policy):
    generator = HFGenerator(policy)
    requests = requests_of(generator, top_p=0.7)
    together = [done.kept_token_ids for done in generator.generate(requests)]
    alone = [generator.generate([one])[0].kept_token_ids for one in requests]
    assert alone == together


# The learner


@pytest.mark.parametrize("has_plain_head", [True, False])
@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_log_probs_entropies_and_gradients_are_those_of_an_explicit_mask(
    policy, has_plain_head, temperature
):
    policy.model.double()
    samples = samples_of(policy, temperature=temperature, top_p=0.8)
    samples[1] = over_all_ids(samples[1])  # a batch may hold both
    results = []
    for is_explicit in (False, True):
        twin = copy.deepcopy(policy)
        batch = collate(samples, pad_id=0)
        if is_explicit:
            logprobs, entropies = by_explicit_mask(twin, batch, samples, temperature)
        else:
            logprobs, entropies = batch_logprobs(
                twin.model,
                batch,
                temperature=temperature,
                with_entropy=True,
                has_plain_head=has_plain_head,
            )
        assert torch.isfinite(logprobs).all()
        weights = torch.linspace(-1, 1, logprobs.numel(), dtype=torch.float64).view_as(logprobs)
        (weights * logprobs + weights.cos() * entropies).sum().backward()
        gradient = torch.cat([p.grad.flatten() for p in twin.model.parameters()])
        results.append((logprobs.detach(), entropies.detach(), gradient))
    for ours, explicit in zip(*results, strict=True):
        assert torch.allclose(ours, explicit, rtol=0, atol=1e-10)


def learner_of(policy, micro_batch_size, temperature):
    return Learner(
        policy,
        ActorConfig.model_validate({"optim": {"lr": 1e-3}, "entropy_coeff": 0.01}),
        policy_loss=ppo_clip_loss,
        mini_batch_prompts=2,
        micro_batch_size=micro_batch_size,
        reference_batch_size=3,
        temperature=temperature,
        max_response_length=24,
        num_updates=10,
        seed=0,
        reference=copy.deepcopy(policy.model),
    )


def test_the_split_into_micro_batches_changes_nothing(exact_policy):
    policy = exact_policy
    samples = samples_of(policy, temperature=0.7, top_p=0.8)
    results = []
    for micro_batch_size, order in ((4, 1), (1, 1), (3, -1)):
        twin = copy.deepcopy(policy)
        metrics = learner_of(twin, micro_batch_size, 0.7).update(samples[::order], step=1)
        weights = torch.cat([p.detach().flatten() for p in twin.model.parameters()])
        results.append((weights, metrics["actor/grad_norm"], metrics["actor/entropy"]))
    for weights, norm, entropy in results[1:]:
        assert torch.allclose(weights, results[0][0], atol=1e-9, rtol=0)
        assert norm == pytest.approx(results[0][1], rel=1e-9)
        assert entropy == pytest.approx(results[0][2], rel=1e-9)


def test_old_and_reference_log_probs_are_over_the_same_sets(policy):
    policy.model.double()
    samples = samples_of(policy, temperature=0.7, top_p=0.8)
    learner = learner_of(policy, 4, 0.7)
    for add, name in (
        (learner.add_old_logprobs, "old_logprobs"),
        (learner.add_reference, "ref_logprobs"),
    ):
        for sample in add(samples):
            found = torch.tensor(getattr(sample, name))
            assert torch.allclose(found, torch.tensor(sample.rollout_logprobs), atol=1e-5)
    parts = split_micro_batches(learner.add_old_logprobs(samples), 2)
    assert all(sample.kept_sets is not None for part in parts for sample in part)


def agreement_of(policy, samples, temperature):
    batch = collate(samples, policy.pad_token_id)
    with torch.no_grad():
        found, _ = batch_logprobs(policy.model, batch, temperature=temperature)
    return finalize(generator_agreement(found, batch, None))


def test_generator_and_learner_agree_only_over_the_kept_sets():
    starter = load_policy(starter_model_path(), device=torch.device("cpu"))
    prompts = [f"Tom has {i} apples and buys {2 * i} more. How many?" for i in range(1, 9)]
    samples = samples_of(starter, prompts=prompts, temperature=0.7, top_p=0.9, max_new_tokens=64)
    metrics = agreement_of(starter, samples, 0.7)
    assert metrics["training/rollout_probs_diff_max"] < 2e-5
    assert metrics["training/rollout_probs_diff_mean"] < 2e-6
    assert metrics["training/rollout_ratio_diff_max"] < 1e-4
    check_agreement(metrics)
    without = agreement_of(starter, [over_all_ids(sample) for sample in samples], 0.7)
    assert (
        without["training/rollout_probs_diff_mean"]
        > 1000 * metrics["training/rollout_probs_diff_mean"]
    )
    # A kept mass of at least .9 leaves a ratio of .9 to 1: at most a tenth too low.
    assert 0.01 < without["training/rollout_ratio_diff_max"] < 0.1 + 1e-4
