"""Trained weights and their optimizer on disk, without a pickle, for any number of ranks.

torch's own checkpoint format keeps its index in a pickle, which runs what it is told to when it is
read. Its storage for Hugging Face files keeps tensors and index in safetensors instead: data and
nothing else. Each rank writes its shards into a file of its own and reads what it now needs.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import is_initialized
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.optim import Optimizer

from rlgym_llm.errors import DataError, RlgymError, describe
from rlgym_llm_trainers.learner.ranks import ALONE, Ranks

__all__ = ["load_state", "save_state"]

_COUNT = "count."
_SLOTS = ("step", "exp_avg", "exp_avg_sq")
"""What AdamW keeps of a parameter."""


def save_state(
    folder: str | Path,
    module: nn.Module,
    optimizer: Optimizer,
    counts: Mapping[str, int],
    *,
    ranks: Ranks = ALONE,
) -> None:
    """Writes the trained weights, what the optimizer knows of each, and ``counts``.

    Every rank calls it, with the same new folder. Tied weights are stored once; frozen ones, which
    come from the model, not at all. Raises RlgymError, on all ranks, where one cannot write or does
    not see what another wrote.
    """
    folder = Path(folder)
    tensors = _tensors(module, optimizer)
    tensors |= {_COUNT + name: torch.tensor(count) for name, count in counts.items()}
    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
    try:
        with _quiet():
            save(tensors, storage_writer=writer, no_dist=not is_initialized())
    except (Exception, CheckpointException) as error:
        raise RlgymError(f"{folder}: weights that cannot be written: {_cause(error)}") from error
    written = ranks.gather([path.name for path in folder.glob(f"shard-{ranks.rank + 1:05d}-*")])
    is_missing = not all((folder / name).is_file() for name in chain.from_iterable(written))
    if any(ranks.gather(is_missing)):
        raise RlgymError(
            f"{folder}: is not the same folder on all ranks, so a checkpoint would miss their "
            "shares; name an --output on storage that all machines share"
        )


def load_state(
    folder: str | Path, module: nn.Module, optimizer: Optimizer, *, ranks: Ranks = ALONE
) -> dict[str, int]:
    """Puts into place what `save_state` wrote, by however many ranks, and returns the counts.

    Every rank calls it. Raises DataError, on all ranks, where the folder holds other parameters,
    other shapes, or files that are no safetensors; the weights may then be partly those there.
    """
    reader = HuggingFaceStorageReader(str(folder))
    counts: dict[str, Tensor] = {}
    fault = None
    try:
        stored: dict[str, Any] = dict(reader.read_metadata().state_dict_metadata)
        counts = {name: torch.zeros((), dtype=torch.int64) for name in stored if _is_count(name)}
        _make_room(module, optimizer, stored)
        wanted = _tensors(module, optimizer) | counts
        fault = _difference(stored, wanted)
    except Exception as error:  # safetensors has errors of its own
        fault = _cause(error)
    # Whoever went on alone would wait for the others for ever.
    if fault := next(filter(None, ranks.gather(fault)), None):
        raise DataError(fault, path=folder)
    try:
        with torch.no_grad(), _quiet():
            load(wanted, storage_reader=reader, no_dist=not is_initialized())
    except (Exception, CheckpointException) as error:
        raise DataError(_cause(error), path=folder) from error
    return {name.removeprefix(_COUNT): int(count) for name, count in counts.items()}


def _cause(error: BaseException) -> str:
    """What went wrong: torch raises the errors of all ranks, with traces, as no `Exception`."""
    if isinstance(error, CheckpointException):
        error = next(iter(error.failures.values()))[0]
    return describe(error)


@contextmanager
def _quiet() -> Iterator[None]:
    """One rank alone is no mistake; torch warns of it at every call."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield


def _tensors(module: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """The trained weights and the optimizer's tensors themselves, by name."""
    found: dict[str, Tensor] = {}
    for name, parameter in _trained(module).items():
        found[f"weight.{name}"] = parameter.detach()
        for slot, value in optimizer.state.get(parameter, {}).items():
            found[_slot(slot, name)] = value
    return found


def _make_room(module: nn.Module, optimizer: Optimizer, stored: Mapping[str, Any]) -> None:
    """Gives every parameter the optimizer's tensors that are stored for it; they hold zeros."""
    for name, parameter in _trained(module).items():
        state = optimizer.state
        state.pop(parameter, None)
        for slot in _SLOTS:
            if _slot(slot, name) in stored:
                state[parameter][slot] = _empty(slot, parameter)


def _empty(slot: str, parameter: nn.Parameter) -> Tensor:
    if slot == "step":  # as a fused AdamW makes it
        return torch.zeros((), dtype=torch.float32, device=parameter.device)
    return torch.zeros_like(parameter.detach(), memory_format=torch.preserve_format)


def _trained(module: nn.Module) -> dict[str, nn.Parameter]:
    parameters = module.named_parameters()  # tied ones once
    return {name: parameter for name, parameter in parameters if parameter.requires_grad}


def _slot(slot: str, name: str) -> str:
    return f"optimizer.{slot}.{name}"


def _is_count(name: str) -> bool:
    return name.startswith(_COUNT)


def _difference(stored: Mapping[str, Any], wanted: Mapping[str, Tensor]) -> str | None:
    """The first parameter that the two do not have alike, or None."""
    then = {name: (*found.size, found.properties.dtype) for name, found in stored.items()}
    now = {name: (*tensor.shape, tensor.dtype) for name, tensor in wanted.items()}
    for name in sorted({*then, *now}):
        if then.get(name) != now.get(name):
            kinds = _shown(then.get(name)), _shown(now.get(name))
            return "another model was trained there: {} is {}, here {}".format(name, *kinds)
    return None


def _shown(kind: Any) -> str:
    return "absent" if kind is None else " x ".join(map(str, kind))
