"""A generator over processes of its own: a pool of Ray actors behind the contract of a run."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import wait
from dataclasses import replace
from pathlib import Path

import torch

from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.errors import ConfigError
from rlgym_llm.generate import GenerateRequest
from rlgym_llm.specs import GeneratorSpec
from rlgym_llm.types import Completion
from rlgym_llm_trainers.generators.ray_pool.actor import ActorResources, start_actor
from rlgym_llm_trainers.generators.ray_pool.binding import check_binding
from rlgym_llm_trainers.generators.ray_pool.cluster import Cluster, open_cluster
from rlgym_llm_trainers.generators.ray_pool.place import PoolLimits
from rlgym_llm_trainers.generators.ray_pool.pool import ActorPool
from rlgym_llm_trainers.generators.ray_pool.transfer import PoolTransfer, Sender
from rlgym_llm_trainers.generators.ray_pool.weights import Weights
from rlgym_llm_trainers.generators.ray_pool.worker import WorkerSpec
from rlgym_llm_trainers.generators.vllm_engine.arguments import set_environment
from rlgym_llm_trainers.generators.weight_sync.cuda import GpuTransfer, TransferClient
from rlgym_llm_trainers.generators.weight_sync.files import WeightFiles
from rlgym_llm_trainers.generators.weight_sync.guard import CanaryGuard
from rlgym_llm_trainers.generators.weight_sync.transport import (
    Transport,
    choose_transport,
    is_gpu_transport,
)
from rlgym_llm_trainers.models.chat import ChatEncoder
from rlgym_llm_trainers.models.policy import Policy

__all__ = ["RayGenerator", "check_worker"]

_VISIBLE = "CUDA_VISIBLE_DEVICES"


class RayGenerator(ChatEncoder):
    """Samples in ``rollout.num_workers`` processes; a `TrainingGenerator` and an `AsyncGenerator`.

    The processes start at once and in the background. They sample from nothing but the weights
    that `sync` gave them, so it comes first, in every run and after every resume.

    Raises UserError where Ray or the worker is missing, and where the machine has less than the
    processes need.
    """

    has_own_weights: bool = True

    def __init__(self, policy: Policy, config: TrainConfig, spec: GeneratorSpec) -> None:
        check_worker(spec)
        rollout = config.rollout
        super().__init__(policy)
        self._policy = policy
        self._canary = CanaryGuard.from_config(policy, config.rollout)
        self._worker = worker_spec(policy, config, spec)
        transport = choose_transport(rollout.weight_sync, policy.device.type, rollout.num_workers)
        with only_gpus_of(transport, policy.device):
            self._cluster = open_cluster(rollout.workers.address)
        self._files: WeightFiles | None = None
        self._transfer: PoolTransfer | None = None
        try:
            if is_gpu_transport(transport):
                self._transfer = _make_transfer(policy, transport, config, self._cluster)
            else:
                self._files = WeightFiles(rollout.weight_sync.folder)
            resources = _resources(config, self._cluster, device=self._worker.device)
            self._pool = ActorPool(
                lambda name, place: start_actor(self._worker, name, place, resources),
                num_actors=rollout.num_workers,
                limits=PoolLimits(
                    max_in_flight=max_in_flight(rollout.max_num_seqs),
                    max_retries=rollout.workers.max_retries,
                    max_restarts=rollout.workers.max_restarts,
                    generate_timeout_s=rollout.workers.generate_timeout_s,
                    start_timeout_s=rollout.workers.start_timeout_s,
                    sync_timeout_s=rollout.weight_sync.timeout_s,
                ),
            )
        except BaseException:
            if self._files is not None:
                self._files.close()
            self._cluster.close()
            raise

    @property
    def policy_version(self) -> int:
        """Version of the weights that are sampled from, 0 before the first `sync`."""
        return self._pool.policy_version or 0

    def generate(self, requests: Sequence[GenerateRequest]) -> list[Completion]:
        """One completion per request, in order. All are waited for before the first error rises."""
        futures = [self._pool.submit(request) for request in requests]
        try:
            wait(futures)
        except BaseException:  # an interrupt: what has not begun need not
            for future in futures:
                future.cancel()
            raise
        return [future.result() for future in futures]

    async def sample(self, request: GenerateRequest) -> Completion:
        """The completion of one request. Raises GeneratorError."""
        return await asyncio.wrap_future(self._pool.submit(request))

    def sync(self, version: int) -> dict[str, float]:
        """Publishes or sends the policy's weights once; every process shows that it has them.

        Raises WeightSyncError, with the old weights in service, where none could or one samples
        from others than it should; after a transfer that broke off no process is left.
        """
        begun = time.perf_counter()
        weights = Weights(version=version, transfer=self._transfer)
        if self._files is not None:
            path = self._files.publish(self._policy.model, version)
            weights = replace(weights, path=str(path))
        published_s = time.perf_counter() - begun
        if self._canary is not None:
            weights = replace(
                weights, canary=self._canary.sequences, check=self._canary.expect(version)
            )
        self._pool.load(weights)
        if self._files is not None:
            self._files.forget_before(version)
        return {
            "timing_s/update_weights": time.perf_counter() - begun,
            "timing_s/publish_weights": published_s,
            **self._pool.metrics(),
        }

    def metrics(self) -> dict[str, float]:
        """What the pool did since the last call or `sync`: see `ActorPool.metrics`."""
        return self._pool.metrics()

    def close(self) -> None:
        """Ends the processes, Ray where it was started here, and removes the weight files."""
        if self._transfer is not None:
            self._transfer.close()
        self._pool.close()
        self._cluster.close()
        if self._files is not None:
            self._files.close()

    async def aclose(self) -> None:
        """As `close`, off the event loop."""
        await asyncio.to_thread(self.close)


def check_worker(spec: GeneratorSpec) -> None:
    """Raises ConfigError for a generator that has nothing to run in a process of its own."""
    if not spec.worker:
        raise ConfigError(
            f"--rollout.name {spec.name} samples in this process only; take --rollout.num_workers 0"
        )


def max_in_flight(max_num_seqs: int) -> int:
    """Requests that a process has at a time: an eighth more than it samples at once.

    Where a sequence ends, the next stands ready and the batch stays full while the answer goes
    out and another request comes in. More would only take from what others could do meanwhile.

    >>> max_in_flight(256), max_in_flight(1)
    (288, 2)
    """
    return max_num_seqs + max(1, max_num_seqs // 8)


def worker_spec(policy: Policy, config: TrainConfig, spec: GeneratorSpec) -> WorkerSpec:
    """What the processes of a run are told."""
    num_cpus = config.rollout.workers.num_cpus
    is_folder = Path(policy.path).expanduser().exists()
    return WorkerSpec(
        entry_point=spec.worker,
        model_path=str(Path(policy.path).expanduser().absolute()) if is_folder else policy.path,
        dtype=config.model.dtype,
        trust_remote_code=config.model.trust_remote_code,
        device=policy.device.type,
        num_threads=ActorResources(num_cpus=num_cpus).num_threads,
        max_num_seqs=config.rollout.max_num_seqs,
        rollout=config.rollout.model_dump(mode="json"),
        plugins=tuple(str(Path(path).expanduser().absolute()) for path in config.plugins),
    )


@contextlib.contextmanager
def only_gpus_of(transport: Transport, device: torch.device) -> Iterator[None]:
    """A Ray that is started inside shares out what `visible_gpus` says; it knows no learner."""
    if not is_gpu_transport(transport) or device.type != "cuda":
        yield
        return
    before = os.environ.get(_VISIBLE)
    there = before.split(",") if before else [str(i) for i in range(torch.cuda.device_count())]
    own = torch.cuda.current_device() if device.index is None else device.index
    os.environ[_VISIBLE] = ",".join(visible_gpus(transport, there, own))
    try:
        yield
    finally:
        del os.environ[_VISIBLE]
        if before is not None:
            os.environ[_VISIBLE] = before


def visible_gpus(transport: Transport, there: Sequence[str], own: int) -> list[str]:
    """GPUs for the processes, where the learner has the one in place ``own``.

    NCCL has no GPU twice in a communicator; memory can be opened on its own GPU only.

    >>> visible_gpus("nccl", ["4", "5", "6"], 1), visible_gpus("ipc", ["4", "5", "6"], 1)
    (['4', '6'], ['5'])
    """
    return [gpu for place, gpu in enumerate(there) if (place == own) == (transport == "ipc")]


def _make_transfer(
    policy: Policy, transport: Transport, config: TrainConfig, cluster: Cluster
) -> PoolTransfer:
    gpus_each = config.rollout.tensor_model_parallel_size

    def open_sender(client: TransferClient, num_gpus: int) -> Sender:
        set_environment("cuda")  # vLLM's senders are in this process
        return GpuTransfer(
            policy.model,
            client,
            transport="ipc" if transport == "ipc" else "nccl",
            num_receivers=num_gpus,
            master_address=_own_address(cluster),
        )

    return PoolTransfer(transport, open_sender, gpus_each=gpus_each)


def _own_address(cluster: Cluster) -> str:
    """Where the processes reach this one."""
    if cluster.is_local:
        return "127.0.0.1"
    import ray

    address: str = ray.util.get_node_ip_address()
    return address


def _resources(config: TrainConfig, cluster: Cluster, *, device: str) -> ActorResources:
    """What each process gets; ConfigError where this machine has less than all need together."""
    rollout = config.rollout
    check_binding(rollout, device, is_own=cluster.is_local)  # one that was there already is not
    num_gpus = rollout.workers.num_gpus
    if num_gpus is None:
        num_gpus = float(rollout.tensor_model_parallel_size) if device == "cuda" else 0.0
    resources = ActorResources(
        num_cpus=rollout.workers.num_cpus,
        num_gpus=num_gpus,
        max_concurrency=4 * max_in_flight(rollout.max_num_seqs),
        cores=tuple(sorted(os.sched_getaffinity(0))) if cluster.is_local else (),
        binds=rollout.workers.bind_cores,
    )
    if cluster.is_local:
        there = cluster.resources()
        is_beside = rollout.weight_sync.transport == "nccl"
        for kind, each in (("CPU", resources.num_cpus), ("GPU", num_gpus)):
            needed, has = each * rollout.num_workers, there.get(kind, 0.0)
            if needed > has:
                raise ConfigError(
                    f"--rollout.num_workers {rollout.num_workers} with {each:g} {kind}s each "
                    f"need {needed:g}, this machine has {has:g}"
                    f"{' beside the learner' if is_beside and kind == 'GPU' else ''}; take fewer, "
                    f"or lower --rollout.workers.num_{kind.lower()}s"
                )
    return resources
