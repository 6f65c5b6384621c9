"""What of the GPU transports can be seen without a GPU: refusals, versions, what would be sent."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from rlgym_llm_trainers.generators.weight_sync.cuda import (
    GpuTransfer,
    StampingClient,
    policy_source,
)
from rlgym_llm_trainers.generators.weight_sync.source import policy_weights

from rlgym_llm.errors import ConfigError


class Client:
    def __init__(self):
        self.calls = []

    def init_weight_transfer_engine(self, init_info):
        self.calls.append(("init", init_info))

    def start_weight_update(self):
        self.calls.append("start")

    def update_weights(self, update_info):
        self.calls.append(("update", update_info))

    def finish_weight_update(self, weight_version=None):
        self.calls.append(("finish", weight_version))


def test_without_a_gpu_it_is_refused_in_one_line(llama, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for transport in ("nccl", "ipc"):
        with pytest.raises(ConfigError) as caught:
            GpuTransfer(llama(), Client(), transport=transport, num_receivers=1)
        assert str(caught.value) == (
            f"rollout.weight_sync.transport {transport}: needs GPUs with CUDA and there is none "
            "here; auto and shared_memory work everywhere"
        )


def test_an_update_is_finished_as_its_version():
    client = Client()
    stamping = StampingClient(client)
    for version in (4, 5):
        stamping.version = version
        stamping.start_weight_update()
        stamping.update_weights({"names": []})
        stamping.finish_weight_update()  # vLLM's senders name none
    one = ["start", ("update", {"names": []})]
    assert client.calls == [*one, ("finish", "4"), *one, ("finish", "5")]


def test_importing_it_needs_no_vllm():
    code = (
        "import rlgym_llm_trainers.generators.weight_sync.cuda, sys; print('vllm' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_vllm_would_send_what_it_announces(llama):
    pytest.importorskip("vllm")
    model = llama(tied=True)
    source = policy_source(model)
    came = list(source)
    announced = [(meta.name, meta.dtype, meta.shape) for meta in source.metadata()]
    assert announced == [(name, t.dtype, tuple(t.shape)) for name, t in came]
    assert [name for name, _ in came] == [name for name, _ in policy_weights(model)]
