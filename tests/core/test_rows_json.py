"""JSON lines and JSON arrays as streams."""

import gzip
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlgym_llm import DataError
from rlgym_llm.rows import json_array
from rlgym_llm.rows.file_format import file_format, read_rows
from rlgym_llm.rows.json_text import from_json, to_json
from rlgym_llm.rows.new_file import new_file
from rlgym_llm.rows.row import Reject

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
FINITE = SCALARS.filter(lambda value: value not in (float("inf"), float("-inf")))
VALUES = st.recursive(
    FINITE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
ROWS = st.lists(st.dictionaries(st.text(), VALUES, max_size=4), max_size=5)


def rows_of(path):
    return [row for _, row in read_rows(path)]


class TestJsonl:
    @pytest.mark.parametrize("ending", ["", "\n", "\r\n", "\n\n \t\n"])
    @pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
    def test_what_files_in_the_wild_look_like(self, tmp_path, ending, bom):
        path = tmp_path / "rows.jsonl"
        text = f'{{"id": 1}}\r\n\n   \n{{"id": 2, "text": "π\u2028"}}{ending}'
        path.write_bytes(bom + text.encode())
        assert list(read_rows(path)) == [(1, {"id": 1}), (4, {"id": 2, "text": "π\u2028"})]

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            (b'{"id": 2,', "bad JSON: Expecting property name"),
            (b"[3]", "expected a JSON object, got list"),
            (b'{"a": NaN}', "NaN is not JSON"),
            (b'{"a": -Infinity}', "-Infinity is not JSON"),
            (b'{"a": "\xff"}', "no UTF-8: invalid start byte at byte 8"),
            (b"[" * 100_000, "nested too deeply"),
            (b'{"a": ' + b"9" * 5000 + b"}", "bad JSON"),
            (b'{"a": 1} {"b": 2}', "Extra data at column 10"),
        ],
    )
    def test_a_bad_line_is_told_by_number_and_the_others_are_read(self, tmp_path, line, reason):
        path = tmp_path / "rows.jsonl"
        path.write_bytes(b'{"id": 1}\n\n' + line + b'\n{"id": 4}\n')
        first, (number, reject), last = read_rows(path)
        assert (first, last) == ((1, {"id": 1}), (4, {"id": 4}))
        assert isinstance(reject, Reject)
        assert number == reject.line == 3
        assert reason in reject.reason
        assert reject.text == line.decode(errors="replace")

    def test_packed_files(self, tmp_path):
        path = tmp_path / "rows.jsonl.gz"
        path.write_bytes(gzip.compress(b'{"id": 1}\n{"id": 2}\n'))
        assert rows_of(path) == [{"id": 1}, {"id": 2}]
        path.write_bytes(b"no gzip")
        with pytest.raises(DataError, match=r"rows\.jsonl\.gz: cannot be read: Not a gzipped"):
            rows_of(path)
        path.write_bytes(gzip.compress(b'{"id": 1}\n' * 1000)[:-12])
        with pytest.raises(DataError, match="cannot be read"):
            rows_of(path)


