"""Public bug reports of the peers, as cases: each is tested here or elsewhere.

The numbers come from the case itself (``input`` and ``right``); nothing is copied from the file.
"""

import functools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from rlgym_llm_trainers.algorithms.aggregate import aggregate, count_tokens
from rlgym_llm_trainers.algorithms.kept_sets import KeptRows, KeptSetsRecorder
from rlgym_llm_trainers.algorithms.kl import kl_penalty
from rlgym_llm_trainers.algorithms.logprobs import hidden_to_logprobs, token_logprobs
from rlgym_llm_trainers.algorithms.losses import PolicyLossInputs, kl_loss, ppo_clip_loss
from rlgym_llm_trainers.algorithms.losses.gspo import gspo_loss
from rlgym_llm_trainers.algorithms.metrics import finalize, length_metrics
from rlgym_llm_trainers.generators.sampling import keep_top
from rlgym_llm_trainers.learner.batch import collate
from rlgym_llm_trainers.learner.micro_batches import split_micro_batches
from rlgym_llm_trainers.learner.reward_kl import kl_metrics, penalized
from rlgym_llm_trainers.learner.sample import sample_from_rollout
from rlgym_llm_trainers.learner.streams import with_stream

from rlgym_llm.types import Completion, Rollout, Task, Turn

pytestmark = pytest.mark.data

AREAS = {"loss", "kl", "mask", "logprob"}

ELSEWHERE = {
    "loss-filtered_token_inf_times_zero": "algorithms/test_correction.py",
    "loss-tis_cap_direction": "algorithms/test_correction.py",
}
"""Cases with a test in the file of what they are about."""

CASES = {}
"""Id of a case -> its test: a function of the case's ``input`` and ``right``."""


def case(case_id):
    def register(function):
        assert case_id not in CASES
        CASES[case_id] = function
        return function

    return register


@pytest.fixture(scope="module")
def reported(test_data):
    lines = (test_data / "cases" / "bug_reports.jsonl").read_text().splitlines()
    return [entry["id"] for entry in map(json.loads, lines) if entry["area"] in AREAS]


def test_every_case_of_these_areas_is_tested(reported):
    assert len(reported) == len(set(reported)) > 0
    assert sorted([*CASES, *ELSEWHERE]) == sorted(reported)
    for name, file in ELSEWHERE.items():
        assert f'"{name}"' in (Path(__file__).parent / file).read_text(encoding="utf-8")


def approx(value, right):
    return pytest.approx(value, abs=max(right.get("tol", 1e-9), 1e-9))


def float64(values):
    return torch.tensor(values, dtype=torch.float64)


def ones(num_tokens):
    return torch.ones(1, num_tokens, dtype=torch.bool)


def ppo(logprobs, old_logprobs, advantages, **options):
    """The token-mean PPO loss of one row of float64 tokens."""
    mask = ones(logprobs.shape[-1])
    inputs = PolicyLossInputs(
        logprobs=logprobs, old_logprobs=old_logprobs, advantages=advantages, mask=mask
    )
    reduce = functools.partial(aggregate, num_tokens=mask.numel(), num_sequences=1)
    return ppo_clip_loss(inputs, reduce=reduce, **options)


def token_losses(ratios, advantages, **options):
    """The loss of each token on its own, given its ratio."""
    pairs = zip(ratios, advantages, strict=True)
    return [
        ppo(float64([[r]]).log(), float64([[0.0]]), float64([[a]]), **options).loss.item()
        for r, a in pairs
    ]


def micro_sums(tokens, loss_sums, **options):
    """Shares of micro-batches of one sequence each, given their tokens and summed losses."""
    return [
        aggregate(float64([[s / n] * n]), ones(n), num_sequences=len(tokens), **options).item()
        for n, s in zip(tokens, loss_sums, strict=True)
    ]


def sample(prompt, sampled, *, index=0):
    completion = Completion(
        text="",
        token_ids=tuple(sampled),
        logprobs=(-1.0,) * len(sampled),
        version_spans=((0, len(sampled), 0),),
    )
    turn = Turn(new_prompt_token_ids=tuple(prompt), completion=completion)
    task = Task(prompt="?")
    rollout = Rollout(
        id=f"r{index}", task=task, group_id="g", sample_index=index, seed=0, turns=(turn,)
    )
    return sample_from_rollout(rollout)


