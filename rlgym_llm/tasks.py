"""Task sources: where an environment's problems come from, by index."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, runtime_checkable

from rlgym_llm.counted import counted
from rlgym_llm.errors import DataError, UserError, did_you_mean
from rlgym_llm.rows.file_format import file_format, read_rows
from rlgym_llm.rows.jsonl import read_jsonl
from rlgym_llm.rows.parquet import read_parquet
from rlgym_llm.rows.row import Reject, Row, RowStream
from rlgym_llm.task_cache import cached, file_key
from rlgym_llm.types import Task

if TYPE_CHECKING:
    from rlgym_llm.plugins import Plugins

__all__ = [
    "BadLinePolicy",
    "FileTasks",
    "GeneratorTasks",
    "HubTasks",
    "JsonlTasks",
    "ListTasks",
    "ParquetTasks",
    "Reject",
    "Row",
    "RowToTask",
    "TaskSource",
    "data_tasks",
    "file_tasks",
]

RowToTask = Callable[[Row], Task]
"""What an environment makes of a row; KeyError means a missing column, ValueError a bad value."""

BadLinePolicy = Literal["error", "skip"]
"""``error`` stops at the first bad line; ``skip`` sets it aside among the ``rejects``."""

_ADDRESS: Final = re.compile(r"([a-z][a-z0-9]+):(.+)")


@runtime_checkable
class TaskSource(Protocol):
    """A fixed, finite, picklable sequence of tasks; an index gives the same task in any process."""

    def __len__(self) -> int:
        """Number of tasks."""
        ...

    def __getitem__(self, index: int, /) -> Task:
        """Task ``index``, from 0. Raises IndexError past the end."""
        ...


class ListTasks:
    """Tasks that are held in memory.

    >>> tasks = ListTasks([Task(prompt="2 + 3 = ?", answer="5")])
    >>> len(tasks), tasks[0].answer
    (1, '5')
    """

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._tasks = tuple(tasks)

    def __len__(self) -> int:
        return len(self._tasks)

    def __getitem__(self, index: int, /) -> Task:
        return self._tasks[index]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} tasks)"


class GeneratorTasks:
    """Tasks made on demand by ``make(index, seed)``, a module-level function (so that it pickles).

    >>> def make(index, seed):
    ...     return Task(prompt=f"{index} + {seed} = ?", answer=str(index + seed))
    >>> GeneratorTasks(make, num_tasks=10, seed=3)[2].answer
    '5'
    """

    def __init__(self, make: Callable[[int, int], Task], *, num_tasks: int, seed: int = 0) -> None:
        if num_tasks < 1:
            raise UserError(f"a task source needs at least 1 task, got num_tasks={num_tasks}")
        self._make = make
        self._num_tasks = num_tasks
        self._seed = seed

    def __len__(self) -> int:
        return self._num_tasks

    def __getitem__(self, index: int, /) -> Task:
        if not -self._num_tasks <= index < self._num_tasks:
            raise IndexError(f"task {index} of {self._num_tasks}")
        return self._make(index % self._num_tasks, self._seed)

    def __repr__(self) -> str:
        return f"GeneratorTasks({self._num_tasks} tasks, seed={self._seed})"


class _RowTasks(ListTasks):
    """Rows, checked and mapped once, at construction; ``where`` names what they come from."""

    def __init__(
        self,
        rows: RowStream,
        to_task: RowToTask,
        *,
        columns: Mapping[str, str] | None,
        on_bad_line: BadLinePolicy,
        where: str | Path,
        what: str,
        named: str,
    ) -> None:
        if on_bad_line not in ("error", "skip"):
            raise UserError(f"on_bad_line must be error or skip, got {on_bad_line!r}")
        tasks: list[Task] = []
        rejects: list[Reject] = []
        for line, row in rows:
            try:
                tasks.append(_map_row(row, to_task, columns or {}, where, line))
            except DataError as error:
                if on_bad_line == "error":
                    raise
                reason = str(error).removeprefix(f"{where}:{line}: ")
                rejects.append(Reject(line=line, reason=reason))
        if not tasks:
            detail = ""
            if rejects:
                detail = f" ({counted(len(rejects), 'bad line')}, first: {rejects[0].reason})"
            raise DataError(f"the {what} holds no task{detail}{named}", path=where)
        super().__init__(tasks)
        self.rejects = tuple(rejects)
        """Lines set aside under ``on_bad_line="skip"``."""


class _FileTasks(_RowTasks):
    """Rows of a file, read, checked and mapped once, at construction.

    ``columns={"answer": "label"}`` reads the field ``answer`` from the column ``label``. ``key``
    is the setting that named the file, for the error message. Raises DataError.
    """

    def __init__(
        self,
        path: str | Path,
        to_task: RowToTask,
        *,
        columns: Mapping[str, str] | None = None,
        on_bad_line: BadLinePolicy = "error",
        key: str | None = None,
    ) -> None:
        self.path = Path(path)
        named = f" (given by {key})" if key else ""
        if not self.path.is_file():
            what = "this is a folder" if self.path.is_dir() else "no such file"
            raise DataError(f"{what}{named}", path=path)
        try:
            super().__init__(
                self._rows(),
                to_task,
                columns=columns,
                on_bad_line=on_bad_line,
                where=self.path,
                what="file",
                named=named,
            )
        except OSError as error:
            raise DataError(f"cannot be read: {error}{named}", path=path) from error

    def _rows(self) -> RowStream:
        raise NotImplementedError


class JsonlTasks(_FileTasks):
    """One JSON object a line (UTF-8, a byte order mark allowed); blank lines are passed over."""

    def _rows(self) -> RowStream:
        return read_jsonl(self.path)


class ParquetTasks(_FileTasks):
    """Rows of a parquet file. Foreign metadata is ignored; integers beside nulls stay integers.

    Needs pyarrow, which is imported then and not before.
    """

    def _rows(self) -> RowStream:
        return read_parquet(self.path)


class FileTasks(_FileTasks):
    """Rows of any file that `read_rows` reads: ``.json`` arrays, ``.jsonl.gz`` and so on."""

    def _rows(self) -> RowStream:
        return read_rows(self.path)


class HubTasks(_RowTasks):
    """Rows of a row source, such as ``hf:OWNER/NAME:CONFIG:SPLIT``, mapped once, at construction.

    What stands before the colon names the plugin that has the rows: ``hf`` is the Hugging Face
    hub. Raises UnknownNameError for a source that nobody brings and, like the sources of files,
    DataError with address and row.
    """

    def __init__(
        self,
        address: str,
        to_task: RowToTask,
        *,
        columns: Mapping[str, str] | None = None,
        on_bad_line: BadLinePolicy = "error",
        key: str | None = None,
        plugins: Plugins | None = None,
    ) -> None:
        from rlgym_llm.plugins import Plugins
        from rlgym_llm.specs import Kind

        parts = _ADDRESS.fullmatch(address)
        if parts is None:
            raise UserError(
                f"a row source is named like hf:OWNER/NAME[:CONFIG[:SPLIT]], not {address!r}"
            )
        plugins = Plugins.discover() if plugins is None else plugins
        open_rows = plugins.load(plugins.get(Kind.ROW_SOURCE, parts[1]))
        self.address = address
        super().__init__(
            iter(enumerate(open_rows(parts[2]), start=1)),
            to_task,
            columns=columns,
            on_bad_line=on_bad_line,
            where=address,
            what="data set",
            named=f" (given by {key})" if key else "",
        )


_BY_SUFFIX: Mapping[str, type[_FileTasks]] = {
    ".jsonl": JsonlTasks,
    ".ndjson": JsonlTasks,
    ".parquet": ParquetTasks,
}


def file_tasks(
    path: str | Path,
    to_task: RowToTask,
    *,
    columns: Mapping[str, str] | None = None,
    on_bad_line: BadLinePolicy = "error",
    key: str | None = None,
) -> JsonlTasks | ParquetTasks | FileTasks:
    """The source that the file's ending asks for: `JsonlTasks`, `ParquetTasks` or `FileTasks`.

    A file that has not changed is read once per process for the same ``to_task`` and options.
    Raises DataError, as they do, for an unknown ending too.
    """
    file_format(Path(path))
    source: Any = _BY_SUFFIX.get(Path(path).suffix.lower(), FileTasks)
    read: Callable[[], JsonlTasks | ParquetTasks | FileTasks] = partial(
        source, path, to_task, columns=columns, on_bad_line=on_bad_line, key=key
    )
    try:
        options = (to_task, tuple((columns or {}).items()), on_bad_line)
        content = (str(path), *file_key(path), *options)
    except OSError:  # the source itself tells what is wrong with the file
        return read()
    return cached(content, read)


def data_tasks(
    data: str | Path,
    to_task: RowToTask,
    *,
    columns: Mapping[str, str] | None = None,
    on_bad_line: BadLinePolicy = "error",
    key: str | None = None,
) -> TaskSource:
    """The tasks of a file (`file_tasks`) or of an address such as ``hf:owner/name`` (`HubTasks`).

    A file of that name wins over an address. Raises as they do.
    """
    source: Callable[..., TaskSource] = file_tasks
    if isinstance(data, str) and _ADDRESS.fullmatch(data) and not Path(data).exists():
        source = HubTasks
    return source(data, to_task, columns=columns, on_bad_line=on_bad_line, key=key)


def _map_row(
    row: Row | Reject,
    to_task: RowToTask,
    columns: Mapping[str, str],
    where: str | Path,
    line: int,
) -> Task:
    """The task of a row; whatever is wrong with the row becomes a DataError with file and line."""
    if isinstance(row, Reject):
        raise row.error(where)
    try:
        return to_task({**row, **{field: row[column] for field, column in columns.items()}})
    except KeyError as error:
        raise DataError(_missing_column(error.args[0], row), path=where, line=line) from error
    except (ValueError, TypeError) as error:
        raise DataError(_first_line(error), path=where, line=line) from error


def _missing_column(name: str, row: Row) -> str:
    hint = did_you_mean(str(name), [str(column) for column in row])
    return f"no column {name!r}{hint} (columns: {', '.join(map(str, row)) or 'none'})"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
