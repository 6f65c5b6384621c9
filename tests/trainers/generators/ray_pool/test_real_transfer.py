"""A transfer to two processes of a real Ray, the numbers going by a file, and a kill in the middle.

One test, so that the processes are started once.
"""

from __future__ import annotations

import os
import signal
import textwrap

import pytest
import torch
from rlgym_llm_trainers.generators.hf_generator import HFGenerator
from rlgym_llm_trainers.generators.ray_pool import generator as module
from rlgym_llm_trainers.generators.ray_pool.cluster import open_cluster
from rlgym_llm_trainers.generators.ray_pool.generator import RayGenerator
from rlgym_llm_trainers.generators.weight_sync.files import WeightFiles
from rlgym_llm_trainers.models.policy import load_policy
from rlgym_llm_trainers.models.starter import starter_model_path

from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.errors import GeneratorError, WeightSyncError
from rlgym_llm.generate import GenerateRequest, SamplingParams
from rlgym_llm.specs import GeneratorSpec

PLUGIN = """
    def make(spec):
        from rlgym_llm_trainers.generators.ray_pool.hf_worker import HFWorker

        worker = HFWorker.from_spec(spec)

        def transfer(call, info):
            if call == "update":
                worker.path = info["path"]
            elif call == "finish":
                worker.load_weights(worker.path, int(info))

        worker.transfer = transfer
        return worker
"""


class FileTransfer:
    """A `GpuTransfer` that hands over a file, and kills a process in the middle of version 2."""

    pid_to_kill = 0

    def __init__(self, model, client, **how):
        self.model, self.client, self.files = model, client, WeightFiles()
        client.init_weight_transfer_engine({"rank_offset": 1})

    def send(self, version):
        path = self.files.publish(self.model, version)
        self.client.start_weight_update()
        if version == 2:
            os.kill(self.pid_to_kill, signal.SIGKILL)
        self.client.update_weights({"path": str(path)})
        self.client.finish_weight_update(str(version))

    def close(self):
        self.files.close()


def test_weights_reach_all_processes_and_a_killed_one_ends_it(monkeypatch, tmp_path):
    (tmp_path / "sender.py").write_text(textwrap.dedent(PLUGIN))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # of the processes
    policy = load_policy(starter_model_path(), device=torch.device("cpu"))
    workers = {"start_timeout_s": 120.0}
    rollout = {"num_workers": 2, "max_num_seqs": 4, "workers": workers}
    config = TrainConfig.model_validate(
        {"rollout": {**rollout, "weight_sync": {"transport": "nccl"}}}
    )
    handles, start = [], module.start_actor
    monkeypatch.setattr(
        module, "start_actor", lambda *given: handles.append(start(*given)) or handles[-1]
    )
    monkeypatch.setattr(module, "open_cluster", lambda address: open_cluster(address, num_cpus=2))
    monkeypatch.setattr(module, "GpuTransfer", FileTransfer)
    spec = GeneratorSpec(name="mine", entry_point="sender:make", worker="sender:make")
    generator = RayGenerator(policy, config, spec)
    try:
        requests = [
            GenerateRequest(
                prompt_token_ids=generator.encode_prompt(f"What is {i} + {2 * i}?"),
                params=SamplingParams(max_new_tokens=24, temperature=0.0),
                seed=i,
            )
            for i in range(8)
        ]
        for version in (0, 1):
            with torch.no_grad():
                policy.model.lm_head.weight.mul_(1 + 0.5 * version)
            generator.sync(version)  # the canary looks at both processes
            found = generator.generate(requests)
            expected = HFGenerator(policy).generate(requests)
            assert [one.token_ids for one in found] == [one.token_ids for one in expected]
            assert {one.version_spans[0][2] for one in found} == {version}
        FileTransfer.pid_to_kill = handles[1].pid
        with pytest.raises(WeightSyncError, match=rf"broke off .*\(pid {handles[1].pid}\) is gone"):
            generator.sync(2)
        assert generator.policy_version == 1
        with pytest.raises(GeneratorError, match="no generator process is left"):
            generator.generate(requests[:1])
        assert len(handles) == 2
    finally:
        generator.close()
