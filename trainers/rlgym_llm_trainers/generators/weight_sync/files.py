"""Weights in files of shared memory: written whole or not at all, read where they lie.

A file is locked by whoever maps it, for as long as one of its tensors lives, so that its memory is
written again only where nobody reads it any more: copying into pages that are mapped already is
many times faster than into fresh ones.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import mmap
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from torch import Tensor, nn

from rlgym_llm.errors import UserError, WeightSyncError
from rlgym_llm_trainers.generators.weight_sync.layout import make_layout, read_layout
from rlgym_llm_trainers.generators.weight_sync.memory import Memory, bytes_of, tensor_at
from rlgym_llm_trainers.generators.weight_sync.own_folder import OwnFolder, remove_leftovers
from rlgym_llm_trainers.generators.weight_sync.source import (
    WeightMeta,
    policy_weights,
    tied_weights,
    weight_metas,
)

__all__ = ["WeightFile", "WeightFiles", "open_weights", "read_weights"]

_SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class WeightFile:
    """A published file, opened; its tensors lie in it, and it stays as it is while one lives."""

    path: Path
    version: int
    """The number of learner updates that its weights have seen."""
    tied: Mapping[str, str]
    """Name -> the name that the same tensor stands under; see `tied_weights`."""
    weights: tuple[tuple[str, Tensor], ...]
    """Name and tensor, in the order of the modules."""


class WeightFiles:
    """The weight files of one run: ``v<version>.safetensors`` in a folder of its own.

    Args:
        folder: where the run's folder is made; None takes the machine's shared memory, or the
            folder for temporary files where that has no room for two versions.

    Removed by `close` and at the end of the process; what a killed run left is removed by the
    next. One thread publishes. Raises UserError where ``folder`` cannot be used.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self._roots = [_SHARED_MEMORY, Path(tempfile.gettempdir())]
        if folder is not None:
            self._roots = [_usable(Path(folder).expanduser())]
        for root in self._roots:
            remove_leftovers(root)
        self._folder: OwnFolder | None = None
        self._published: dict[int, Memory] = {}
        self._spare: Memory | None = None

    def publish(self, weights: nn.Module | Iterable[tuple[str, Tensor]], version: int) -> Path:
        """Writes the weights of ``version`` and returns the path, which is there once it is whole.

        The version before stays until `forget_before`. Of a model sharded by FSDP2, rank 0
        publishes while the other ranks go through `policy_weights`; a failure here still takes
        part in their gathering to its end.

        Args:
            weights: the model, gathered a weight at a time, or pairs of name and whole tensor.
            version: the number of learner updates that they have seen.

        Raises WeightSyncError, with earlier versions as they were, where there is no room for the
        file or it cannot be written.
        """
        pairs: Iterator[tuple[str, Tensor]]
        if isinstance(weights, nn.Module):
            metas, tied = weight_metas(weights), tied_weights(weights)
            pairs = policy_weights(weights)
        else:
            kept = list(weights)
            metas = [WeightMeta(name, t.dtype, tuple(t.shape)) for name, t in kept]
            pairs, tied = iter(kept), {}
        memory: Memory | None = None
        try:
            layout = make_layout(metas, version, tied)
            memory = self._memory(layout.size)
            memory.write(layout, pairs)
            memory.rename(f"v{version}.safetensors")
        except BaseException as error:
            if memory is not None:
                memory.discard()
            if not isinstance(error, Exception):
                raise
            for _ in pairs:
                pass
            if isinstance(error, WeightSyncError):
                raise
            raise WeightSyncError(f"version {version} cannot be published: {error}") from error
        if version in self._published:
            self._published.pop(version).close()  # its name is the new file's already
        self._published[version] = memory
        return memory.path

    def forget_before(self, version: int) -> None:
        """Gives up the files of versions below ``version``, never the newest one's.

        The memory of one of them is what the next version is written into; whoever still maps a
        file keeps it as it is.
        """
        newest = next(reversed(self._published), None)
        for old in [v for v in self._published if v < version and v != newest]:
            if self._spare is not None:
                self._spare.discard()
            self._spare = self._published.pop(old)
            self._spare.rename(f"v{old}.partial")

    def close(self) -> None:
        """Removes the files and the folder; a second time does nothing."""
        spare = [] if self._spare is None else [self._spare]
        for memory in [*self._published.values(), *spare]:
            memory.discard()
        self._published.clear()
        self._spare = None
        if self._folder is not None:
            self._folder.close()
            self._folder = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _memory(self, size: int) -> Memory:
        """A file of ``size`` bytes that nobody else maps: an old version's, or a new one."""
        spare, self._spare = self._spare, None
        if spare is not None:
            if spare.size == size and spare.lock():
                return spare
            spare.discard()
        if self._folder is None:
            self._folder = self._open_folder(size)
        folder = self._folder.path
        if shutil.disk_usage(folder).free < size:
            raise _no_room(folder.parent, size)
        for number in itertools.count():
            path = folder / f"new{number}.partial"
            if not path.exists():
                break
        try:
            return Memory(path, size)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise _no_room(folder.parent, size) from error

    def _open_folder(self, size: int) -> OwnFolder:
        for root in self._roots:
            with contextlib.suppress(OSError):
                if shutil.disk_usage(root).free >= 2 * size:
                    return OwnFolder(root)
        root = self._roots[-1]
        if root.is_dir() and os.access(root, os.W_OK):
            raise _no_room(root, 2 * size)
        raise WeightSyncError(
            f"no folder for weight files can be made in {self._roots[-1]}; "
            "name another as rollout.weight_sync.folder"
        )