def response_masks(batch, prompt_lengths):
    """Loss masks of a batch without their prompts; all prompts must be equally long."""
    (prompt_length,) = set(prompt_lengths)
    return batch.loss_mask[:, prompt_length:].long().tolist()


# --- aggregation


@case("loss-token_mean_micro_weighting")
def token_mean_over_the_step(given, right):
    parts = given["micro_batches"]
    tokens, sums = [p["tokens"] for p in parts], [p["loss_sum"] for p in parts]
    found = sum(micro_sums(tokens, sums, num_tokens=sum(tokens)))
    assert found == approx(right["values"]["loss"], right)


@case("loss-split_changes_objective")
def split_changes_nothing(given, right):
    samples = given["samples"]
    width, num_tokens = max(s["tokens"] for s in samples), sum(s["tokens"] for s in samples)
    mask = torch.arange(width) < torch.tensor([s["tokens"] for s in samples])[:, None]
    advantages = float64([[s["A"]] * width for s in samples])
    reduce = functools.partial(
        aggregate, mode=given["mode"], num_tokens=num_tokens, num_sequences=len(samples)
    )
    logprobs = torch.full_like(advantages, -1.0)
    for size in given["micro_batch_sizes"]:
        total = 0.0
        for rows in torch.arange(len(samples)).split(size):
            inputs = PolicyLossInputs(
                logprobs=logprobs[rows],
                old_logprobs=logprobs[rows],
                advantages=advantages[rows],
                mask=mask[rows],
            )
            total += ppo_clip_loss(inputs, reduce=reduce).loss.item()
        assert total == approx(right["values"]["loss"], right)


@case("loss-double_division_by_accumulation")
def accumulated_without_another_division(given, right):
    shares = micro_sums(given["tokens"], given["loss_sums"], num_tokens=sum(given["tokens"]))
    assert len(shares) == given["accumulation"]
    assert sum(shares) == approx(right["values"]["loss"], right)


@case("loss-window_differs_from_generation_batch")
def each_step_has_its_own_denominator(given, right):
    size, found = given["accumulation"], []
    for start in range(0, given["micro_steps_per_generation"], size):
        tokens = given["tokens"][start : start + size]
        sums = given["loss_sums"][start : start + size]
        found.append(sum(micro_sums(tokens, sums, num_tokens=sum(tokens))))
    assert found == approx(right["values"]["step_losses"], right)


@case("loss-denominator_ignores_truncation_mask")
def truncated_leave_both_sides(given, right):
    completions = given["completions"]
    lengths = [c["tokens"] for c in completions]
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    metrics = finalize(length_metrics(lengths, truncated=[c["truncated"] for c in completions]))
    mask &= ~torch.tensor([c["truncated"] for c in completions])[:, None]
    num_tokens, num_sequences = count_tokens(mask)
    values = torch.full(mask.shape, given["per_token_loss"], dtype=torch.float64)
    for mode in ("token-mean", "seq-mean-token-mean"):
        loss = aggregate(values, mask, mode, num_tokens=num_tokens, num_sequences=num_sequences)
        assert loss.item() == approx(right["values"]["loss"], right)
    generated = metrics["response_length/mean"] * len(lengths)
    assert generated == right["values"]["generated_tokens_metric"]


@case("loss-dr_grpo_constant_divisor")
def constant_divisor(given, right):
    sums, found = given["seq_loss_sums"], []
    for rows, width in zip(given["micro_batches"], given["padded_widths"], strict=True):
        values = torch.zeros(len(rows), width, dtype=torch.float64)
        values[:, 0] = float64([sums[i] for i in rows])
        share = aggregate(
            values,
            torch.ones_like(values, dtype=torch.bool),
            "seq-mean-token-sum-norm",
            num_tokens=1,
            num_sequences=len(sums),
            max_length=given["max_response_len"],
        )
        found.append(share.item())
    assert found == approx(right["values"]["micro_contributions"], right)
    assert sum(found) == approx(right["values"]["loss"], right)


