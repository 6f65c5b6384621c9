"""The transport of a run as a table, and the runs that it cannot serve."""

import pytest
from rlgym_llm_trainers.generators.weight_sync.transport import check_transport, choose_transport

from rlgym_llm.config_rollout import RolloutConfig, WeightSyncConfig
from rlgym_llm.errors import ConfigError


@pytest.mark.parametrize(
    ("asked", "device", "num_workers", "chosen"),
    [
        ("auto", "cpu", 0, "shared_memory"),  # so that an update that fails can be undone
        ("auto", "cpu", 2, "shared_memory"),
        ("auto", "cuda", 0, "memory"),
        ("auto", "cuda", 2, "shared_memory"),
        ("shared_memory", "cpu", 0, "shared_memory"),
        ("shared_memory", "cuda", 0, "shared_memory"),
        ("shared_memory", "cuda", 2, "shared_memory"),
        ("nccl", "cuda", 2, "nccl"),
        ("ipc", "cuda", 1, "ipc"),
    ],
)
def test_what_is_chosen(asked, device, num_workers, chosen):
    assert choose_transport(WeightSyncConfig(transport=asked), device, num_workers) == chosen


def rollout(transport, *, num_workers=1, gpus_each=1, num_gpus=None):
    return RolloutConfig.model_validate(
        {
            "num_workers": num_workers,
            "tensor_model_parallel_size": gpus_each,
            "workers": {"num_gpus": num_gpus},
            "weight_sync": {"transport": transport},
        }
    )


@pytest.mark.parametrize(
    ("config", "device", "generator"),
    [
        (rollout("auto"), "cpu", "hf"),
        (rollout("shared_memory", num_workers=0), "cuda", "hf"),
        (rollout("auto", gpus_each=2), "cpu", "vllm"),  # refused by the engine, as on any CPU
        (rollout("nccl", num_workers=3, gpus_each=2), "cuda", "vllm"),
        (rollout("nccl", num_gpus=1.0), "cuda", "vllm"),
        (rollout("ipc", num_workers=2, num_gpus=0.5), "cuda", "vllm"),
    ],
)
def test_what_can_serve_passes(config, device, generator):
    check_transport(config, device, generator)


@pytest.mark.parametrize(
    ("config", "device", "generator", "reason"),
    [
        (rollout("nccl"), "cpu", "vllm", "nccl: needs the run on GPUs with CUDA, .* on cpu"),
        (rollout("ipc", num_workers=0), "cpu", "hf", "ipc: needs the run on GPUs with CUDA"),
        (rollout("ipc", num_workers=0), "cuda", "vllm", "ipc: within one process"),
        (rollout("nccl"), "cuda", "hf", "only vllm takes it, not hf"),
        (rollout("ipc", gpus_each=2), "cuda", "vllm", "tensor_model_parallel_size must be 1"),
        (rollout("nccl", num_gpus=0.5), "cuda", "vllm", r"workers.num_gpus 0.5 out, or take ipc"),
    ],
)
def test_what_cannot_is_refused_in_one_line(config, device, generator, reason):
    with pytest.raises(ConfigError, match=reason) as caught:
        check_transport(config, device, generator)
    assert str(caught.value).startswith("--rollout.weight_sync.transport ")
    assert "\n" not in str(caught.value)


def test_an_engine_on_several_gpus_needs_nccl():
    with pytest.raises(ConfigError, match=r"tensor_model_parallel_size 2: .*transport nccl"):
        check_transport(rollout("auto", gpus_each=2), "cuda", "vllm")
