"""A worker is made from plain data, in the process that is to sample."""

from __future__ import annotations

import pickle

import pytest
from rlgym_llm_trainers.generators.ray_pool.hf_worker import HFWorker
from rlgym_llm_trainers.generators.ray_pool.worker import WorkerSpec, open_worker
from rlgym_llm_trainers.models.starter import starter_model_path

from rlgym_llm.errors import UserError
from rlgym_llm.plugins import Plugins
from rlgym_llm.specs import Kind

HF = "rlgym_llm_trainers.generators.ray_pool.hf_worker:HFWorker.from_spec"


def test_a_spec_crosses_to_another_process():
    spec = WorkerSpec(entry_point=HF, model_path="m", rollout={"n": 4}, plugins=("/a/b.py",))
    assert pickle.loads(pickle.dumps(spec)) == spec


def test_the_hf_worker_opens_from_its_spec():
    worker = open_worker(WorkerSpec(entry_point=HF, model_path=str(starter_model_path())))
    try:
        assert isinstance(worker, HFWorker)
        assert len(worker.score([(1, 2, 3)])[0]) == 2
    finally:
        worker.close()


def test_a_worker_may_come_from_a_plugin_file_of_the_run(plugin_file):
    path = plugin_file(
        """
        from rlgym_llm import hookimpl
        from rlgym_llm.specs import GeneratorSpec

        def make(spec):
            return f"a worker for {spec.model_path}"

        @hookimpl
        def rlgym_register(kind):
            here = f"{__name__}:make"
            spec = GeneratorSpec(name="mine", entry_point=here, worker=here)
            return [spec] if kind == "generator" else []
        """
    )
    worker = Plugins.discover([path]).get(Kind.GENERATOR, "mine").worker
    spec = WorkerSpec(entry_point=worker, model_path="m", plugins=(path,))
    assert open_worker(spec) == "a worker for m"


@pytest.mark.parametrize("entry_point", ["no_such_module:make", "rlgym_llm.generate:NoSuch"])
def test_a_worker_that_cannot_be_imported_is_told_in_one_line(entry_point):
    with pytest.raises(UserError, match=f"worker {entry_point} cannot be imported") as raised:
        open_worker(WorkerSpec(entry_point=entry_point, model_path="m"))
    assert "\n" not in str(raised.value)