@case("loss-rank_token_imbalance")
def ranks_add_up_to_the_global_mean(given, right):
    ranks, world = given["ranks"], given["world"]
    tokens, sums = [r["tokens"] for r in ranks], [r["loss_sum"] for r in ranks]
    found = micro_sums(tokens, sums, num_tokens=sum(tokens))
    # The case averages over ranks, where we add up: its shares are so many times ours.
    assert [world * share for share in found] == approx(right["values"]["per_rank_loss"], right)
    assert sum(found) == approx(right["values"]["global"], right)


@case("loss-uneven_last_microbatch")
def last_micro_batch_weighs_by_its_samples(given, right):
    losses, total = float64(given["sample_losses"])[:, None], 0.0
    for rows in given["micro_batches"]:
        mask = torch.ones(len(rows), 1, dtype=torch.bool)
        total += aggregate(
            losses[rows],
            mask,
            "seq-mean-token-mean",
            num_tokens=len(losses),
            num_sequences=len(losses),
        ).item()
    assert total == approx(right["values"]["loss"], right)


@case("loss-kl_and_pg_same_reduction")
def kl_takes_the_same_reduction(given, right):
    rows = given["token_kl"]
    width = max(map(len, rows))
    mask = torch.arange(width) < torch.tensor([len(row) for row in rows])[:, None]
    # k1 with a reference of 0 is the log-prob itself, so that the case's KL goes in as it is.
    logprobs = float64([row + [9.0] * (width - len(row)) for row in rows])
    num_tokens, num_sequences = count_tokens(mask)
    reduce = functools.partial(
        aggregate, mode=given["mode"], num_tokens=num_tokens, num_sequences=num_sequences
    )
    output = kl_loss(logprobs, torch.zeros_like(logprobs), mask, reduce=reduce, kind="k1")
    assert output.loss.item() == approx(right["values"]["kl"], right)


# --- the policy loss


@case("loss-zero_loss_nonzero_gradient")
def zero_loss_still_learns(given, right):
    logit = torch.tensor(given["binary_policy_logit"], dtype=torch.float64, requires_grad=True)
    both = torch.stack([torch.zeros_like(logit), logit]).log_softmax(0)
    logprobs = both[[s["action"] for s in given["samples"]]][None]
    advantages = float64([[s["A"] for s in given["samples"]]])
    output = ppo(logprobs, logprobs.detach(), advantages)
    output.loss.backward()
    assert output.loss.item() == approx(right["values"]["loss"], right)
    assert logit.grad.item() == approx(right["values"]["grad"], right)


@case("loss-dual_clip_negative_advantage")
def dual_clip(given, right):
    ratios, clip = [given["ratio"]] * len(given["A"]), given["eps"]
    for clip_c, name in ((None, "plain"), (given["dual_clip_c"], "dual")):
        found = token_losses(ratios, given["A"], clip_low=clip, clip_high=clip, clip_c=clip_c)
        assert found == approx(right["values"][name], right)


@case("loss-gspo_ratio_overflow")
def sequence_ratio(given, right):
    found = []
    for one in given["cases"]:
        logprobs = torch.tensor([one["delta"]], dtype=getattr(torch, given["dtype"]))
        logprobs.requires_grad_()
        inputs = PolicyLossInputs(
            logprobs=logprobs,
            old_logprobs=torch.zeros_like(logprobs),
            advantages=torch.full_like(logprobs, one["A"]),
            mask=torch.ones_like(logprobs, dtype=torch.bool),
        )
        reduce = functools.partial(aggregate, num_tokens=2, num_sequences=1)
        output = gspo_loss(inputs, reduce=reduce, clip_low=given["eps"], clip_high=given["eps"])
        output.loss.backward()
        assert torch.isfinite(output.loss)
        assert torch.isfinite(logprobs.grad).all()
        found.append((output.loss.item(), logprobs.grad[0].tolist()))
    ratio = right["values"]["ratio_case1"]
    assert found[0] == (-ratio, [-ratio / 2] * 2)  # A = 1 on both tokens
    assert found[1][0] == approx(right["values"]["loss_case2"], right)
    assert found[1][1] == [0.0, 0.0]


