"""The generator of a run over a pool, its processes being workers in this one."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import os
from pathlib import Path

import pytest
import torch
from rlgym_llm_trainers.generators.hf_generator import HFGenerator
from rlgym_llm_trainers.generators.ray_pool import generator as module
from rlgym_llm_trainers.generators.ray_pool.generator import (
    RayGenerator,
    max_in_flight,
    only_gpus_of,
    worker_spec,
)
from rlgym_llm_trainers.generators.ray_pool.hf_worker import HFWorker
from rlgym_llm_trainers.generators.weight_sync.files import WeightFiles

from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.errors import ConfigError, GeneratorError, WeightSyncError
from rlgym_llm.generate import AsyncGenerator, GenerateRequest, Generator, SamplingParams
from rlgym_llm.specs import GeneratorSpec
from rlgym_llm.types import Message

SPEC = GeneratorSpec(
    name="hf",
    entry_point="rlgym_llm_trainers.generators.hf_generator:HFGenerator.from_config",
    worker="rlgym_llm_trainers.generators.ray_pool.hf_worker:HFWorker.from_spec",
)


class Local:
    """A handle over a worker of this process."""

    def __init__(self, worker):
        self.worker = worker

    async def ready(self):
        return {"pid": 0}

    async def sample(self, request):
        return await asyncio.wrap_future(self.worker.submit(request))

    async def load_weights(self, path, version):
        return await asyncio.to_thread(self.worker.load_weights, path, version)

    async def transfer(self, call, info):
        if call == "update":
            self.path = info["path"]
        elif call == "finish":
            await self.load_weights(self.path, int(info))

    async def score(self, sequences):
        return await asyncio.to_thread(self.worker.score, sequences)

    def kill(self):
        self.worker.close()


class NoCluster:
    """As large as it is told."""

    is_local = True

    def __init__(self, **resources):
        self.has = {"CPU": 8.0, **resources}
        self.is_closed = False

    def resources(self):
        return self.has

    def close(self):
        self.is_closed = True


@pytest.fixture
def opened(policy, monkeypatch, tmp_path):
    """Makes generators over two workers that begin with weights of their own."""
    made, handles, cluster = [], [], NoCluster()

    def start(spec, name, place, resources):
        blank = dataclasses.replace(policy, model=noisy(policy.model, seed=2))
        handles.append(Local(HFWorker(blank, max_num_seqs=spec.max_num_seqs)))
        return handles[-1]

    monkeypatch.setattr(module, "start_actor", start)
    monkeypatch.setattr(module, "open_cluster", lambda address: cluster)

    def make(spec=SPEC, **rollout):
        weight_sync = {"folder": str(tmp_path), **rollout.pop("weight_sync", {})}
        rollout = {"num_workers": 2, "max_num_seqs": 4, **rollout, "weight_sync": weight_sync}
        made.append(RayGenerator(policy, TrainConfig.model_validate({"rollout": rollout}), spec))
        made[-1].handles, made[-1].cluster = handles, cluster
        return made[-1]

    yield make
    for generator in made:
        generator.close()
        generator.close()


def noisy(model, *, seed, scale=0.3):
    model = copy.deepcopy(model)
    with torch.no_grad():
        random = torch.Generator().manual_seed(seed)
        for parameter in model.parameters():
            parameter += scale * torch.randn(parameter.shape, generator=random)
    return model


def learn(policy, *, seed=1):
    """An update: the very model that is trained has other weights afterwards."""
    policy.model.load_state_dict(noisy(policy.model, seed=seed).state_dict())


def requests(generator, number=12):
    prompts = [(Message(role="user", content=f"{i} + 3 = ?"),) for i in range(number)]
    return [
        GenerateRequest(
            prompt_token_ids=generator.encode_prompt(prompt),
            params=SamplingParams(max_new_tokens=12, temperature=0.0),
            seed=i,
        )
        for i, prompt in enumerate(prompts)
    ]


def ids(completions):
    return [one.token_ids for one in completions]


def versions(completions):
    return {span[2] for one in completions for span in one.version_spans}


def test_it_is_a_generator_of_both_kinds_with_weights_of_its_own(opened, policy):
    generator = opened()
    assert isinstance(generator, Generator)
    assert isinstance(generator, AsyncGenerator)
    assert generator.has_own_weights
    local = HFGenerator(policy)
    messages = (Message(role="user", content="hi"),)
    assert generator.encode_prompt(messages) == local.encode_prompt(messages)
    assert generator.encode_reply(messages) == local.encode_reply(messages)


def test_it_samples_from_the_learners_weights_as_they_were_at_the_last_sync(opened, policy):
    generator, local = opened(), HFGenerator(policy)
    generator.sync(0)
    asked = requests(generator)
    first = generator.generate(asked)
    assert ids(first) == ids(local.generate(asked))
    assert versions(first) == {0}
    learn(policy)
    assert ids(generator.generate(asked)) == ids(first)  # a copy of its own
    metrics = generator.sync(1)
    assert generator.policy_version == 1
    second = generator.generate(asked)
    assert ids(second) == ids(local.generate(asked)) != ids(first)
    assert versions(second) == {1}
    assert metrics["timing_s/update_weights"] >= metrics["timing_s/publish_weights"] > 0
    assert metrics["rollout/actor_restarts"] == 0
    assert 0 <= metrics["fully_async/rollouter/idle_ratio"] <= 1


def test_single_samples_wait_side_by_side_on_any_event_loop(opened):
    generator = opened()
    generator.sync(0)
    asked = requests(generator)

    async def sample_all():
        return await asyncio.gather(*map(generator.sample, asked))

    expected = generator.generate(asked)
    assert ids(asyncio.run(sample_all())) == ids(expected)
    assert ids(asyncio.run(sample_all())) == ids(expected)  # a new loop, as an EpisodeRunner has


def test_only_the_newest_file_is_kept_and_a_replacement_samples_from_it(opened, policy, tmp_path):
    generator = opened(num_workers=1)
    for version in range(3):
        learn(policy, seed=version)
        generator.sync(version)
    assert [path.stem for path in tmp_path.rglob("*.safetensors")] == ["v2"]
    asked = requests(generator)
    generator.handles[0].kill()  # every answer of it is an error from here on
    found = generator.generate(asked)
    assert ids(found) == ids(HFGenerator(policy).generate(asked))
    assert {one.sampled_by for one in found} == {"actor-1"}
    assert versions(found) == {2}
    generator.close()
    assert not list(tmp_path.rglob("*.safetensors"))
    assert generator.cluster.is_closed


def test_a_generator_with_a_head_of_its_own_is_found_out_by_the_canary(opened, policy):
    generator = opened()
    generator.sync(0)
    for handle in generator.handles:
        worker = handle.worker
        head = worker._policy.model.lm_head
        head.weight = torch.nn.Parameter(head.weight.detach().clone())  # untied
        worker._load = keep_head(worker, worker._load)
    learn(policy)
    with pytest.raises(WeightSyncError, match="does not sample from the learner's weights"):
        generator.sync(1)
    assert generator.policy_version == 0


def keep_head(worker, load):
    def load_all_but_head(path, version):
        model = worker._policy.model
        stale = model.lm_head.weight
        model.tie_weights()
        load(path, version)
        model.lm_head.weight = stale

    return load_all_but_head


def test_without_the_canary_nobody_looks(opened, policy, monkeypatch):
    generator = opened(weight_sync={"canary": False})
    monkeypatch.setattr(HFWorker, "score", lambda *_: pytest.fail("scored"))
    generator.sync(0)
    assert generator.policy_version == 0


def test_a_run_that_is_resumed_syncs_before_it_samples_and_counts_on(opened, bug_report):
    case = bug_report("async-version_counter_after_resume")
    saved, right = case["input"]["saved_version"], case["right"]["values"]
    generator = opened()
    with pytest.raises(GeneratorError, match="sync comes first"):
        generator.generate(requests(generator, 1))
    assert right["synced_before_rollout"]
    generator.sync(saved)
    assert versions(generator.generate(requests(generator, 2))) == {saved}
    generator.sync(generator.policy_version + 1)
    assert generator.policy_version == right["next_version"] != case["right"]["known_wrong"]


def test_all_requests_end_before_the_first_failure_is_raised(opened, policy):
    generator = opened()
    generator.sync(0)
    asked = requests(generator, 4)
    bad = dataclasses.replace(asked[1], prompt_token_ids=(10**6,))
    with pytest.raises(GeneratorError, match=r"cannot be sampled: .*ids outside"):
        generator.generate([asked[0], bad, *asked[2:]])
    assert generator.metrics()["rollout/retried_turns"] == 0


def test_a_generator_without_a_worker_is_refused(opened):
    with pytest.raises(ConfigError, match=r"--rollout.name mine .*--rollout.num_workers 0"):
        opened(GeneratorSpec(name="mine", entry_point="a:b"))


def test_more_than_the_machine_has_is_refused_at_once(opened):
    with pytest.raises(ConfigError, match="3 with 4 CPUs each need 12, this machine has 8"):
        opened(num_workers=3, workers={"num_cpus": 4.0})
    with pytest.raises(ConfigError, match="2 with 1 GPUs each need 2, this machine has 0"):
        opened(workers={"num_gpus": 1.0})


@pytest.mark.parametrize("transport", ["nccl", "ipc"])
def test_a_gpu_transport_sends_the_learners_weights_without_a_file(
    opened, policy, monkeypatch, tmp_path, transport
):
    """vLLM's sender is one that hands the numbers over by a file of its own."""
    made = []

    class FakeTransfer:
        def __init__(self, model, client, **how):
            made.append(how)
            self.model, self.client, self.is_closed = model, client, False
            self.files = WeightFiles(tmp_path / "sender")
            client.init_weight_transfer_engine({})

        def send(self, version):
            self.client.start_weight_update()
            path = self.files.publish(self.model, version)
            self.client.update_weights({"path": str(path)})
            self.client.finish_weight_update(str(version))

        def close(self):
            self.files.close()

    (tmp_path / "sender").mkdir()
    monkeypatch.setattr(module, "GpuTransfer", FakeTransfer)
    generator = opened(weight_sync={"transport": transport, "folder": str(tmp_path / "none")})
    asked = requests(generator)
    for version in (0, 1):
        learn(policy, seed=version)
        generator.sync(version)
        found = generator.generate(asked)
        assert ids(found) == ids(HFGenerator(policy).generate(asked))
        assert versions(found) == {version}
    assert made == [{"transport": transport, "num_receivers": 2, "master_address": "127.0.0.1"}]
    assert not (tmp_path / "none").exists()
    generator.close()
    assert not list((tmp_path / "sender").rglob("*.safetensors"))  # it was left


