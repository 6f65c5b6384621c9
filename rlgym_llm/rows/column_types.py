"""Which type each column of a parquet file gets, so that the very same rows come back.

Arrow has one type a column; JSON has none. Rows are looked at once before they are written: what
has one type throughout gets it, ``{"k": 1}`` beside ``{"q": "x"}`` becomes one struct whose absent
keys are noted, and what arrow cannot unify is stored as JSON text, noted too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["Column", "Columns", "RowTypes", "columns_of", "columns_to_note", "note_to_columns"]

_MAX_KEYS = 64
"""More keys than this are a dictionary of data rather than a record."""
_INT64 = range(-(2**63), 2**63)

Path = tuple[str | None, ...]
"""Keys down to a value; None steps into the items of a list."""

NOTE: Final = b"rlgym_llm"
"""Key of the schema metadata that holds the note."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column: its name, its arrow type, and what has to be undone on reading."""

    name: str
    type: Any
    """A pyarrow DataType."""
    is_json: bool = False
    """Every value is stored as JSON text, null included; an absent one as null."""
    absent: tuple[Path, ...] = ()
    """Paths where a null stands for a key that is not there; ``()`` is the column itself."""


Columns = tuple[Column, ...]


class RowTypes:
    """What was seen in a column, or under a key; fed row by row, in memory that does not grow.

    >>> types = RowTypes()
    >>> for row in ({"gold": 3}, {"gold": None}, {"gold": 4}):
    ...     types.see(row)
    >>> [(column.name, str(column.type)) for column in columns_of(types)]
    [('gold', 'int64')]
    """

    __slots__ = ("count", "items", "keys", "kinds", "num_objects")

    def __init__(self) -> None:
        self.kinds: set[str] = set()
        self.count = 0
        self.num_objects = 0
        self.keys: dict[str, RowTypes] = {}
        self.items: RowTypes | None = None

    def see(self, value: Any) -> None:
        """Takes note of one value: a row, or what stands in one."""
        self.count += 1
        if value is None:
            self.kinds.add("null")
        elif isinstance(value, str):
            self.kinds.add("str" if value.isascii() or _is_unicode(value) else "json")
        elif isinstance(value, bool):
            self.kinds.add("bool")
        elif isinstance(value, int):
            self.kinds.add("int" if value in _INT64 else "json")
        elif isinstance(value, float):
            self.kinds.add("float")
        elif isinstance(value, dict):
            self._see_object(value)
        elif isinstance(value, list | tuple):
            self._see_list(value)
        else:
            self.kinds.add(_arrow_kind(value))

    def _see_object(self, value: dict[str, Any]) -> None:
        self.kinds.add("object")
        self.num_objects += 1
        for key, item in value.items():
            types = self.keys.get(key)
            if types is None:
                if not isinstance(key, str) or not _is_unicode(key):
                    self.kinds.add("json")
                    continue
                types = self.keys[key] = RowTypes()
            types.see(item)
        if len(self.keys) > _MAX_KEYS:
            self.kinds.add("json")
            self.keys = {}

    def _see_list(self, value: Sequence[Any]) -> None:
        self.kinds.add("list")
        if self.items is None:
            self.items = RowTypes()
        types = set(map(type, value))
        if types <= {float, type(None)} or (types <= {int} and _fits_int64(value)):
            # Token ids and log-probs come by the thousand: one look a list.
            value = [next(item for item in value if type(item) is kind) for kind in types]
        for item in value:
            self.items.see(item)