@case("loss-clip_fraction_uses_sign")
def clip_fraction(given, right):
    clip = given["eps"]
    logprobs = float64([given["ratio"]]).log()
    output = ppo(
        logprobs, torch.zeros_like(logprobs), float64([given["A"]]), clip_low=clip, clip_high=clip
    )
    numbers = finalize(output.metrics)
    assert numbers["actor/pg_clipfrac"] == approx(right["values"]["clipfrac"], right)
    assert numbers["actor/clip_ratio/low_mean"] == approx(right["values"]["low"], right)
    assert numbers["actor/clip_ratio/high_mean"] == approx(right["values"]["high"], right)


@case("loss-asymmetric_clip")
def asymmetric_clip(given, right):
    found = token_losses(
        [c["ratio"] for c in given["cases"]],
        [c["A"] for c in given["cases"]],
        clip_low=given["clip_low"],
        clip_high=given["clip_high"],
    )
    assert found == approx(right["values"]["losses"], right)


# --- KL


@case("kl-estimator_values")
def kl_estimators(given, right):
    for kind in ("k1", "k2", "k3"):
        found = kl_penalty(float64(given["logp"]), float64(given["ref_logp"]), kind).tolist()
        assert found == approx(right["values"][kind], right)


@case("kl-offpolicy_importance_weight")
def kl_off_policy(given, right):
    cur, old, ref = (
        float64(given[name]).log_softmax(0)[None]
        for name in ("current_logits", "old_logits", "ref_logits")
    )

    def expectation_under_old(values, mask):
        return (old.exp() * values).sum()

    options = {"mask": torch.ones_like(cur, dtype=torch.bool), "reduce": expectation_under_old}
    weighted = kl_loss(cur, ref, old_logprobs=old, **options).loss.item()
    assert weighted == approx(right["values"]["weighted"], right)
    unweighted = kl_loss(cur, ref, **options).loss.item()
    assert unweighted == approx(right["known_wrong"]["unweighted"], right)


@case("kl-k3_overflow")
def kl_overflow(given, right):
    logprobs = torch.tensor([given["logp"]], dtype=torch.float32, requires_grad=True)
    ref = torch.tensor([given["ref_logp"]], dtype=torch.float32)
    reduce = functools.partial(aggregate, num_tokens=2, num_sequences=1)
    output = kl_loss(logprobs, ref, ones(2), reduce=reduce)
    output.loss.backward()
    expected = [right["values"]["k3_clamped_first"], right["values"]["k3_second"]]
    assert kl_penalty(logprobs, ref, "k3")[0].tolist() == approx(expected, right)
    assert torch.isfinite(logprobs.grad).all()
    assert output.metrics["actor/kl_clampfrac"].value == 1


@case("kl-kl_in_reward_on_masked_tokens")
def kl_in_reward(given, right):
    mask, kl = torch.tensor([given["mask"]]).bool(), float64([given["kl"]])
    outcome = np.zeros(mask.shape)
    outcome[0, -1] = given["outcome"]
    found = penalized(outcome, kl.numpy(), mask.numpy(), kl_coef=given["beta"])
    assert found[0].tolist() == approx(right["values"]["token_rewards"], right)
    metrics = finalize(kl_metrics(kl, mask, kl_coef=given["beta"]))
    assert metrics["actor/reward_kl_penalty"] == approx(right["values"]["mean_kl"], right)


@case("kl-kl_metric_fully_masked_row")
def kl_metric_of_masked_rows(given, right):
    kl, mask = float64(given["kl"]), torch.tensor(given["mask"]).bool()
    reduce = functools.partial(aggregate, num_tokens=2, num_sequences=1)
    output = kl_loss(kl, torch.zeros_like(kl), mask, reduce=reduce, kind="k1")
    expected = approx(right["values"]["mean_over_valid_tokens"], right)
    assert finalize(output.metrics)["actor/kl"] == expected
    assert finalize(kl_metrics(kl, mask, kl_coef=1.0))["actor/reward_kl_penalty"] == expected


