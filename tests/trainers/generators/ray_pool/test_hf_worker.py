"""The worker over transformers: batches of what waits, weights between two of them."""

from __future__ import annotations

import copy
import dataclasses
import threading

import pytest
import torch
from rlgym_llm_trainers.generators.hf_generator import HFGenerator
from rlgym_llm_trainers.generators.ray_pool.hf_worker import HFWorker
from rlgym_llm_trainers.generators.weight_sync.canary import canary_sequences, learner_scores
from rlgym_llm_trainers.generators.weight_sync.files import WeightFiles

from rlgym_llm.errors import GeneratorError, WeightSyncError
from rlgym_llm.generate import GenerateRequest, SamplingParams


@pytest.fixture
def files(tmp_path):
    with WeightFiles(tmp_path) as made:
        yield made


@pytest.fixture
def worker(policy):
    made = HFWorker(copy_of(policy), max_num_seqs=4, policy_version=7)
    yield made
    made.close()


def copy_of(policy, *, noise=0.0):
    model = copy.deepcopy(policy.model)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += noise * torch.randn(parameter.shape, generator=generator)
    return dataclasses.replace(policy, model=model)


def requests(policy, number=6, **params):
    params = SamplingParams(**{"max_new_tokens": 12, "temperature": 0.0, **params})
    return [
        GenerateRequest(
            prompt_token_ids=tuple(policy.tokenizer(f"{i} + 3 = ?")["input_ids"]),
            params=params,
            seed=i,
        )
        for i in range(number)
    ]


def results(futures):
    return [future.result(timeout=60) for future in futures]


def test_it_samples_what_the_generator_in_this_process_samples(policy, worker):
    [whole] = HFGenerator(policy).generate(requests(policy, 1))
    stop = (policy.tokenizer.decode(whole.token_ids[3:6]),)
    for params in ({}, {"stop": stop}, {"temperature": 1.0}, {"temperature": 0.7, "top_k": 5}):
        asked = requests(policy, **params)
        expected = HFGenerator(policy, policy_version=7).generate(asked)
        found = results([worker.submit(request) for request in asked])
        assert [one.token_ids for one in found] == [one.token_ids for one in expected]
        assert [one.version_spans for one in found] == [one.version_spans for one in expected]


def test_settings_that_cannot_share_a_batch_do_not(policy, worker, monkeypatch):
    generate = worker._generator.generate

    def check(batch):
        assert len({(one.params.top_k, one.params.top_p) for one in batch}) == 1
        return generate(batch)

    monkeypatch.setattr(worker._generator, "generate", check)
    asked = [
        request
        for pair in zip(
            requests(policy, temperature=1.0, top_k=3),
            requests(policy, temperature=1.0, top_p=0.5),
            strict=True,
        )
        for request in pair
    ]
    monkeypatch.setattr(worker, "_sample", never_alone(worker._sample))
    found = results([worker.submit(request) for request in asked])
    for request, one in zip(asked, found, strict=True):
        [alone] = HFGenerator(policy).generate([request])
        assert one.token_ids == alone.token_ids


def never_alone(sample):
    """Batches as the worker makes them; it does not come back to their requests one by one."""
    seen = []

    def watch(batch):
        again = any(turn is old for turn in batch for old in seen)
        seen.extend(batch)
        if again:
            for turn in batch:
                turn.future.set_exception(AssertionError("sampled twice"))
            return
        sample(batch)

    return watch


def test_what_waits_is_one_batch_of_at_most_max_num_seqs(policy, worker, monkeypatch):
    sizes, begun, go_on = [], threading.Event(), threading.Event()
    generate = worker._generator.generate

    def watch(batch):
        sizes.append(len(batch))
        begun.set()
        assert go_on.wait(timeout=60)
        return generate(batch)

    monkeypatch.setattr(worker._generator, "generate", watch)
    asked = requests(policy, 10)
    futures = [worker.submit(asked[0])]
    assert begun.wait(timeout=60)
    futures += [worker.submit(request) for request in asked[1:]]
    go_on.set()
    results(futures)
    assert sizes == [1, 4, 4, 1]