def open_weights(path: str | Path, *, version: int | None = None) -> WeightFile:
    """Opens a published file; its tensors are mapped and not copied.

    The file is locked for reading until the last of the tensors is gone, so its numbers never
    change underneath. Writing into a tensor changes this process's copy only.

    Args:
        path: what `WeightFiles.publish` returned.
        version: what it must hold; None takes any.

    Raises WeightSyncError where the file is missing, given up, torn, of another schema or version.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            # The name may have gone to another version between opening and locking.
            if not os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                raise FileNotFoundError
            # The map has the lock from here: it keeps the open file, and every tensor keeps it.
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except (FileNotFoundError, BlockingIOError):
        reason = "no such weight file; its version was given up, or its run has ended"
        raise WeightSyncError(f"{path}: {reason}") from None
    except ValueError:
        raise WeightSyncError(f"{path}: the file is torn: it is empty") from None
    except OSError as error:
        raise WeightSyncError(f"{path}: cannot be opened: {error.strerror}") from error
    try:
        with memoryview(data) as view:
            layout = read_layout(view)
    except ValueError as error:
        raise WeightSyncError(f"{path}: {error}") from None
    if version is not None and layout.version != version:
        raise WeightSyncError(f"{path}: holds version {layout.version} and not {version}")
    whole = bytes_of(data)
    weights = tuple((place.meta.name, tensor_at(whole, place)) for place in layout.places)
    return WeightFile(path, layout.version, layout.tied, weights)


def read_weights(path: str | Path, *, version: int | None = None) -> Iterator[tuple[str, Tensor]]:
    """Name and tensor of a published file, in the order of the modules: see `open_weights`."""
    return iter(open_weights(path, version=version).weights)


def _usable(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(
            f"rollout.weight_sync.folder {folder}: cannot be used: {error.strerror}"
        ) from error
    return folder


def _no_room(folder: Path, size: int) -> WeightSyncError:
    free = shutil.disk_usage(folder).free
    return WeightSyncError(
        f"no room in {folder} for weights of {size / 1e6:,.0f} MB ({free / 1e6:,.0f} MB are free); "
        "make room or name another folder as rollout.weight_sync.folder"
    )