# --- log-probs


def sampled_logprob(logits, token, temperature=1.0):
    pair = float64([[logits, logits]])
    return token_logprobs(pair, torch.tensor([[0, token]]), temperature)[0, 1].item()


@case("logprob-temperature_in_trainer")
def temperature_in_the_learner(given, right):
    logits, token, temperature = given["logits"], given["sampled"], given["temperature"]
    assert sampled_logprob(logits, token) == approx(right["values"]["T1"], right)
    found = sampled_logprob(logits, token, temperature)
    assert found == approx(right["values"][f"T{temperature}"], right)
    hidden, identity = float64([logits]), torch.eye(len(logits), dtype=torch.float64)
    chunked, _ = hidden_to_logprobs(hidden, identity, torch.tensor([token]), temperature)
    assert chunked.item() == pytest.approx(found, abs=1e-12)


@case("logprob-dividing_logprob_by_temperature")
def temperature_divides_logits(given, right):
    found = sampled_logprob(given["logits"], given["sampled"], given["temperature"])
    assert found == approx(right["values"]["right"], right)


@case("logprob-top_p_renormalisation")
def kept_set_in_the_learner(given, right):
    logits, token = np.log(given["probs"]), given["sampled"]
    full = sampled_logprob(logits.tolist(), token)
    assert full == approx(right["values"]["full_logp"], right)
    # The learner that applies the same cut has the engine's log-prob: ratio 1.
    recorder, rows = KeptSetsRecorder(1), float64([logits.tolist()])
    recorder.add(np.array([0]), keep_top(rows, top_p=given["top_p"]))
    ids = recorder.of(0)[0]
    kept = KeptRows(torch.tensor([len(ids)]), torch.tensor(ids, dtype=torch.int32))
    found, _ = hidden_to_logprobs(rows, None, torch.tensor([token]), kept=kept)
    renormalised = found.item()
    assert renormalised == approx(right["values"]["engine_logp"], right)
    assert np.exp(full - renormalised) == approx(right["values"]["kept_mass"], right)


@case("logprob-shift_alignment")
def shift(given, right):
    ids, prompt_length = given["input_ids"], given["prompt_len"]
    batch = collate([sample(ids[:prompt_length], ids[prompt_length:])], given["eos"])
    assert batch.loss_mask[0, 1:].long().tolist() == right["values"]["shifted_mask"]
    logits = torch.zeros(1, len(ids), 10, dtype=torch.float64, requires_grad=True)
    token_logprobs(logits, batch.input_ids)[batch.loss_mask].sum().backward()
    positions = logits.grad.abs().sum(-1)[0].nonzero().flatten().tolist()
    assert positions == right["values"]["logit_positions"]
    assert logits.grad[0, positions].argmax(-1).tolist() == ids[prompt_length:]


@case("logprob-packing_boundary")
def no_leak_between_samples(given, right):
    samples = [
        sample(ids[:prompt_length], ids[prompt_length:])
        for ids, prompt_length in zip(given["packed"], given["prompt_lens"], strict=True)
    ]
    batch = collate(samples, pad_id=0)
    assert batch.input_ids[batch.loss_mask].tolist() == right["values"]["trained_targets"]