class TestJsonArray:
    @given(rows=ROWS, indent=st.sampled_from([None, 2]), chunk=st.integers(1, 40))
    def test_every_cut_gives_the_same_rows(self, tmp_path_factory, rows, indent, chunk):
        path = tmp_path_factory.mktemp("array") / "rows.json"
        path.write_text(json.dumps(rows, indent=indent), "utf-8")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(json_array, "_CHUNK", chunk)
            assert list(json_array.read_json_array(path)) == list(enumerate(rows, start=1))

    def test_elements_that_are_no_objects_are_rejects(self, tmp_path, monkeypatch):
        monkeypatch.setattr(json_array, "_CHUNK", 2)
        path = tmp_path / "rows.json"
        path.write_text('[{"id": 1}, 12345, "x", null, {"id": 2}]')
        found = [row for _, row in read_rows(path)]
        assert [found[0], found[-1]] == [{"id": 1}, {"id": 2}]
        assert [(r.line, r.text) for r in found[1:-1]] == [(2, "12345"), (3, '"x"'), (4, "null")]

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ('[{"id": 1}, {"id": ', "element 2 of the array"),
            ('[{"id": 1} {"id": 2}]', r"expected ',' or '\]', got '\{'"),
            ('[{"id": 1}', "it breaks off"),
            ('[{"id": 1}] x', "there is more behind"),
            ('[{"id": NaN}]', "NaN is not JSON"),
            ('[{"id": 1},]', "element 2 of the array"),
            ('[{"a": "\\x"}]', "escape"),
        ],
    )
    def test_broken_arrays(self, tmp_path, text, reason):
        path = tmp_path / "rows.json"
        path.write_text(text)
        with pytest.raises(DataError, match=rf"rows\.json: bad JSON.*{reason}"):
            rows_of(path)

    def test_a_slip_is_told_before_the_rest_is_read(self, tmp_path, monkeypatch):
        monkeypatch.setattr(json_array, "_CHUNK", 64)
        path = tmp_path / "rows.json"
        path.write_bytes(b'[{"id": 1}, {"id" 2}, ' + b'{"id": 3},' * 1000 + b"\xff]")
        # Reading on to the end would have met the byte that is no UTF-8.
        with pytest.raises(DataError, match=r"element 2 of the array: Expecting ':'"):
            rows_of(path)

    def test_memory_holds_a_part_of_the_file(self, tmp_path):
        path = tmp_path / "rows.json"
        row = json.dumps({"text": "x" * 1000})
        path.write_text("[" + ",".join([row] * 12_000) + "]")
        tracemalloc.start()
        try:
            assert sum(1 for _ in read_rows(path)) == 12_000
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert path.stat().st_size > 12e6
        assert peak < 6e6

    def test_a_json_file_may_hold_lines(self, tmp_path):
        path = tmp_path / "rows.json"
        path.write_text('{"id": 1}\n{"id": 2}\n')
        assert rows_of(path) == [{"id": 1}, {"id": 2}]


class TestText:
    @given(VALUES)
    def test_there_and_back(self, value):
        assert from_json(to_json(value)) == value

    def test_half_a_surrogate_pair_is_escaped(self):
        assert to_json({"a": "\ud800π"}) == '{"a": "\\ud800\\u03c0"}'

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), b"x", {1, 2}])
    def test_what_json_cannot_carry(self, value):
        with pytest.raises((ValueError, TypeError)):
            to_json({"a": value})


def test_formats_by_ending(tmp_path):
    assert file_format(tmp_path / "v1.5.JSON.gz").name == "json"
    assert file_format(tmp_path / "x.ndjson.zst").packing == "zst"
    for name in ("rows.csv", "rows", "rows.gz", "rows.parquet.gz"):
        with pytest.raises(DataError, match="unknown file type"):
            file_format(tmp_path / name)
    with pytest.raises(DataError, match=r"gone\.jsonl: no such file"):
        read_rows(tmp_path / "gone.jsonl")


def write(path, data, *, overwrite=False, before_end=lambda: None):
    with new_file(path, overwrite=overwrite) as file:
        file.write(data)
        before_end()


def fail():
    raise RuntimeError


class TestNewFile:
    def test_it_appears_whole_or_not_at_all(self, tmp_path):
        path = tmp_path / "out"
        with pytest.raises(RuntimeError):
            write(path, b"half", before_end=fail)
        assert list(tmp_path.iterdir()) == []
        seen = []
        write(path, b"whole", before_end=lambda: seen.append(path.exists()))
        assert seen == [False]
        assert path.read_bytes() == b"whole"
        assert list(tmp_path.iterdir()) == [path]

    def test_what_is_there_stays(self, tmp_path):
        path = tmp_path / "out"
        path.write_text("old")
        with pytest.raises(DataError, match="exists already"):
            write(path, b"new", before_end=fail)
        with pytest.raises(RuntimeError):
            write(path, b"new", overwrite=True, before_end=fail)
        assert path.read_text() == "old"
        write(path, b"new", overwrite=True)
        assert path.read_text() == "new"

    def test_one_that_came_meanwhile_stays(self, tmp_path):
        path = tmp_path / "out"
        with pytest.raises(DataError, match="exists already"):
            write(path, b"mine", before_end=lambda: path.write_text("theirs"))
        assert path.read_text() == "theirs"

    def test_places_that_cannot_be(self, tmp_path):
        with pytest.raises(DataError, match="this is a folder"):
            write(tmp_path, b"")
        with pytest.raises(DataError, match="there is no folder"):
            write(tmp_path / "gone" / "out", b"")
