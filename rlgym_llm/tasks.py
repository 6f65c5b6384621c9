"""Task sources: where an environment's problems come from, by index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from rlgym_llm.counted import counted
from rlgym_llm.errors import DataError, UserError, did_you_mean
from rlgym_llm.rows.file_format import file_format, read_rows
from rlgym_llm.rows.jsonl import read_jsonl
from rlgym_llm.rows.parquet import read_parquet
from rlgym_llm.rows.row import Reject, Row, RowStream
from rlgym_llm.types import Task

__all__ = [
    "BadLinePolicy",
    "FileTasks",
    "GeneratorTasks",
    "JsonlTasks",
    "ListTasks",
    "ParquetTasks",
    "Reject",
    "Row",
    "TaskSource",
    "file_tasks",
]

RowToTask = Callable[[Row], Task]
"""What an environment makes of a row; KeyError means a missing column, ValueError a bad value."""

BadLinePolicy = Literal["error", "skip"]
"""``error`` stops at the first bad line; ``skip`` sets it aside among the ``rejects``."""


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


class _FileTasks(ListTasks):
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
        if on_bad_line not in ("error", "skip"):
            raise UserError(f"on_bad_line must be error or skip, got {on_bad_line!r}")
        self.path = Path(path)
        named = f" (given by {key})" if key else ""
        if not self.path.is_file():
            what = "this is a folder" if self.path.is_dir() else "no such file"
            raise DataError(f"{what}{named}", path=path)
        tasks: list[Task] = []
        rejects: list[Reject] = []
        try:
            for line, row in self._rows():
                try:
                    tasks.append(_map_row(row, to_task, columns or {}, self.path, line))
                except DataError as error:
                    if on_bad_line == "error":
                        raise
                    reason = str(error).removeprefix(f"{self.path}:{line}: ")
                    rejects.append(Reject(line=line, reason=reason))
        except OSError as error:
            raise DataError(f"cannot be read: {error}{named}", path=path) from error
        if not tasks:
            detail = ""
            if rejects:
                detail = f" ({counted(len(rejects), 'bad line')}, first: {rejects[0].reason})"
            raise DataError(f"the file holds no task{detail}{named}", path=path)
        super().__init__(tasks)
        self.rejects = tuple(rejects)
        """Lines set aside under ``on_bad_line="skip"``."""

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

    Raises DataError, as they do, for an unknown ending too.
    """
    file_format(Path(path))
    source = _BY_SUFFIX.get(Path(path).suffix.lower(), FileTasks)
    tasks: Any = source(path, to_task, columns=columns, on_bad_line=on_bad_line, key=key)
    return tasks  # type: ignore[no-any-return]


def _map_row(
    row: Row | Reject,
    to_task: RowToTask,
    columns: Mapping[str, str],
    path: Path,
    line: int,
) -> Task:
    """The task of a row; whatever is wrong with the row becomes a DataError with file and line."""
    if isinstance(row, Reject):
        raise row.error(path)
    try:
        return to_task({**row, **{field: row[column] for field, column in columns.items()}})
    except KeyError as error:
        raise DataError(_missing_column(error.args[0], row), path=path, line=line) from error
    except (ValueError, TypeError) as error:
        raise DataError(_first_line(error), path=path, line=line) from error


def _missing_column(name: str, row: Row) -> str:
    hint = did_you_mean(str(name), [str(column) for column in row])
    return f"no column {name!r}{hint} (columns: {', '.join(map(str, row)) or 'none'})"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
