"""Chunks: every line once, in order, cut at line ends, and at groups where asked."""

from __future__ import annotations

import json
import tempfile
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlgym_llm.offline.chunks import jsonl_chunks
from rlgym_llm.offline.lines import chunk_lines, parse_row
from rlgym_llm.rows.json_row import BadRowError


def all_lines(data: bytes, chunk_bytes: int, limit: int | None = None) -> list[tuple[int, bytes]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "in.jsonl"
        path.write_bytes(data)
        chunks = list(jsonl_chunks(path, file=0, index=0, chunk_bytes=chunk_bytes, limit=limit))
        assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
        for before, after in pairwise(chunks):
            assert after.start == before.end
            assert after.first_line == before.first_line + before.num_lines
        if limit is None:
            assert sum(chunk.end - chunk.start for chunk in chunks) == len(data)
        return [line for chunk in chunks for line in chunk_lines(path, chunk)]


def expected(data: bytes, limit: int | None = None) -> list[tuple[int, bytes]]:
    data = data.removeprefix(b"\xef\xbb\xbf")
    lines = list(enumerate(data.split(b"\n"), start=1))[:limit]
    return [(number, line.strip()) for number, line in lines if line.strip()]


@given(
    st.lists(st.sampled_from([b"", b"{}", b'{"a": 1}\r', b" ", b"x" * 50, b"\x85\xe2\x80\xa8"])),
    st.booleans(),
    st.booleans(),
    st.integers(1, 60),
    st.none() | st.integers(1, 5),
)
def test_every_line_is_read_once_whatever_the_chunks(
    lines: list[bytes], has_mark: bool, ends: bool, chunk_bytes: int, limit: int | None
) -> None:
    data = (b"\xef\xbb\xbf" if has_mark else b"") + b"\n".join(lines) + (b"\n" if ends else b"")
    if chunk_bytes < 3 and has_mark:  # a mark is no line of its own
        chunk_bytes = 3
    assert all_lines(data, chunk_bytes, limit) == expected(data, limit)


@given(st.lists(st.integers(1, 5), min_size=1), st.integers(1, 60))
def test_a_chunk_ends_where_the_group_ends(sizes: list[int], chunk_bytes: int) -> None:
    rows = [number for number, size in enumerate(sizes) for _ in range(size)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "in.jsonl"
        path.write_text("".join(f'{{"g": {row}}}\n' for row in rows))
        chunks = jsonl_chunks(
            path,
            file=0,
            index=0,
            chunk_bytes=chunk_bytes,
            group_key=lambda line, number: str(json.loads(line)["g"]),
        )
        found = [
            [json.loads(line)["g"] for _, line in chunk_lines(path, chunk)] for chunk in chunks
        ]
    assert [row for chunk in found for row in chunk] == rows
    for before, after in pairwise(found):
        assert before[-1] != after[0]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "bad JSON: Expecting property name enclosed in double quotes at column 2"),
        (b"nul", "bad JSON: Expecting value at column 1"),
        (b'{"a": 1} {', "bad JSON: Extra data at column 10"),
        (b'{"a": -Infinity}', "bad JSON: -Infinity is not JSON"),
        (b'{"a": {"b": 1, "b": 2}}', "bad JSON: key 'b' stands there twice"),
        (b'"a"', "expected a JSON object, got str"),
        (b'{"a": "\xed\xa0\x80"}', "no UTF-8: invalid continuation byte at byte 8"),
        (b'{"a": ' + b"9" * 5000 + b"}", "bad JSON: Exceeds the limit"),
    ],
)
def test_what_is_no_row_says_why(line: bytes, reason: str) -> None:
    with pytest.raises(BadRowError) as caught:
        parse_row(line)
    assert str(caught.value).startswith(reason)
