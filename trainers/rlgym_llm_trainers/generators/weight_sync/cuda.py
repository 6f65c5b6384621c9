"""vLLM's own transports between GPUs, driven from the learner's side: NCCL and CUDA IPC.

Written for vLLM 0.32 by its sources; without a GPU neither transport runs (tests marked ``gpu``).
The canary after every sync is what shows that a weight arrived.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Iterator
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from rlgym_llm.errors import ConfigError
from rlgym_llm_trainers.generators.weight_sync.source import policy_weights, weight_metas

__all__ = ["GpuTransfer", "TransferClient", "check_cuda"]

GpuTransport = Literal["nccl", "ipc"]


class TransferClient(Protocol):
    """vLLM's four calls on the generators' side, as ``RayVLLMWeightSyncClient(actors)`` has them.

    They take and give plain data; each reaches every engine and returns when all have answered.
    """

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Has the engines join the transport."""
        ...

    def start_weight_update(self) -> None:
        """Opens an update."""
        ...

    def update_weights(self, update_info: Any) -> None:
        """Has the engines take in what ``update_info`` describes, as it is sent."""
        ...

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """Closes the update; samples carry ``weight_version`` from here on."""
        ...


class GpuTransfer:
    """Sends a model's weights from this GPU to vLLM engines, without a way round by the CPU.

    Opened and used on every rank of a model sharded by FSDP2; rank 0 sends. The engines must have
    been made with ``WeightTransferConfig(backend=transport)``. Opening blocks until all of them
    have joined.

    Args:
        model: what `policy_weights` takes, on a GPU.
        client: how the engines are reached; used on rank 0.
        transport: nccl between GPUs of one or several machines, ipc where generator and learner
            share each GPU.
        num_receivers: GPUs of all engines together, for nccl.
        rank: this rank of the learner.
        master_address: where the engines reach rank 0, for nccl.
        master_port: for nccl; None takes a free one.

    Raises ConfigError where there is no GPU.
    """

    def __init__(
        self,
        model: nn.Module,
        client: TransferClient,
        *,
        transport: GpuTransport,
        num_receivers: int,
        rank: int = 0,
        master_address: str = "127.0.0.1",
        master_port: int | None = None,
    ) -> None:
        check_cuda(transport)
        from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory

        info: Any
        if transport == "nccl":
            from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

            info = NCCLTrainerInitInfo(
                rank=rank,
                master_address=master_address,
                master_port=_free_port() if master_port is None else master_port,
                world_size=1 + num_receivers,
            )
        else:
            from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo

            # Packed, so that of a sharded model only one buffer is whole at a time. vLLM refuses
            # a weight that is larger than its buffer, as embeddings may be.
            largest = max(math.prod(m.shape) * m.dtype.itemsize for m in weight_metas(model))
            info = IPCTrainerInitInfo(rank=rank, packed=True)
            info.packed_buffer_size_bytes = max(info.packed_buffer_size_bytes, largest)
        self._client = StampingClient(client)
        self._device = next(model.parameters()).device
        with torch.cuda.device(self._device):  # a thread begins with the first one
            self._engine: Any = WeightTransferTrainerFactory.trainer_init(
                init_info=info, client=self._client, source=policy_source(model)
            )

    def send(self, version: int) -> None:
        """Starts an update, sends every weight, and finishes it as ``version``; on every rank.

        The engines must be paused before and their prefix caches reset after, as `run_update`
        does it. After an error the transfer cannot be used again.
        """
        self._client.version = version
        with torch.cuda.device(self._device):
            # vLLM packs on streams of its own, which do not wait for the learner's last update.
            torch.cuda.synchronize()
            self._engine.send_weights()

    def close(self) -> None:
        """Leaves the engines' communicator."""
        self._engine.shutdown()


def check_cuda(transport: str) -> None:
    """Raises ConfigError, in one line, where a GPU transport is asked for without a GPU."""
    if not torch.cuda.is_available():
        raise ConfigError(
            f"rollout.weight_sync.transport {transport}: needs GPUs with CUDA and there is none "
            "here; auto and shared_memory work everywhere"
        )


class StampingClient:
    """A `TransferClient` whose finished updates carry ``version``; vLLM's sender gives none."""

    def __init__(self, client: TransferClient) -> None:
        self.version = 0
        self.init_weight_transfer_engine = client.init_weight_transfer_engine
        self.start_weight_update = client.start_weight_update
        self.update_weights = client.update_weights
        self._finish = client.finish_weight_update

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """Finishes the update as `version`, whatever is given."""
        self._finish(str(self.version))


def policy_source(model: nn.Module) -> Any:
    """`policy_weights` as the ``WeightSource`` that vLLM's senders read, tied tensors once."""
    from vllm.distributed.weight_transfer.base import ParamMeta, WeightSource

    class PolicySource(WeightSource):  # type: ignore[misc]  # vLLM's class is not seen here
        def metadata(self) -> list[Any]:
            return [ParamMeta(meta.name, meta.dtype, meta.shape) for meta in weight_metas(model)]

        def __iter__(self) -> Iterator[tuple[str, Tensor]]:
            return policy_weights(model)

    return PolicySource()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
    return port
