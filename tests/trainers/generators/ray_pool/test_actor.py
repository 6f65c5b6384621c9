"""What crosses between processes: errors of a kind that every process knows, and an environment."""

from __future__ import annotations

import asyncio
import pickle
import re
from concurrent.futures import Future

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayTaskError, WorkerCrashedError
from rlgym_llm_trainers.generators.ray_pool.actor import ActorResources, RayHandle, SamplingActor
from rlgym_llm_trainers.generators.ray_pool.handle import ActorGoneError, is_final
from rlgym_llm_trainers.generators.ray_pool.worker import WorkerSpec

from rlgym_llm.errors import (
    DataError,
    GeneratorError,
    RlgymError,
    UnknownNameError,
    UserError,
    WeightSyncError,
)
from rlgym_llm.generate import GenerateRequest, SamplingParams

REQUEST = GenerateRequest(prompt_token_ids=(1,), params=SamplingParams(max_new_tokens=1), seed=0)


class Failing:
    """A worker whose every answer is an error."""

    def __init__(self, error):
        self.error = error

    def submit(self, request):
        future = Future()
        future.set_exception(self.error)
        return future

    def load_weights(self, path, version):
        raise self.error

    def transfer(self, call, info):
        raise self.error

    def score(self, sequences):
        raise self.error


def marked(error):
    error.is_final = True
    return error


class OddError(Exception):
    """One that another process could not unpickle."""

    def __init__(self, one, two):
        super().__init__(f"{one} {two}")


@pytest.mark.parametrize(
    ("error", "kind", "final"),
    [
        (GeneratorError("x"), GeneratorError, False),
        (marked(GeneratorError("x")), GeneratorError, True),
        (WeightSyncError("x"), WeightSyncError, False),
        (UnknownNameError("reward", "mth", ["math"]), UserError, True),
        (DataError("x", path="f", line=3), UserError, True),
        (ValueError("x"), ValueError, True),
        (OddError("x", "y"), GeneratorError, False),
        (MemoryError("x"), GeneratorError, False),
    ],
)
def test_errors_of_a_worker_cross_as_plain_ones_that_mean_the_same(monkeypatch, error, kind, final):
    monkeypatch.setattr(
        "rlgym_llm_trainers.generators.ray_pool.actor.open_worker", lambda _: Failing(error)
    )
    actor = SamplingActor(WorkerSpec(entry_point="a:b", model_path="m"))
    asked = (
        lambda: actor.sample(REQUEST),
        lambda: actor.load_weights("v0", 0),
        lambda: actor.transfer("start", None),
        lambda: actor.score([(1, 2)]),
    )
    for ask in asked:
        with pytest.raises(kind, match=re.escape(str(error))) as raised:
            asyncio.run(ask())
        crossed = pickle.loads(pickle.dumps(raised.value))
        assert type(crossed) is kind
        assert is_final(crossed) is final


def test_a_worker_that_does_not_open_is_told_when_it_is_asked(monkeypatch):
    def refuse(spec):
        raise UnknownNameError("model", "nowhere", [])

    monkeypatch.setattr("rlgym_llm_trainers.generators.ray_pool.actor.open_worker", refuse)
    actor = SamplingActor(WorkerSpec(entry_point="a:b", model_path="m"))
    with pytest.raises(UserError, match="unknown model 'nowhere'"):
        asyncio.run(actor.ready())
    asyncio.run(actor.close())


class Remote:
    """A Ray actor's method: answers with what it was made with."""

    def __init__(self, error):
        self.error = error

    def remote(self, *arguments):
        async def answer():
            raise self.error

        return answer()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ActorDiedError(), ActorGoneError),
        (ActorUnavailableError("no way to it", None), ActorGoneError),
        (WorkerCrashedError(), ActorGoneError),
        (RayTaskError("f", "trace", WeightSyncError("torn")), WeightSyncError),
        (RayTaskError("f", "trace", GeneratorError("x")).as_instanceof_cause(), GeneratorError),
    ],
)
def test_rays_errors_become_the_pools(error, kind):
    handle = RayHandle(type("Actor", (), {"sample": Remote(error)})(), "actor-3")
    with pytest.raises(RlgymError) as raised:
        asyncio.run(handle.sample(REQUEST))
    assert type(raised.value) is kind
    assert "\n" not in str(raised.value)
    if kind is ActorGoneError:
        assert str(raised.value).startswith("actor-3 is gone: ")


def test_processes_share_the_cores_out_and_count_their_threads():
    two = ActorResources(num_cpus=2, cores=(0, 1, 4, 5, 6))
    assert [two.env_vars(place)["VLLM_CPU_OMP_THREADS_BIND"] for place in range(3)] == [
        "0,1",
        "4,5",
        "nobind",  # one core is not two
    ]
    assert [two.own_cores(place) for place in range(3)] == [(0, 1), (4, 5), ()]
    assert two.env_vars(0)["OMP_NUM_THREADS"] == "2"
    half = ActorResources(num_cpus=0.5)
    assert half.env_vars(0) == {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
