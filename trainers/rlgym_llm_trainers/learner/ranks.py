"""The processes that learn together: which one this is, and how they tell each other plain data."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

from rlgym_llm.errors import ConfigError

__all__ = [
    "ALONE",
    "Ranks",
    "claim_gpu",
    "end_process",
    "is_lost_rank",
    "launched_as",
    "open_ranks",
]

T = TypeVar("T")

_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_LONGEST = timedelta(days=7)
"""How long a rank waits to be told what to do; a lost one is seen at once, by its connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """One rank of several, or the only one (`ALONE`), which has nobody to talk to."""

    rank: int = 0
    world_size: int = 1
    mesh: Any = None
    """What parameters are sharded over, a torch ``DeviceMesh``; None where they are whole."""
    group: Any = None
    """For plain data, whatever device the model is on."""

    @property
    def is_first(self) -> bool:
        """Whether this rank runs the training; the others only learn."""
        return self.rank == 0

    def broadcast(self, data: T | None = None) -> T | None:
        """What rank 0 gives, on every rank; waits for rank 0."""
        if self.group is None:
            return data
        import torch.distributed as dist

        found = [data]
        dist.broadcast_object_list(found, src=0, group=self.group)
        return found[0]

    def gather(self, data: T) -> list[T]:
        """What every rank gives, in their order, on every rank; waits for all.

        Ranks 0 and 1 giving "a" and "b" both get ``["a", "b"]``.
        """
        if self.group is None:
            return [data]
        import torch.distributed as dist

        found: list[Any] = [None] * self.world_size
        dist.all_gather_object(found, data, group=self.group)
        return found

    @property
    def is_closed(self) -> bool:
        """Whether this rank has left the others."""
        import torch.distributed as dist

        return self.group is not None and not dist.is_initialized()

    def close(self) -> None:
        """Leaves the others, who see that the next time they wait for this rank."""
        if self.group is not None and not self.is_closed:
            import torch.distributed as dist

            dist.destroy_process_group()


ALONE = Ranks()
"""The only rank, without any process group."""


def launched_as(environ: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """(rank, number of ranks) that torchrun gave this process, (0, 1) where it did not start it.

    >>> launched_as({}), launched_as({name: "1" for name in _TORCHRUN} | {"WORLD_SIZE": "2"})
    ((0, 1), (1, 2))
    """
    if any(name not in environ for name in _TORCHRUN):
        return 0, 1
    return int(environ["RANK"]), int(environ["WORLD_SIZE"])


def claim_gpu() -> None:
    """Makes plain ``cuda`` mean this rank's GPU, before anything is put on another's."""
    import torch

    is_rank = all(name in os.environ for name in _TORCHRUN)
    if is_rank and int(os.environ["LOCAL_RANK"]) < torch.cuda.device_count():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))


def open_ranks(device: str) -> Ranks:
    """Joins the ranks that torchrun started, with ``device`` (cpu, cuda) for their tensors.

    Without torchrun, and for one rank on a CPU, `ALONE`. Takes torchrun's variables out of the
    environment: what this process starts is no rank. Raises ConfigError where a machine has fewer
    GPUs than ranks.
    """
    rank, world_size = launched_as()
    if any(name not in os.environ for name in _TORCHRUN):
        return ALONE
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    local_rank, on_machine = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    if device == "cuda":
        if on_machine > torch.cuda.device_count():
            raise ConfigError(
                f"torchrun --nproc-per-node {on_machine}: each rank needs a GPU, this machine has "
                f"{torch.cuda.device_count()}; start fewer, or take --trainer.device cpu"
            )
        torch.cuda.set_device(local_rank)
    if world_size == 1 and device == "cpu":
        _forget_torchrun()
        return ALONE
    dist.init_process_group("cpu:gloo,cuda:nccl" if device == "cuda" else "gloo")
    ranks = Ranks(
        rank=rank,
        world_size=world_size,
        mesh=init_device_mesh(device, (world_size,)),
        group=dist.new_group(backend="gloo", timeout=_LONGEST),
    )
    _forget_torchrun()
    return ranks


def end_process(code: int) -> NoReturn:
    """Ends a process that was one of several ranks; whatever it has to close is closed before.

    At once, for about one in five that ends in the usual way is aborted in its last moment, when
    the interpreter takes down threads of gloo that still stand; torchrun then reports a failure.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def is_lost_rank(error: BaseException) -> bool:
    """Whether the error says no more than that another rank has ended."""
    said = str(error).lower()
    return isinstance(error, RuntimeError) and any(sign in said for sign in _SIGNS)


_SIGNS = (
    *("closed by peer", "reset by peer", "broken pipe", "socket closed", "remote peer"),  # gloo
    "remote process exit",  # NCCL
)


def _forget_torchrun() -> None:
    for name in [name for name in os.environ if name.startswith("TORCHELASTIC_")]:
        del os.environ[name]
    for name in (*_TORCHRUN, "GROUP_RANK", "ROLE_RANK", "ROLE_WORLD_SIZE", "GROUP_WORLD_SIZE"):
        os.environ.pop(name, None)