@case("logprob-ratio_one_before_update")
def ratio_one_before_update(given, right):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        pad_token_id=0,
    )
    model = LlamaForCausalLM(config).eval()
    samples = [sample([1] + [3] * i, [4 + i, 5, 6 + i, 2][: 4 - i % 2], index=i) for i in range(5)]

    def scored(part, padding):
        """Log-probs [B, T], right-padded, however the rows were padded for the model."""
        batch = collate(part, pad_id=0)
        width = batch.input_ids.shape[1]
        shifts = [width - s.num_tokens if padding == "left" else 0 for s in part]
        fields = ("input_ids", "attention_mask", "position_ids", "loss_mask")
        ids, attention, positions, mask = (
            torch.stack([row.roll(n) for row, n in zip(getattr(batch, f), shifts, strict=True)])
            for f in fields
        )
        logits = model(input_ids=ids, attention_mask=attention, position_ids=positions).logits
        found = token_logprobs(logits, ids, 0.7, mask=mask)
        return torch.stack([row.roll(-n) for row, n in zip(found, shifts, strict=True)])

    with torch.no_grad():
        reference = with_stream(samples, "old_logprobs", scored(samples, "right"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=given["lr"])
    worst = 0.0
    for _ in range(given["updates"]):
        for size in given["chunk_sizes"]:
            for padding in given["padding"]:
                for part in split_micro_batches(reference, size):
                    batch = collate(part, pad_id=0)
                    ratio = (scored(part, padding) - batch.old_logprobs).exp()
                    ratio[batch.loss_mask].sum().backward()
                    off = (ratio.detach() - 1).abs()[batch.loss_mask]
                    worst = max(worst, off.max().item())
        optimizer.step()
    assert worst < right["values"]["max_abs_ratio_minus_1_fp32"]


@case("logprob-old_logps_absent_single_iteration")
def no_old_logprobs(given, right):
    logprobs = float64([given["new_logps"]]).requires_grad_()
    output = ppo(logprobs, given["old_logps"], torch.full_like(logprobs, given["A"]))
    output.loss.backward()
    assert output.loss.item() == approx(right["values"]["loss"], right)
    assert logprobs.grad[0].tolist() == approx(right["values"]["grad"], right)
    assert finalize(output.metrics)["actor/ppo_kl"] == 0.0


# --- masks


@case("mask-pad_equals_eos")
def pad_equals_eos(given, right):
    prompt = given["prompt"]
    samples = [
        sample(prompt, ids[:length])
        for ids, length in zip(given["padded"], given["true_lengths"], strict=True)
    ]
    batch = collate(samples, given["pad"])
    assert response_masks(batch, [len(prompt)] * 2) == right["values"]["response_mask"]
    assert batch.attention_mask[0, : len(prompt)].tolist() == right["values"]["prompt_attention"]
    assert batch.input_ids[:, len(prompt) :].tolist() == given["padded"]


@case("mask-eos_in_loss")
def eos_is_trained(given, right):
    found = sample([1], given["response"])
    assert [int(is_on) for is_on in found.loss_mask[1:]] == right["values"]["mask"]
    assert found.num_trained_tokens == right["values"]["length"]
    assert found.token_ids[-1] == given["eos"]


@case("mask-fill_after_eos")
def filled_after_eos(given, right):
    samples = [
        sample([1], ids[:length])
        for ids, length in zip(given["filled"], given["true_lengths"], strict=True)
    ]
    batch = collate(samples, given["pad"])
    assert response_masks(batch, [1, 1]) == right["values"]["mask"]
    assert count_tokens(batch.loss_mask)[0] == right["values"]["tokens"]


@case("mask-several_eos_ids")
def several_eos_ids(given, right):
    # The generator stops at the first of any id (its own test); here nothing after it is trained.
    ids = given["ids"]
    length = next(i for i, token in enumerate(ids, start=1) if token in given["eos_ids"])
    longer = sample([1], [7] * len(ids), index=1)
    batch = collate([sample([1], ids[:length]), longer], given["eos_ids"][0])
    assert response_masks(batch, [1, 1])[0] == right["values"]["mask"]


@case("mask-length_metrics_after_truncation_mask")
def raw_lengths(given, right):
    lengths, truncated = given["lengths"], given["truncated"]
    numbers = finalize(length_metrics(lengths, truncated=truncated))
    values = right["values"]
    for name in ("min", "max", "mean"):
        assert numbers[f"response_length/{name}"] == approx(values[name], right)
    assert numbers["response_length/clip_ratio"] == approx(values["truncated_fraction"], right)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    mask &= ~torch.tensor(truncated)[:, None]
    assert count_tokens(mask)[0] == values["trained_tokens"]


@pytest.mark.parametrize("case_id", sorted(CASES))
def test_case(case_id, bug_report):
    found = bug_report(case_id)
    CASES[case_id](found["input"], found["right"])
