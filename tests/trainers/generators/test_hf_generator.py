"""Sampling from a real model: its own ids, its own log-probs, whatever the batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from rlgym_llm_trainers.generators.hf_generator import HFGenerator
from transformers import GPT2Config, GPT2LMHeadModel

from rlgym_llm.errors import GeneratorError, UserError
from rlgym_llm.generate import GenerateRequest, Generator, SamplingParams
from rlgym_llm.types import FinishReason, Message

PROMPTS = ["2 + 3 = ?", "hello", "a rather longer prompt than the others", "2 + 3 = ?"]


@pytest.fixture
def generator(policy):
    return HFGenerator(policy, policy_version=7)


def requests(generator, *, seed=0, **params):
    params = SamplingParams(**{"max_new_tokens": 24, **params})
    return [
        GenerateRequest(
            prompt_token_ids=generator.encode_prompt((Message(role="user", content=text),)),
            params=params,
            seed=seed + i,
        )
        for i, text in enumerate(PROMPTS)
    ]


def full_logprobs(policy, request, completion, temperature):
    ids = torch.tensor([[*request.prompt_token_ids, *completion.token_ids]])
    with torch.no_grad():
        logits = policy.model(ids).logits[0].double() / temperature
    start = len(request.prompt_token_ids)
    rows = torch.log_softmax(logits, -1)[start - 1 : -1]
    return rows.gather(-1, ids[0, start:, None]).squeeze(-1).numpy()


def test_it_is_a_generator(generator):
    assert isinstance(generator, Generator)
    assert generator.policy_version == 7


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.7])
def test_logprobs_are_those_of_one_forward_pass_at_the_sampling_temperature(
    policy, generator, temperature
):
    asked = requests(generator, temperature=temperature)
    for request, completion in zip(asked, generator.generate(asked), strict=True):
        expected = full_logprobs(policy, request, completion, temperature)
        assert np.abs(np.array(completion.logprobs) - expected).max() < 1e-4
        assert completion.version_spans == ((0, completion.num_tokens, 7),)


def test_a_request_gives_the_same_tokens_alone_in_any_batch_and_twice(policy, generator):
    asked = requests(generator)
    together = [done.token_ids for done in generator.generate(asked)]
    assert [done.token_ids for done in generator.generate(asked)] == together
    assert [generator.generate([one])[0].token_ids for one in asked] == together
    small = HFGenerator(policy, max_num_seqs=3)
    assert [done.token_ids for done in small.generate(asked[::-1])] == together[::-1]


def test_seeds_differ_and_equal_prompts_do_not_share_their_noise(generator):
    first, *_, last = generator.generate(requests(generator))
    assert first.token_ids != last.token_ids


def test_greedy_follows_the_argmax(policy, generator):
    request = requests(generator, temperature=0.0)[0]
    done = generator.generate([request])[0]
    ids = list(request.prompt_token_ids)
    for token in done.token_ids:
        with torch.no_grad():
            assert int(policy.model(torch.tensor([ids])).logits[0, -1].argmax()) == token
        ids.append(token)


def test_an_end_token_stops_a_row_stays_in_its_ids_and_leaves_the_text(policy):
    # Any of several ids ends the turn: make a third of the alphabet end it.
    ends = frozenset(range(10, 45))
    generator = HFGenerator(replace(policy, eos_token_ids=ends))
    asked = requests(generator, max_new_tokens=64)
    for done in generator.generate(asked):
        assert done.finish_reason is FinishReason.STOP
        assert done.token_ids[-1] in ends
        assert not ends & set(done.token_ids[:-1])
        assert done.num_tokens == len(done.logprobs) < 64


def test_budgets_differ_within_a_batch(policy):
    generator = HFGenerator(replace(policy, eos_token_ids=frozenset()))
    asked = [
        replace(request, params=SamplingParams(max_new_tokens=budget))
        for request, budget in zip(requests(generator), (1, 5, 9, 30), strict=True)
    ]
    done = generator.generate(asked)
    assert [one.num_tokens for one in done] == [1, 5, 9, 30]
    assert {one.finish_reason for one in done} == {FinishReason.LENGTH}
    assert done[1].token_ids == generator.generate([asked[1]])[0].token_ids


def test_a_row_that_is_done_takes_no_position_that_the_model_has_not(policy):
    config = GPT2Config(
        vocab_size=len(policy.tokenizer),
        n_embd=32,
        n_layer=1,
        n_head=2,
        n_positions=16,
        initializer_range=0.5,
        bos_token_id=None,
        eos_token_id=policy.tokenizer.eos_token_id,
    )
    learned = replace(policy, model=GPT2LMHeadModel(config).eval(), eos_token_ids=frozenset())
    # A long prompt with a short response and nine the other way round, so that the row of the
    # first, done after 4 tokens and a tenth of the batch, is decoded until all are done.
    shapes = [(12, 4)] + [(2, 14)] * 9
    asked = [
        GenerateRequest(
            prompt_token_ids=tuple(range(10 + i, 10 + i + length)),
            params=SamplingParams(max_new_tokens=budget),
            seed=i,
        )
        for i, (length, budget) in enumerate(shapes)
    ]
    generator = HFGenerator(learned)
    together = [done.token_ids for done in generator.generate(asked)]
    assert [len(ids) for ids in together] == [budget for _, budget in shapes]
    assert [generator.generate([one])[0].token_ids for one in asked] == together


def test_stop_token_ids_of_a_request(generator):
    plain = requests(generator)[0]
    free = generator.generate([plain])[0]
    stop_at = free.token_ids[2]
    asked = replace(plain, params=replace(plain.params, stop_token_ids=(stop_at,)))
    done = generator.generate([asked])[0]
    assert done.token_ids == free.token_ids[: free.token_ids.index(stop_at) + 1]
    assert done.finish_reason is FinishReason.STOP


def test_a_stop_string_ends_a_row_with_the_token_that_completes_it(policy, generator):
    asked = requests(generator, max_new_tokens=40)
    free = generator.generate(asked)
    texts = [policy.tokenizer.decode(done.token_ids) for done in free]
    stop = (texts[0][8:11], texts[2][30:33])  # blanks stand between this tokenizer's characters
    own = replace(asked[0].params, stop=stop)
    mixed = [replace(request, params=own) for request in asked[:3]] + asked[3:]
    for done, whole, request in zip(generator.generate(mixed), free, mixed, strict=True):
        expected = next(
            size
            for size in range(1, whole.num_tokens + 1)
            if size == whole.num_tokens
            or any(
                one in policy.tokenizer.decode(whole.token_ids[:size])
                for one in request.params.stop
            )
        )
        assert done.token_ids == whole.token_ids[:expected]
        assert done.logprobs == pytest.approx(whole.logprobs[:expected], abs=1e-4)
        assert done.version_spans == ((0, expected, 7),)
        if expected < whole.num_tokens:
            assert done.finish_reason is FinishReason.STOP
            assert any(one in (done.raw_text or done.text) for one in stop)
    lengths = [done.num_tokens for done in generator.generate(mixed)]
    assert lengths[0] <= 6 < free[0].num_tokens
    assert lengths[3] == free[3].num_tokens


def test_special_tokens_without_a_role_stand_in_the_raw_text_too(policy, generator):
    [turn] = policy.tokenizer.convert_tokens_to_ids(["<t>"])
    assert turn not in policy.tokenizer.all_special_ids
    [(text, raw)] = generator._detokenize([[20, turn, 21]])
    assert "<t>" not in text
    assert raw == policy.tokenizer.decode([20, turn, 21])


def test_a_stop_string_at_the_last_token_of_the_budget_is_a_stop(policy, generator):
    plain = requests(generator)[0]
    text = policy.tokenizer.decode(generator.generate([plain])[0].token_ids[:3])
    params = SamplingParams(max_new_tokens=3, stop=(text,))
    [done] = generator.generate([replace(plain, params=params)])
    assert (done.num_tokens, done.finish_reason) == (3, FinishReason.STOP)


@pytest.mark.parametrize("stop", ["</answer>", ("a", "")])
def test_stop_strings_that_are_none(stop):
    with pytest.raises(ValueError, match="stop must be strings with something in them"):
        SamplingParams(max_new_tokens=3, stop=stop)


def test_top_k_one_is_greedy_with_log_prob_zero(generator):
    greedy = generator.generate(requests(generator, temperature=0.0))
    cut = generator.generate(requests(generator, top_k=1))
    assert [one.token_ids for one in cut] == [one.token_ids for one in greedy]
    assert max(abs(value) for one in cut for value in one.logprobs) == 0


def test_a_model_of_nan_is_an_error_not_text(policy, generator):
    with torch.no_grad():
        policy.model.model.norm.weight.fill_(float("nan"))
    with pytest.raises(GeneratorError, match="not finite"):
        generator.generate(requests(generator))


def test_string_prompts_are_tokenized_as_they_stand(policy, generator):
    ids = generator.encode_prompt("2 + 3")
    assert policy.tokenizer.decode(ids).replace(" ", "") == "2+3"


def test_a_reply_adds_only_what_follows_the_sampled_end(policy, generator):
    opening = [Message(role="user", content="hi")]
    reply = [Message(role="user", content="more")]
    tokenizer = policy.tokenizer
    whole = tokenizer.apply_chat_template(
        [m.to_dict() for m in [*opening, Message(role="assistant", content="yo"), *reply]],
        add_generation_prompt=True,
    )["input_ids"]
    sampled = [*tokenizer("yo", add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    built = [*generator.encode_prompt(tuple(opening)), *sampled, *generator.encode_reply(reply)]
    assert built == list(whole)


def test_no_chat_template_is_one_clear_line(policy, generator):
    policy.tokenizer.chat_template = None
    with pytest.raises(UserError, match=r"--model tiny has no chat template"):
        generator.encode_prompt((Message(role="user", content="hi"),))


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{{ raise_exception('no system role') }}", "no system role"),
        ("{% if %}", "its chat template fails on a conversation of user"),
        ("", "has no chat template"),
        ("{# nothing #}", "its chat template renders nothing"),
    ],
)
def test_a_broken_chat_template_is_one_clear_line(policy, generator, template, says):
    policy.tokenizer.chat_template = template
    with pytest.raises(UserError, match=says) as caught:
        generator.encode_prompt((Message(role="user", content="hi"),))
    assert str(caught.value).startswith("--model tiny")
    assert "\n" not in str(caught.value)
