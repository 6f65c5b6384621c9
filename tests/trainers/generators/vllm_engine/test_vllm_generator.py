"""vLLM in this process: what it samples, and that it samples from the learner's weights."""

from dataclasses import replace

import pytest
import torch
from rlgym_llm_trainers.generators.hf_generator import HFGenerator
from rlgym_llm_trainers.generators.vllm_engine.generator import VLLMGenerator
from rlgym_llm_trainers.generators.weight_sync.files import WeightFiles
from rlgym_llm_trainers.generators.weight_sync.guard import CanaryGuard

from rlgym_llm.errors import GeneratorError, WeightSyncError
from rlgym_llm.generate import GenerateRequest, SamplingParams
from rlgym_llm.types import FinishReason, Message

pytestmark = pytest.mark.filterwarnings("ignore")

TOLERANCE = 1e-3  # of a log-prob in float32, as weight_sync.canary_tolerance has it


@pytest.fixture
def generator(engine, starter):
    """The generator of the starter model, at version 0 with the starter's weights."""
    with WeightFiles() as files:
        made = VLLMGenerator(starter, engine, files=files, canary=CanaryGuard(starter))
        made.sync(0)
        yield made


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_are_the_learners(
    generator, starter, requests_for, largest_difference, temperature: float
) -> None:
    requests = requests_for(starter, 16, temperature=temperature)
    completions = generator.generate(requests)
    assert largest_difference(starter, requests, completions) < TOLERANCE
    for completion in completions:
        assert completion.version_spans == ((0, completion.num_tokens, 0),)
        assert completion.logprobs is not None
        ended = completion.token_ids[-1] in starter.eos_token_ids
        assert completion.finish_reason is (FinishReason.STOP if ended else FinishReason.LENGTH)


def test_greedy_text_is_that_of_transformers(generator, starter, requests_for) -> None:
    requests = requests_for(starter, 32, temperature=0.0)
    ours, theirs = generator.generate(requests), HFGenerator(starter).generate(requests)
    assert [c.text for c in ours] == [c.text for c in theirs]
    assert [c.token_ids for c in ours] == [c.token_ids for c in theirs]
    assert [c.raw_text for c in ours] == [c.raw_text for c in theirs]


def test_a_seeded_batch_repeats_and_its_rows_do_not_depend_on_it(
    generator, starter, requests_for
) -> None:
    requests = requests_for(starter, 8)
    first = generator.generate(requests)
    assert generator.generate(requests) == first
    assert [c.token_ids for c in generator.generate(requests[3:5])] == [
        c.token_ids for c in first[3:5]
    ]
    assert len({c.token_ids for c in first}) > 1


def test_budgets_stop_ids_and_seeds_of_any_size(generator, starter, requests_for) -> None:
    (request,) = requests_for(starter, 1, temperature=0.0)
    (whole,) = generator.generate([request])
    cut = replace(request, params=SamplingParams(max_new_tokens=2, temperature=0.0))
    stopped = replace(
        request,
        params=SamplingParams(
            max_new_tokens=24, temperature=0.0, stop_token_ids=(whole.token_ids[0],)
        ),
        seed=2**64 + 3,
    )
    of_cut, of_stopped = generator.generate([cut, stopped])
    assert of_cut.token_ids == whole.token_ids[:2]
    assert of_stopped.token_ids == whole.token_ids[:1]
    assert of_stopped.finish_reason is FinishReason.STOP


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_stop_strings_end_where_transformers_ends_them(
    generator, starter, requests_for, largest_difference, temperature: float
) -> None:
    requests = requests_for(starter, 16, temperature=temperature)
    whole = generator.generate(requests)
    texts = [starter.tokenizer.decode(c.token_ids) for c in whole]
    stop = (texts[0][4:9], texts[1][10:14], texts[2][-12:])  # the last with its special token
    asked = [replace(one, params=replace(one.params, stop=stop)) for one in requests]
    mixed = [*asked, *requests[:2]]
    completions = generator.generate(mixed)
    for request, done, free in zip(mixed, completions, [*whole, *whole[:2]], strict=True):
        size = next(
            size
            for size in range(1, free.num_tokens + 1)
            if size == free.num_tokens
            or any(
                one in starter.tokenizer.decode(free.token_ids[:size])
                for one in request.params.stop
            )
        )
        assert done.token_ids == free.token_ids[:size]
        assert done.version_spans == ((0, size, 0),)
        assert len(done.logprobs) == size
        if size < free.num_tokens:
            assert done.finish_reason is FinishReason.STOP
    cut = zip(completions[:16], whole, strict=True)
    assert sum(done.num_tokens < free.num_tokens for done, free in cut) > 2
    assert [c.token_ids for c in completions[-2:]] == [c.token_ids for c in whole[:2]]
    assert largest_difference(starter, mixed, completions) < TOLERANCE
    if temperature == 0:
        theirs = HFGenerator(starter).generate(mixed)
        assert [c.token_ids for c in completions] == [c.token_ids for c in theirs]
        assert [(c.text, c.finish_reason) for c in completions] == [
            (c.text, c.finish_reason) for c in theirs
        ]


