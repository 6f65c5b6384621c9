"""The memory of one weight file, mapped for as long as the run may write into it again."""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from rlgym_llm_trainers.generators.weight_sync.layout import Layout, Place
from rlgym_llm_trainers.generators.weight_sync.source import WeightMeta

__all__ = ["Memory", "bytes_of", "tensor_at"]


class Memory:
    """A file that stays mapped, so that it is written again at the speed of memory.

    Made locked against readers; `rename` lets them in. Raises OSError where there is no room.
    """

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self.size = size
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            self.lock()
            # Pages that are not there would kill the process when they are written.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._file, 0, size)
            else:
                os.ftruncate(self._file, size)
            self._bytes = bytes_of(mmap.mmap(self._file, size))
        except BaseException:
            os.close(self._file)
            raise

    def lock(self) -> bool:
        """Locks readers out; False where one still maps the file."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def write(self, layout: Layout, pairs: Iterator[tuple[str, Tensor]]) -> None:
        """Copies the weights to their places, then the header before them.

        Raises ValueError where ``pairs`` are not the weights of the layout, in its order.
        """
        for place in layout.places:
            name, tensor = next(pairs, ("nothing", torch.empty(0)))
            if WeightMeta(name, tensor.dtype, tuple(tensor.shape)) != place.meta:
                raise ValueError(f"{place.meta.name} was announced, {name} came or another shape")
            tensor_at(self._bytes, place).copy_(tensor.detach())
        if (extra := next(pairs, None)) is not None:
            raise ValueError(f"{extra[0]} came and was not announced")
        header = torch.frombuffer(bytearray(layout.header), dtype=torch.uint8)
        self._bytes[: len(header)].copy_(header)

    def rename(self, name: str) -> None:
        """Gives the file a name beside its own and unlocks it."""
        target = self.path.with_name(name)
        fcntl.flock(self._file, fcntl.LOCK_UN)
        os.replace(self.path, target)
        self.path = target

    def discard(self) -> None:
        """Removes the file; its memory is given back once nobody maps it."""
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Gives up the map and leaves the file, if it still has a name."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            self._bytes = torch.empty(0, dtype=torch.uint8)


def bytes_of(data: mmap.mmap) -> Tensor:
    """All of a map as bytes; the tensor keeps the map."""
    return torch.frombuffer(data, dtype=torch.uint8)


def tensor_at(data: Tensor, place: Place) -> Tensor:
    """The tensor that lies at ``place``, no copy."""
    return data[place.start : place.end].view(place.meta.dtype).view(place.meta.shape)