@pytest.mark.parametrize("ids", [(), (3, 10**6), (-1,)])
def test_ids_that_the_model_does_not_have_are_refused_for_good(worker, ids):
    request = GenerateRequest(prompt_token_ids=ids, params=SamplingParams(max_new_tokens=4), seed=0)
    with pytest.raises(ValueError, match="the prompt"):
        worker.submit(request).result(timeout=60)


def test_one_that_cannot_be_sampled_does_not_take_its_batch_with_it(policy, worker, monkeypatch):
    asked = requests(policy, 4)
    generate = worker._generator.generate

    def fail_for_one(batch):
        if asked[2] in batch:
            raise GeneratorError("a log-prob that is not finite")
        return generate(batch)

    monkeypatch.setattr(worker._generator, "generate", fail_for_one)
    futures = [worker.submit(request) for request in asked]
    with pytest.raises(GeneratorError, match="not finite"):
        futures[2].result(timeout=60)
    expected = HFGenerator(policy).generate(asked)
    for place in (0, 1, 3):
        assert futures[place].result(timeout=60).token_ids == expected[place].token_ids


def test_new_weights_come_between_two_batches(policy, worker, files):
    learner = copy_of(policy, noise=0.3)
    path = files.publish(learner.model, 8)
    asked = requests(policy)
    before = [worker.submit(request) for request in asked]
    worker.load_weights(str(path), 8)
    after = [worker.submit(request) for request in asked]
    old, new = HFGenerator(policy).generate(asked), HFGenerator(learner).generate(asked)
    assert [one.token_ids for one in results(before)] == [one.token_ids for one in old]
    assert [one.token_ids for one in results(after)] == [one.token_ids for one in new]
    assert {one.version_spans[0][2] for one in results(before)} == {7}
    assert {one.version_spans[0][2] for one in results(after)} == {8}
    assert [one.token_ids for one in old] != [one.token_ids for one in new]


def test_its_scores_are_the_learners_after_a_sync_and_not_before(policy, worker, files):
    learner = copy_of(policy, noise=0.3)
    sequences = canary_sequences(policy.tokenizer)
    wanted = learner_scores(learner, sequences)
    assert worker.score(sequences) != wanted
    worker.load_weights(str(files.publish(learner.model, 8)), 8)
    assert worker.score(sequences) == wanted  # of a tied head too


def changed(weights, what):
    name = "model.layers.0.mlp.up_proj.weight"
    if what == "another shape":
        weights[name] = weights[name][:-1].clone()
    elif what == "one too few":
        del weights[name]
    else:
        weights["model.layers.9.mlp.up_proj.weight"] = weights[name]
    return weights


@pytest.mark.parametrize("what", ["another shape", "one too few", "one too many"])
def test_weights_of_another_model_are_refused_and_the_old_ones_stay(policy, worker, files, what):
    from rlgym_llm_trainers.generators.weight_sync.source import policy_weights

    learner = copy_of(policy, noise=0.3)
    weights = changed(dict(policy_weights(learner.model)), what)
    path = files.publish(weights.items(), 8)
    sequences = canary_sequences(policy.tokenizer)
    before = worker.score(sequences)
    with pytest.raises(WeightSyncError, match=r"model\.layers\.\d\.mlp\.up_proj\.weight"):
        worker.load_weights(str(path), 8)
    assert worker.score(sequences) == before
    (found,) = results([worker.submit(requests(policy)[0])])
    assert found.version_spans[0][2] == 7


def test_a_file_that_is_gone_or_of_another_version_is_refused(policy, worker, files):
    with pytest.raises(WeightSyncError, match="no such weight file"):
        worker.load_weights("nowhere.safetensors", 8)
    with pytest.raises(WeightSyncError, match="holds version 8 and not 9"):
        worker.load_weights(str(files.publish(policy.model, 8)), 9)


def test_a_closed_worker_samples_nothing_and_hangs_nobody(policy, worker):
    worker.close()
    worker.close()
    with pytest.raises(GeneratorError, match="closed"):
        worker.submit(requests(policy)[0]).result(timeout=60)
    with pytest.raises(GeneratorError, match="closed"):
        worker.score([(1, 2)])