def test_ray_shares_out_the_gpus_that_the_transport_can_reach(monkeypatch):
    learner = torch.device("cuda", 1)

    def seen(transport, device=learner):
        with only_gpus_of(transport, device):
            return os.environ.get("CUDA_VISIBLE_DEVICES")

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
    assert seen("nccl") == "4,6"
    assert seen("ipc") == "5"
    assert seen("shared_memory") == seen("nccl", torch.device("cpu")) == "4,5,6"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "4,5,6"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert seen("nccl") == "0"
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_each_process_has_a_little_more_than_it_samples_at_once():
    assert [max_in_flight(n) for n in (1, 8, 64, 256)] == [2, 9, 72, 288]


def test_the_processes_are_told_what_the_run_was_told(policy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("model").mkdir()
    policy = dataclasses.replace(policy, path="model")
    config = TrainConfig.model_validate(
        {
            "rollout": {"num_workers": 2, "max_num_seqs": 3, "workers": {"num_cpus": 2.5}},
            "model": {"dtype": "bfloat16"},
            "plugins": ["mine.py"],
        }
    )
    spec = worker_spec(policy, config, SPEC)
    assert (spec.model_path, spec.plugins) == (
        str(tmp_path / "model"),
        (str(tmp_path / "mine.py"),),
    )
    assert (spec.dtype, spec.max_num_seqs, spec.num_threads) == ("bfloat16", 3, 2)
    assert spec.device == "cpu"
    assert spec.rollout["workers"]["num_cpus"] == 2.5