def test_a_stop_string_in_characters_that_tokens_split(generator, starter, perturb) -> None:
    """All but random weights say random bytes, and now and then a character of two of them."""
    perturb(starter, seed=1)
    with torch.no_grad():
        starter.model.get_output_embeddings().weight.mul_(0.02)  # all but uniform
    generator.sync(1)
    prompt = tuple(starter.tokenizer("hi")["input_ids"])
    stop = tuple(map(chr, range(0x80, 0x800)))
    params = SamplingParams(max_new_tokens=64, stop=stop)
    requests = [GenerateRequest(prompt_token_ids=prompt, params=params, seed=i) for i in range(32)]
    text_of, num_met = starter.tokenizer.decode, 0
    for done in generator.generate(requests):
        assert not set(stop) & set(text_of(done.token_ids[:-1]))
        is_met = bool(set(stop) & set(text_of(done.token_ids)))
        ended = done.token_ids[-1] in starter.eos_token_ids
        assert done.finish_reason is (FinishReason.STOP if is_met or ended else FinishReason.LENGTH)
        assert is_met or ended or done.num_tokens == 64
        num_met += is_met
    assert num_met > 3


def test_a_later_turn_goes_on_by_ids(generator, starter, requests_for, largest_difference) -> None:
    (request,) = requests_for(starter, 1)
    (first,) = generator.generate([request])
    reply = generator.encode_reply([Message(role="user", content="And now?")])
    second = replace(
        request, prompt_token_ids=(*request.prompt_token_ids, *first.token_ids, *reply)
    )
    completions = generator.generate([second])
    assert largest_difference(starter, [second], completions) < TOLERANCE


@pytest.mark.parametrize(
    ("ids", "what"), [((), "empty"), ((10**7,), "10000000"), ((5,) * 300, "256")]
)
def test_a_request_that_cannot_be_sampled_harms_no_other(
    generator, starter, requests_for, ids: tuple[int, ...], what: str
) -> None:
    good = requests_for(starter, 2)
    bad = replace(good[0], prompt_token_ids=ids)
    with pytest.raises(GeneratorError, match=what):
        generator.generate([good[0], bad, good[1]])
    assert len(generator.generate(good)) == 2


@pytest.mark.data
def test_siblings_of_one_batch_compute_their_prompt_once(
    generator, engine, starter, requests_for, monkeypatch
) -> None:
    [request] = requests_for(starter, 1)
    request = replace(request, prompt_token_ids=(request.prompt_token_ids * 40)[:97])
    siblings = [replace(request, seed=seed) for seed in range(4)]
    ended = []
    step = engine._core.step

    def watched():
        outputs = step()
        ended.extend(output for output in outputs if output.finished)
        return outputs

    monkeypatch.setattr(engine._core, "step", watched)
    generator.generate(siblings)
    assert sorted(output.num_cached_tokens for output in ended) == [0, 96, 96, 96]  # whole blocks


def test_the_prefix_cache_is_forgotten_with_the_old_weights(
    generator, starter, requests_for, perturb, largest_difference, bug_report
) -> None:
    assert bug_report("sync-prefix_cache_after_update")["right"]["values"]["order"]
    requests = requests_for(starter, 8)
    old = generator.generate(requests)
    perturb(starter, seed=1)
    metrics = generator.sync(1)
    new = generator.generate(requests)
    assert largest_difference(starter, requests, new) < TOLERANCE
    assert largest_difference(starter, requests, old) > 10 * TOLERANCE
    assert {span[2] for c in new for span in c.version_spans} == {1}
    assert generator.policy_version == 1
    assert metrics["weight_sync/canary_max_diff"] < TOLERANCE
    assert metrics["timing_s/update_weights"] > 0


def test_every_sync_is_exact_on_64_prompts(
    generator, starter, requests_for, perturb, largest_difference
) -> None:
    requests = requests_for(starter, 64)
    for version in (1, 2, 3):
        perturb(starter, seed=version)
        generator.sync(version)
        completions = generator.generate(requests)
        assert largest_difference(starter, requests, completions) < TOLERANCE


def test_a_sync_that_fails_leaves_the_old_version_serving(
    generator, engine, starter, requests_for, perturb, monkeypatch
) -> None:
    requests = requests_for(starter, 4, temperature=0.0)
    before = generator.generate(requests)
    perturb(starter, seed=4)
    load = engine.update_weights
    calls = []

    def half(weights):
        calls.append(1)
        weights = list(weights)
        load(weights[: len(weights) // 2] if len(calls) == 1 else weights)

    monkeypatch.setattr(engine, "update_weights", half)
    with pytest.raises(WeightSyncError, match="samples on from version 0"):
        generator.sync(1)
    assert generator.policy_version == 0
    assert generator.generate(requests) == before


def test_more_prompts_than_are_computed_at_once(generator, starter, requests_for) -> None:
    requests = requests_for(starter, 200, budget=4)  # seeded: some wait for their first token
    assert sum(len(request.prompt_token_ids) for request in requests) > 4096
    completions = generator.generate(requests)
    alone = generator.generate(requests[-1:])
    assert len(completions) == 200
    assert completions[-1].token_ids == alone[0].token_ids


def test_an_empty_batch_is_no_work(generator) -> None:
    assert generator.generate([]) == []
