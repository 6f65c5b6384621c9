"""Two processes of a real Ray on this machine: what they sample, and what a kill does to it."""

from __future__ import annotations

import asyncio
import copy
import os
import signal
import textwrap
import threading
import time
from collections import Counter
from concurrent.futures import as_completed

import pytest
import torch
from rlgym_llm_trainers.generators.hf_generator import HFGenerator
from rlgym_llm_trainers.generators.ray_pool import generator as module
from rlgym_llm_trainers.generators.ray_pool.cluster import open_cluster
from rlgym_llm_trainers.generators.ray_pool.generator import RayGenerator
from rlgym_llm_trainers.generators.ray_pool.handle import ActorGoneError
from rlgym_llm_trainers.models.policy import load_policy
from rlgym_llm_trainers.models.starter import starter_model_path

from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.cores import num_cores
from rlgym_llm.generate import GenerateRequest, SamplingParams
from rlgym_llm.plugins import Plugins
from rlgym_llm.specs import Kind

GONE = r"^actor-0 \(pid {}\) is gone: its process was killed or crashed; .{{1,60}}$"
HAS_CORES = num_cores() >= 2
PLUGIN = """
    from rlgym_llm import hookimpl
    from rlgym_llm.specs import GeneratorSpec

    def make(spec):
        from rlgym_llm_trainers.generators.ray_pool.hf_worker import HFWorker

        return HFWorker.from_spec(spec)

    @hookimpl
    def rlgym_register(kind):
        here = f"{__name__}:make"
        spec = GeneratorSpec(name="mine", entry_point=here, worker=here)
        return [spec] if kind == "generator" else []
"""


@pytest.fixture(scope="module")
def learner():
    return load_policy(starter_model_path(), device=torch.device("cpu"))


@pytest.fixture(scope="module")
def handles():
    """Every handle that was made, in order."""
    return []


@pytest.fixture(scope="module")
def generator(learner, handles, tmp_path_factory):
    """Two processes whose worker comes from a plugin file, which they must read themselves."""
    plugin = tmp_path_factory.mktemp("plugins") / "mine.py"
    plugin.write_text(textwrap.dedent(PLUGIN))
    config = TrainConfig.model_validate(
        {
            "rollout": {
                "num_workers": 2,
                "max_num_seqs": 4,
                "workers": {"start_timeout_s": 120.0, "bind_cores": HAS_CORES},
            },
            "plugins": [str(plugin)],
        }
    )
    spec = Plugins.discover(config.plugins).get(Kind.GENERATOR, "mine")
    patch = pytest.MonkeyPatch()
    start = module.start_actor
    patch.setattr(
        module, "start_actor", lambda *given: handles.append(start(*given)) or handles[-1]
    )
    on_term = signal.getsignal(signal.SIGTERM)
    patch.setattr(module, "open_cluster", lambda address: open_cluster(address, num_cpus=2))
    made = RayGenerator(learner, config, spec)
    try:
        assert signal.getsignal(signal.SIGTERM) is on_term
        made.sync(0)
        yield made
    finally:
        made.close()
        patch.undo()


def requests(generator, number, *, max_new_tokens=24, **params):
    params = SamplingParams(max_new_tokens=max_new_tokens, **{"temperature": 0.0, **params})
    return [
        GenerateRequest(
            prompt_token_ids=generator.encode_prompt(f"What is {i} + {2 * i}?"),
            params=params,
            seed=i,
        )
        for i in range(number)
    ]


def ids(completions):
    return [one.token_ids for one in completions]


def versions(completions):
    return {span[2] for one in completions for span in one.version_spans}


def test_two_processes_sample_every_request_once_and_what_one_process_samples(generator, learner):
    asked = requests(generator, 24)
    found = generator.generate(asked)
    assert ids(found) == ids(HFGenerator(learner).generate(asked))
    assert len(set(ids(found))) > 12  # they tell the prompts apart
    counts = Counter(one.sampled_by for one in found)
    assert set(counts) == {"actor-0", "actor-1"}
    assert versions(found) == {0}
    assert generator.metrics()["rollout/retried_turns"] == 0


@pytest.mark.skipif(not HAS_CORES, reason="needs a core for each of two processes")
def test_each_process_keeps_to_a_core_of_its_own(generator, handles):
    first, second = (
        {frozenset(os.sched_getaffinity(thread)) for thread in threads_of(handle.pid)}
        for handle in handles
    )
    here = sorted(os.sched_getaffinity(0))
    assert (first, second) == ({frozenset(here[:1])}, {frozenset(here[1:2])})


def test_what_is_sampled_follows_the_learners_weights_with_every_sync(generator, learner):
    asked = requests(generator, 8)
    before = generator.generate(asked)
    kept = copy.deepcopy(learner.model.state_dict())
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in learner.model.parameters():
            parameter += 0.1 * parameter.std() * torch.randn(parameter.shape, generator=random)
    assert ids(generator.generate(asked)) == ids(before)
    generator.sync(1)
    after = generator.generate(asked)
    assert ids(after) == ids(HFGenerator(learner).generate(asked)) != ids(before)
    assert (versions(before), versions(after), generator.policy_version) == ({0}, {1}, 1)
    learner.model.load_state_dict(kept)
    generator.sync(2)
    back = generator.generate(asked)
    assert ids(back) == ids(before)
    assert versions(back) == {2}


def test_a_killed_process_loses_nothing_and_its_replacement_has_the_current_weights(
    generator, learner, handles, capfd
):
    with torch.no_grad():  # other weights than those on the disk
        learner.model.get_input_embeddings().weight *= 1.05
    generator.sync(3)
    asked = requests(generator, 48, temperature=1.0)
    expected = HFGenerator(learner).generate(asked)
    futures = [generator._pool.submit(request) for request in asked]
    next(as_completed(futures, timeout=60))
    os.kill(handles[0].pid, signal.SIGKILL)  # with as many in flight as it takes
    with pytest.raises(ActorGoneError, match=GONE.format(handles[0].pid)):
        asyncio.run(handles[0].ready())
    found = [future.result(timeout=120) for future in futures]
    assert ids(found) == ids(expected)
    metrics = generator.metrics()
    assert metrics["rollout/actors_lost"] == metrics["rollout/actor_restarts"] == 1
    assert metrics["rollout/retried_turns"] >= 1

    until(lambda: len(handles) == 3 and handles[2].pid is not None)
    with_it = []
    until(lambda: "actor-2" in {one.sampled_by for one in sample_into(with_it, generator, asked)})
    assert ids(with_it) == ids(expected)
    assert versions(with_it) == {3}
    assert handles[2].pid not in {handles[0].pid, handles[1].pid}
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")  # Ray tells the terminal nothing of all this


def test_what_was_started_is_ended_with_the_generator(generator, handles):
    import ray

    assert ray.is_initialized()
    generator.close()
    assert not ray.is_initialized()
    assert not any(thread.name == "rlgym-pool" for thread in threading.enumerate())
    pids = [handle.pid for handle in handles]
    until(lambda: not any(map(is_alive, pids)))


def sample_into(found, generator, asked):
    found[:] = generator.generate(asked)
    return found


def until(is_so):
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def threads_of(pid):
    return [int(name) for name in os.listdir(f"/proc/{pid}/task")]


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