def columns_of(
    rows: RowTypes, *, exact: bool = True, types: Mapping[str, str] | None = None
) -> Columns:
    """The columns of the rows that were seen, in the order in which they were first seen.

    ``exact`` makes sure that equal rows come back, at the price of more JSON text. Without it, for
    files that others read, 1 beside 0.5 is 1.0, and a key that is null here and absent there is
    null. ``types`` names columns of a fixed type, such as ``{"values": "list<double>"}``: theirs
    where nothing but nulls was seen, and there even if no row has them.
    """
    types = dict(types or {})
    columns = []
    for name, seen in rows.keys.items():
        fixed = types.pop(name, None)
        if fixed is not None and seen.kinds <= {"null"}:
            columns.append(Column(name=name, type=_parse_type(fixed)))
            continue
        columns.append(_column(name, seen, seen.count < rows.num_objects, exact=exact))
    columns += [Column(name=name, type=_parse_type(text)) for name, text in types.items()]
    return tuple(columns)


def columns_to_note(columns: Columns) -> dict[bytes, bytes]:
    """Schema metadata that says what to undo on reading; empty where that is nothing."""
    as_json = [column.name for column in columns if column.is_json]
    absent = [[column.name, *path] for column in columns for path in column.absent]
    if not as_json and not absent:
        return {}
    return {NOTE: json.dumps({"version": 1, "json": as_json, "absent": absent}).encode()}


def note_to_columns(metadata: Mapping[bytes, bytes] | None) -> tuple[set[str], list[Path]]:
    """Names of the columns of JSON text, and the paths where a null is a key that is not there."""
    note = (metadata or {}).get(NOTE)
    if note is None:
        return set(), []
    found = json.loads(note)
    return set(found["json"]), [tuple(path) for path in found["absent"]]


class _NoTypeError(Exception):
    """Arrow has no one type for what was seen."""


def _column(name: str, seen: RowTypes, is_absent: bool, *, exact: bool) -> Column:
    import pyarrow as pa

    absent: list[Path] = []
    try:
        if is_absent and "null" not in seen.kinds:
            absent.append(())
        elif is_absent and exact:
            raise _NoTypeError
        found = _type(seen, (), absent, exact=exact)
    except _NoTypeError:
        return Column(name=name, type=pa.string(), is_json=True, absent=((),) if is_absent else ())
    return Column(name=name, type=found, absent=tuple(absent))


def _type(seen: RowTypes, path: Path, absent: list[Path], *, exact: bool) -> Any:
    """The arrow type; appends the paths of absent keys. Raises _NoTypeError where there is none."""
    import pyarrow as pa

    kinds = seen.kinds - {"null"}
    if kinds == {"int", "float"} and not exact:
        return pa.float64()
    if len(kinds) > 1 or "json" in kinds:
        raise _NoTypeError
    if not kinds:
        return pa.null()
    (kind,) = kinds
    if kind == "list":
        assert seen.items is not None
        return pa.list_(_type(seen.items, (*path, None), absent, exact=exact))
    if kind != "object":
        simple = {"str": "string", "bool": "bool", "int": "int64", "float": "double"}
        return _parse_type(simple.get(kind, kind))
    if not seen.keys:
        raise _NoTypeError  # parquet has no struct without fields
    fields = []
    for key, types in seen.keys.items():
        if types.count < seen.num_objects:
            if "null" not in types.kinds:
                absent.append((*path, key))
            elif exact:
                raise _NoTypeError
        fields.append((key, _type(types, (*path, key), absent, exact=exact)))
    return pa.struct(fields)


def _parse_type(text: str) -> Any:
    """The arrow type of its own name; ``list<...>`` around it for a list."""
    import pyarrow as pa

    inner = text.removeprefix("list<")
    if inner != text:
        return pa.list_(_parse_type(inner.removesuffix(">")))
    return pa.type_for_alias(text)


def _arrow_kind(value: Any) -> str:
    """What parquet gave and JSON does not know: the name of its arrow type, or ``json``."""
    import pyarrow as pa

    try:
        found = str(pa.scalar(value).type)
        pa.type_for_alias(found)
    except (pa.ArrowException, ValueError, TypeError):
        return "json"
    return found


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return False
    return True


def _fits_int64(values: Sequence[int]) -> bool:
    return not values or (min(values) in _INT64 and max(values) in _INT64)
