"""The layout is safetensors', checked by hand and by safetensors itself in test_files."""

from __future__ import annotations

import json

import pytest
import torch
from rlgym_llm_trainers.generators.weight_sync.layout import make_layout, read_layout
from rlgym_llm_trainers.generators.weight_sync.source import WeightMeta

METAS = [
    WeightMeta("mask", torch.bool, (3,)),
    WeightMeta("a", torch.float32, (2, 3)),
    WeightMeta("half", torch.bfloat16, (5,)),
    WeightMeta("scalar", torch.float32, ()),
]


def file_of(layout):
    return memoryview(bytearray(layout.header.ljust(layout.size, b"\0")))


def test_places_by_hand():
    layout = make_layout(METAS, 7, {"b": "a"})
    # a: 24 bytes, scalar: 4, half: 10, mask: 3; the widest first, the order kept.
    assert [(p.meta.name, p.start - 4096, p.end - 4096) for p in layout.places] == [
        ("mask", 38, 41),
        ("a", 0, 24),
        ("half", 28, 38),
        ("scalar", 24, 28),
    ]
    assert len(layout.header) == 4096
    assert layout.size == 4096 + 41
    assert int.from_bytes(layout.header[:8], "little") == 4088
    entries = json.loads(layout.header[8:])
    assert list(entries) == ["__metadata__", "mask", "a", "half", "scalar"]
    assert entries["a"] == {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
    assert entries["__metadata__"]["policy_version"] == "7"


def test_every_version_takes_the_same_room():
    sizes = {make_layout(METAS, version, {}).size for version in (0, 9, 10, 10**9)}
    assert len(sizes) == 1


def test_reading_is_the_inverse():
    layout = make_layout(METAS, 12, {"b": "a"})
    assert read_layout(file_of(layout)) == layout
    empty = make_layout([], 0, {})
    assert read_layout(file_of(empty)) == empty


@pytest.mark.parametrize("length", [0, 5, 8, 100, 4095, 4096, 4136])
def test_a_torn_file_is_refused(length):
    data = file_of(make_layout(METAS, 1, {}))
    with pytest.raises(ValueError, match="torn"):
        read_layout(data[:length])


def test_a_longer_file_is_refused():
    data = bytes(file_of(make_layout(METAS, 1, {}))) + b"\0"
    with pytest.raises(ValueError, match=r"has 4,138 of 4,137 bytes"):
        read_layout(memoryview(data))


def changed(change):
    layout = make_layout(METAS, 1, {})
    entries = json.loads(layout.header[8:])
    change(entries)
    text = json.dumps(entries).encode().ljust(4088)
    return memoryview((4088).to_bytes(8, "little") + text + b"\0" * 41)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda e: e["__metadata__"].update(schema="2"),
            "of schema 2; this release reads schema 1",
        ),
        (lambda e: e.pop("__metadata__"), "no weight file of this library"),
        (lambda e: e["__metadata__"].pop("policy_version"), "does not add up"),
        (lambda e: e["__metadata__"].update(tied="{"), "does not add up"),
        (lambda e: e["a"].update(dtype="F99"), "does not add up"),
        (lambda e: e["a"].update(shape=[2, 2]), "does not add up"),
        (lambda e: e["a"].update(shape="six"), "does not add up"),
        (lambda e: e.update(a=3), "does not add up"),
        (lambda e: e["a"].update(data_offsets=[-24, 0]), "does not add up"),
        (lambda e: e["a"].update(data_offsets=[2, 26]), "does not add up"),
    ],
)
def test_a_header_that_is_not_ours_or_wrong_is_refused(change, message):
    assert read_layout(changed(lambda entries: None)).version == 1
    with pytest.raises(ValueError, match=message):
        read_layout(changed(change))


def test_a_header_of_no_json_is_refused():
    for text in (b"{" * 10, b"[1, 2]", b"\xff\xfe"):
        data = len(text).to_bytes(8, "little") + text
        with pytest.raises(ValueError, match="header cannot be read"):
            read_layout(memoryview(data))


def test_what_no_file_can_hold_is_refused():
    with pytest.raises(ValueError, match=r"w is of torch\.complex64"):
        make_layout([WeightMeta("w", torch.complex64, (1,))], 0, {})
    with pytest.raises(ValueError, match="twice"):
        make_layout([METAS[0], METAS[0]], 0, {})
