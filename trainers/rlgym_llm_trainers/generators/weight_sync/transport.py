"""Which way new weights go to the generators: decided here and nowhere else."""

from __future__ import annotations

from typing import Literal

from rlgym_llm.config_rollout import RolloutConfig, WeightSyncConfig
from rlgym_llm.errors import ConfigError

__all__ = ["Transport", "check_transport", "choose_transport", "is_gpu_transport"]

Transport = Literal["memory", "shared_memory", "nccl", "ipc"]


def choose_transport(config: WeightSyncConfig, device: str, num_workers: int) -> Transport:
    """The transport of a run whose learner is on ``device`` (its type, ``cpu`` or ``cuda``).

    >>> auto = WeightSyncConfig()
    >>> [choose_transport(auto, *run) for run in (("cuda", 0), ("cuda", 2), ("cpu", 0))]
    ['memory', 'shared_memory', 'shared_memory']
    """
    if config.transport != "auto":
        return config.transport
    # On a CPU a file costs little, and the one before can be put back where an update fails.
    return "memory" if device == "cuda" and num_workers == 0 else "shared_memory"


def is_gpu_transport(transport: Transport) -> bool:
    """Whether it is one of vLLM's own, which reach all processes at once or none."""
    return transport in ("nccl", "ipc")


def check_transport(config: RolloutConfig, device: str, generator: str) -> None:
    """Raises ConfigError, in one line, where the transport cannot serve the run.

    Args:
        config: the run's.
        device: type of the learner's device, ``cpu`` or ``cuda``.
        generator: registered name of what samples, ``auto`` resolved.
    """
    transport = choose_transport(config.weight_sync, device, config.num_workers)
    num_gpus, gpus_each = config.workers.num_gpus, config.tensor_model_parallel_size
    if not is_gpu_transport(transport):
        if device == "cuda" and generator == "vllm" and gpus_each > 1:
            raise ConfigError(
                f"--rollout.tensor_model_parallel_size {gpus_each}: new weights reach an engine on "
                "several GPUs by --rollout.weight_sync.transport nccl and --rollout.num_workers 1 "
                "or more only"
            )
        return
    reason = None
    if device != "cuda":
        reason = (
            f"needs the run on GPUs with CUDA, and it is on {device}; auto and shared_memory work "
            "everywhere"
        )
    elif config.num_workers == 0:
        reason = (
            "within one process there is nothing to transport; leave it out, or take "
            "--rollout.num_workers 1"
        )
    elif generator != "vllm":
        reason = f"only vllm takes it, not {generator}; auto and shared_memory work everywhere"
    elif transport == "ipc" and gpus_each > 1:
        reason = (
            "generators share the learner's one GPU, so --rollout.tensor_model_parallel_size must "
            f"be 1, not {gpus_each}"
        )
    elif transport == "nccl" and num_gpus is not None and num_gpus != gpus_each:
        reason = (
            f"every generator needs whole GPUs of its own; leave --rollout.workers.num_gpus "
            f"{num_gpus:g} out, or take ipc, which shares the learner's"
        )
    if reason is not None:
        raise ConfigError(f"--rollout.weight_sync.transport {transport}: {reason}")
