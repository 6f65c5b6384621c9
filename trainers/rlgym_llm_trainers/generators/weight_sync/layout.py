"""The layout of a weight file: safetensors', with what a generator must know in its metadata."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from rlgym_llm_trainers.generators.weight_sync.source import WeightMeta

__all__ = ["SCHEMA", "Layout", "Place", "make_layout", "read_layout"]

SCHEMA = "1"
"""Version of the metadata; a file of another one is refused."""

_PAGE = 4096
_MAX_HEADER = 100_000_000  # as safetensors bounds it

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


@dataclass(frozen=True, slots=True)
class Place:
    """A tensor and where in the file its bytes lie."""

    meta: WeightMeta
    start: int
    """First byte, counted from the start of the file."""
    end: int
    """One after the last."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Everything of a weight file but the numbers."""

    header: bytes
    """The file's first bytes: 8 of length, then JSON, padded so that the data begin a page."""
    places: tuple[Place, ...]
    """In the order of the modules."""
    size: int
    """Bytes of the whole file."""
    version: int
    """The number of learner updates that the weights have seen."""
    tied: Mapping[str, str]
    """Name -> the name that the same tensor stands under."""


def make_layout(metas: Iterable[WeightMeta], version: int, tied: Mapping[str, str]) -> Layout:
    """The layout of a file with these weights; `Layout.places` are in the order given.

    Raises ValueError for a dtype that safetensors has no name for, or a name given twice.
    """
    metas = list(metas)
    if len({meta.name for meta in metas}) != len(metas):
        raise ValueError("a weight stands twice")
    offsets: dict[str, tuple[int, int]] = {}
    end = 0
    # The widest numbers first, so that every tensor is aligned to its own width.
    for meta in sorted(metas, key=lambda meta: -meta.dtype.itemsize):
        start, end = end, end + math.prod(meta.shape) * meta.dtype.itemsize
        offsets[meta.name] = start, end
    entries: dict[str, object] = {
        "__metadata__": {
            "format": "pt",
            "schema": SCHEMA,
            "policy_version": str(version),
            "tied": json.dumps(dict(tied)),
        }
    }
    for meta in metas:
        if meta.dtype not in _NAMES:
            raise ValueError(f"{meta.name} is of {meta.dtype}, which a weight file cannot hold")
        entries[meta.name] = {
            "dtype": _NAMES[meta.dtype],
            "shape": meta.shape,
            "data_offsets": offsets[meta.name],
        }
    text = json.dumps(entries, separators=(",", ":")).encode()
    begin = -(-(8 + len(text)) // _PAGE) * _PAGE
    header = (begin - 8).to_bytes(8, "little") + text.ljust(begin - 8)
    places = tuple(
        Place(meta, begin + offsets[meta.name][0], begin + offsets[meta.name][1]) for meta in metas
    )
    return Layout(header, places, begin + end, version, dict(tied))


def read_layout(data: memoryview) -> Layout:
    """The layout of a whole file's bytes, the inverse of `make_layout`.

    Raises ValueError, with the reason, for a file that is torn, of another schema, or none of ours.
    """
    num_bytes = len(data)
    begin = 8 + int.from_bytes(data[:8], "little")
    if num_bytes < 8 or not begin <= min(num_bytes, _MAX_HEADER):
        raise ValueError("the file is torn: its header is cut off")
    try:
        entries: dict[str, Any] = dict(json.loads(bytes(data[8:begin])))
        metadata = dict(entries.pop("__metadata__", {}))
    except (ValueError, TypeError):  # no JSON, or no object
        raise ValueError("the file is torn: its header cannot be read") from None
    schema = metadata.get("schema")
    if schema != SCHEMA:
        kind = "no weight file of this library" if schema is None else f"of schema {schema}"
        raise ValueError(f"the file is {kind}; this release reads schema {SCHEMA}")
    try:
        places = tuple(_place(name, entry, begin) for name, entry in entries.items())
        version, tied = int(metadata["policy_version"]), json.loads(metadata["tied"])
    except (KeyError, TypeError, ValueError):
        raise ValueError("the file is torn: its header does not add up") from None
    size = max((place.end for place in places), default=begin)
    if size != num_bytes:
        raise ValueError(f"the file is torn: it has {num_bytes:,} of {size:,} bytes")
    return Layout(bytes(data[:begin]), places, size, version, tied)


def _place(name: str, entry: Mapping[str, Any], begin: int) -> Place:
    meta = WeightMeta(name, _DTYPES[entry["dtype"]], tuple(int(size) for size in entry["shape"]))
    start, end = (begin + int(offset) for offset in entry["data_offsets"])
    num_bytes = math.prod(meta.shape) * meta.dtype.itemsize
    if start < begin or start % meta.dtype.itemsize or end - start != num_bytes:
        raise ValueError(name)
    return Place(meta, start, end)
