"""vLLM in a thread of its own: requests join at any time, new weights come in between tokens."""

from dataclasses import replace

import pytest
import torch
from rlgym_llm_trainers.generators.ray_pool.worker import WorkerSpec
from rlgym_llm_trainers.generators.vllm_engine.worker import VLLMWorker, make_vllm_worker
from rlgym_llm_trainers.generators.weight_sync.files import WeightFiles
from rlgym_llm_trainers.models.starter import starter_model_path

from rlgym_llm.errors import GeneratorError, UserError, WeightSyncError
from rlgym_llm.generate import SamplingParams

pytestmark = pytest.mark.filterwarnings("ignore")

TOLERANCE = 1e-3
WAIT_S = 120


@pytest.fixture(scope="module")
def worker():
    spec = WorkerSpec(
        entry_point="rlgym_llm_trainers.generators.vllm_engine.worker:make_vllm_worker",
        model_path=str(starter_model_path()),
        max_num_seqs=8,
        rollout={"max_model_len": 256},
    )
    made = make_vllm_worker(spec)
    yield made
    made.close()


@pytest.fixture
def files():
    with WeightFiles() as made:
        yield made


def test_requests_join_at_any_time_and_each_gets_its_own(
    worker, files, starter, requests_for, largest_difference
) -> None:
    worker.load_weights(str(files.publish(starter.model, 0)), 0)
    requests = requests_for(starter, 24)  # more than are sampled at once
    first = [worker.submit(request) for request in requests[:10]]
    first[0].result(WAIT_S)
    later = [worker.submit(request) for request in requests[10:]]
    completions = [future.result(WAIT_S) for future in [*first, *later]]
    assert largest_difference(starter, requests, completions) < TOLERANCE


def test_a_request_that_cannot_be_sampled_is_its_own_error(
    worker, files, starter, requests_for
) -> None:
    worker.load_weights(str(files.publish(starter.model, 0)), 0)
    good, other = requests_for(starter, 2)
    bad = worker.submit(replace(other, prompt_token_ids=(10**7,)))
    assert worker.submit(good).result(WAIT_S).num_tokens > 0
    with pytest.raises(ValueError, match="10000000"):
        bad.result(WAIT_S)


def test_what_is_in_flight_goes_on_under_new_weights_and_says_so(
    worker, files, starter, requests_for, perturb
) -> None:
    worker.load_weights(str(files.publish(starter.model, 4)), 4)
    (request,) = requests_for(starter, 1)
    long = replace(
        request,
        params=SamplingParams(max_new_tokens=200, temperature=1.0),
    )
    perturb(starter, seed=5)
    path = str(files.publish(starter.model, 5))
    futures = [worker.submit(replace(long, seed=seed)) for seed in range(7)]
    short = replace(request, params=SamplingParams(max_new_tokens=2, temperature=1.0))
    worker.submit(short).result(WAIT_S)  # the others are under way as well now
    worker.load_weights(path, 5)
    completions = [future.result(WAIT_S) for future in futures]
    after = worker.submit(long).result(WAIT_S)
    assert {span[2] for span in after.version_spans} == {5}
    versions = {span[2] for completion in completions for span in completion.version_spans}
    assert versions <= {4, 5}
    for completion in completions:
        ends = [end for _, end, _ in completion.version_spans]
        assert ends[-1] == completion.num_tokens
        assert [span[2] for span in completion.version_spans] == sorted(
            span[2] for span in completion.version_spans
        )
    # The tokens of each span have the log-probs of the policy that the span names.
    newest = [c for c in completions if len(c.version_spans) == 2]
    assert newest, "no completion was under way while the weights came in"
    for completion in newest:
        (_, cut, _), _ = completion.version_spans
        ids = torch.tensor([[*long.prompt_token_ids, *completion.token_ids]])
        with torch.no_grad():
            logits = starter.model(input_ids=ids, use_cache=False).logits.double()
        start = len(long.prompt_token_ids)
        found = logits[0, start - 1 : -1].log_softmax(-1)
        ours = found.gather(1, ids[0, start:, None])[:, 0]
        apart = (ours - torch.tensor(completion.logprobs)).abs()
        assert float(apart[cut:].max()) < TOLERANCE


def test_weights_that_are_not_whole_leave_the_old_ones_serving(
    worker, files, starter, requests_for
) -> None:
    worker.load_weights(str(files.publish(starter.model, 6)), 6)
    weights = list(starter.model.state_dict().items())
    few = [(name, tensor) for name, tensor in weights if "layers.0." not in name]
    with WeightFiles() as others, pytest.raises(WeightSyncError, match="from version 6"):
        worker.load_weights(str(others.publish(iter(few), 7)), 7)
    (request,) = requests_for(starter, 1)
    assert {span[2] for span in worker.submit(request).result(WAIT_S).version_spans} == {6}


def test_a_failed_engine_fails_what_it_had_and_what_comes_later(starter, requests_for) -> None:
    """A worker over an engine that breaks at its third step."""

    class Breaking:
        policy_version = 0
        has_work = False
        steps = 0

        def add(self, key, request):
            self.has_work = True

        def step(self):
            self.steps += 1
            if self.steps == 3:
                raise GeneratorError("vLLM failed: out of memory")
            return []

        def close(self):
            pass

    worker = VLLMWorker(Breaking)
    (request,) = requests_for(starter, 1)
    futures = [worker.submit(request) for _ in range(3)]
    for future in futures:
        with pytest.raises(GeneratorError, match="out of memory"):
            future.result(WAIT_S)
    with pytest.raises(GeneratorError, match="out of memory"):
        worker.submit(request).result(WAIT_S)
    worker.close()
    worker.close()


def test_what_opening_raises_is_raised() -> None:
    def broken():
        raise UserError("--model x: vLLM does not load it")

    with pytest.raises(UserError, match="does not load"):
        VLLMWorker(broken)
