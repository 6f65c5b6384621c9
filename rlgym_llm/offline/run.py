"""The chunks of a run, shared out over the workers: what is next, what is done, what failed."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

from rlgym_llm.layouts.layout import Layout
from rlgym_llm.offline.chunks import Chunk, jsonl_chunks
from rlgym_llm.offline.isolate import score_chunk
from rlgym_llm.offline.lines import BadRowError, parse_row
from rlgym_llm.offline.merge import JoinedLines
from rlgym_llm.offline.parquet_input import parquet_chunks, piece_path
from rlgym_llm.offline.part import finished_parts
from rlgym_llm.offline.samples import group_of
from rlgym_llm.offline.settings import OfflineSettings
from rlgym_llm.offline.workers import Workers

__all__ = ["Progress", "plan", "score_chunks"]

Progress = Callable[[Chunk], None]
"""Told of every chunk that is scored, also of those that were before."""


def plan(settings: OfflineSettings, done: set[str], *, by_group: bool) -> Iterator[Chunk]:
    """The chunks of all inputs, in order, found while one reads on: memory is constant."""
    index, left = 0, settings.limit
    for number, file in enumerate(settings.inputs):
        chunks: Iterator[Chunk]
        if file.format == "parquet":
            chunks = parquet_chunks(
                file.path,
                settings.work,
                file=number,
                index=index,
                chunk_bytes=settings.chunk_bytes,
                done=done,
                limit=left,
                row_key=partial(_row_group, layout=file.layout) if by_group else None,
            )
        else:
            chunks = jsonl_chunks(
                file.path,
                file=number,
                index=index,
                chunk_bytes=settings.chunk_bytes,
                limit=left,
                group_key=partial(_line_group, layout=file.layout) if by_group else None,
            )
        for chunk in chunks:
            index = chunk.index + 1
            if left is not None:
                left -= chunk.num_lines
            yield chunk


def score_chunks(
    settings: OfflineSettings,
    components: list[str],
    workers: Workers,
    *,
    by_group: bool,
    progress: Progress,
) -> int:
    """Scores every chunk that is not yet; returns the number of all.

    One more is on its way than there are workers, so that none of them waits for the next, and
    what is scored is joined meanwhile. Raises what the first of them raises.
    """
    done = finished_parts(settings.work)
    folder = os.getcwd()
    workers.begin(replace(settings, folder=folder).to_json())
    joined = JoinedLines(settings.work, done)
    chunks = _Shared(plan(settings, done, by_group=by_group))
    lock = threading.Lock()

    def work() -> None:
        for chunk in chunks:
            try:
                if chunk.name not in done:
                    score_chunk(workers.call, chunk, components, settings.work)
                    piece_path(settings.work, chunk).unlink(missing_ok=True)
                with lock:
                    progress(chunk)
            except BaseException as error:
                chunks.fail(chunk, error)
                return
            chunks.finish(chunk)

    num_threads = workers.num_workers + 1
    with joined, closing(workers), ThreadPoolExecutor(num_threads) as threads:
        for _ in range(num_threads):
            threads.submit(work)
        try:
            for chunk in chunks.in_order():
                joined.add(chunk.name, chunk.index)
        except BaseException:  # such as KeyboardInterrupt
            chunks.stop()
            workers.close()  # ends what the others are at
            raise
    return chunks.num_given


class _Shared:
    """One iterator of chunks for several threads, and what became of those given out."""

    def __init__(self, chunks: Iterator[Chunk]) -> None:
        self._chunks = chunks
        self._changed = threading.Condition()
        self._is_stopped = False
        self._finished: dict[int, Chunk] = {}
        self._errors: dict[int, BaseException] = {}
        self.num_given = 0

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        with self._changed:
            if self._is_stopped:
                raise StopIteration
            try:
                chunk = next(self._chunks)
            except BaseException as error:  # StopIteration, or a file that breaks off
                if not isinstance(error, StopIteration):
                    self._errors[self.num_given] = error
                self._is_stopped = True
                self._changed.notify_all()
                raise StopIteration from None
            self.num_given += 1
            return chunk

    def stop(self) -> None:
        """Gives out no further chunk."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def finish(self, chunk: Chunk) -> None:
        with self._changed:
            self._finished[chunk.index] = chunk
            self._changed.notify_all()

    def fail(self, chunk: Chunk, error: BaseException) -> None:
        with self._changed:
            self._errors[chunk.index] = error
            self._is_stopped = True
            self._changed.notify_all()

    def in_order(self) -> Iterator[Chunk]:
        """Every chunk as soon as it and all before it are finished; raises the first error."""
        for index in itertools.count():
            with self._changed:
                while index not in self._finished:
                    if index in self._errors:
                        raise self._errors[index]
                    if self._is_stopped and index >= self.num_given:
                        return
                    self._changed.wait()
                chunk = self._finished.pop(index)
            yield chunk


def _row_group(row: Mapping[str, Any], number: int, *, layout: Layout | None) -> str | None:
    return group_of(row, number, layout)


def _line_group(line: bytes, number: int, *, layout: Layout | None) -> str | None:
    try:
        return group_of(parse_row(line.strip()), number, layout)
    except BadRowError:
        return None
