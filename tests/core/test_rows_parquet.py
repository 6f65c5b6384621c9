"""Parquet: the very same rows come back."""

import datetime
import decimal
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlgym_llm import DataError
from rlgym_llm.rows.column_types import RowTypes, columns_of
from rlgym_llm.rows.new_file import new_file
from rlgym_llm.rows.parquet import num_parquet_rows, read_parquet, write_parquet

FINITE = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | st.integers() | FINITE | st.text()
KEYS = st.sampled_from(["a", "b", "c", "", "[]", "x.y"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
ROWS = st.lists(st.dictionaries(KEYS, VALUES, min_size=1, max_size=4), min_size=1, max_size=5)


def through(path, rows, *, exact=True, types=None, batch_rows=2):
    seen = RowTypes()
    for row in rows:
        seen.see(row)
    columns = columns_of(seen, exact=exact, types=types)
    with new_file(path, overwrite=True) as file:
        assert write_parquet(file, rows, columns, batch_rows=batch_rows) == len(rows)
    assert num_parquet_rows(path) == len(rows)
    return [row for _, row in read_parquet(path)]


def types_in(path):
    import pyarrow.parquet as pq

    schema = pq.read_schema(path)
    return {name: str(schema.field(name).type) for name in schema.names}


def same(value):
    """The value in a form that tells 1 from 1.0 and True."""
    return json.dumps(value, sort_keys=True)


@given(ROWS)
@settings(max_examples=200)
def test_any_rows_come_back_as_they_were(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("parquet") / "rows.parquet"
    assert same(through(path, rows)) == same(rows)


@pytest.mark.parametrize(
    ("rows", "type_name"),
    [
        ([{"x": 3}, {"x": None}], "int64"),
        ([{"x": 3}, {}], "int64"),
        ([{"x": 0.5}, {"x": None}], "double"),
        ([{"x": {"k": 1}}, {"x": {"q": "x"}}], "struct<k: int64, q: string>"),
        ([{"x": {"k": 1}}, {"x": {}}, {"x": None}], "struct<k: int64>"),
        ([{"x": [{"k": 1}]}, {"x": [{"q": 2}, None]}], "list<element: struct<k: int64, q: int64>>"),
        ([{"x": [[1], []]}, {"x": []}], "list<element: list<element: int64>>"),
        ([{"x": None}, {"x": None}], "null"),
        # Arrow has no one type for these.
        ([{"x": 3}, {"x": 0.5}], "string"),
        ([{"x": 3}, {"x": True}], "string"),
        ([{"x": "3"}, {"x": 3}, {"x": None}, {}], "string"),
        ([{"x": {}}], "string"),
        ([{"x": 3}, {"x": None}, {}], "string"),
        ([{"x": {"k": None}}, {"x": {}}], "string"),
        ([{"x": 2**63}], "string"),
        ([{"x": "\ud800"}], "string"),
        ([{"x": {str(i): i for i in range(100)}}], "string"),
    ],
)
def test_types_are_native_where_arrow_has_one(tmp_path, rows, type_name):
    path = tmp_path / "rows.parquet"
    assert same(through(path, [{"id": 1, **row} for row in rows])) == same(
        [{"id": 1, **row} for row in rows]
    )
    assert types_in(path)["x"] == type_name


def test_for_other_readers_native_types_come_first(tmp_path):
    path = tmp_path / "rows.parquet"
    rows = [{"x": 1, "e": {"k": None}}, {"x": 0.5, "e": {}}]
    assert through(path, rows, exact=False) == [
        {"x": 1.0, "e": {"k": None}},
        {"x": 0.5, "e": {"k": None}},
    ]
    assert types_in(path) == {"x": "double", "e": "struct<k: null>"}


def test_fixed_types_stand_where_nothing_is_known(tmp_path):
    path = tmp_path / "rows.parquet"
    fixed = {"reward": "double", "values": "list<double>", "id": "int64"}
    found = through(path, [{"id": "a", "reward": None}], types=fixed)
    assert found == [{"id": "a", "reward": None, "values": None}]
    assert types_in(path) == {"id": "string", "reward": "double", "values": "list<element: double>"}


def test_what_parquet_has_and_json_has_not_stays_in_parquet(tmp_path):
    when = datetime.datetime(2025, 1, 2, 3, 4, 5)
    rows = [{"at": when, "day": when.date(), "raw": b"\xff"}]
    assert through(tmp_path / "rows.parquet", rows) == rows
    # A decimal is text in JSON, and JSON text is what it is stored as.
    price = [{"price": decimal.Decimal("1.50")}]
    assert through(tmp_path / "rows.parquet", price) == [{"price": "1.50"}]


def test_not_a_number_stays_one_but_is_no_json(tmp_path):
    path = tmp_path / "rows.parquet"
    [row] = through(path, [{"x": float("nan"), "y": float("inf")}])
    assert (str(row["x"]), row["y"]) == ("nan", float("inf"))
    with pytest.raises(DataError, match="column 'x' cannot be stored as JSON text"):
        through(path, [{"x": float("nan")}, {"x": "no number"}])


def test_large_rows_end_a_batch_early(tmp_path):
    import pyarrow.parquet as pq

    path = tmp_path / "rows.parquet"
    rows = [{"text": str(i) * 3_000_000} for i in range(4)]
    assert through(path, rows, batch_rows=1000) == rows
    assert pq.ParquetFile(path).metadata.num_row_groups == 2  # 8 MB each, from below


def test_equal_rows_give_equal_bytes(tmp_path):
    rows = [{"id": i, "x": {"k": i}} for i in range(100)]
    through(tmp_path / "a.parquet", rows)
    through(tmp_path / "b.parquet", rows)
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_a_broken_file_is_one_error(tmp_path):
    path = tmp_path / "rows.parquet"
    through(path, [{"text": f"{i} " * 50} for i in range(3000)], batch_rows=1000)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 400] = bytes(400)
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"rows\.parquet: bad parquet behind row \d+"):
        list(read_parquet(path))
    path.write_bytes(b"PAR1 no parquet at all")
    with pytest.raises(DataError, match="bad parquet"):
        list(read_parquet(path))
