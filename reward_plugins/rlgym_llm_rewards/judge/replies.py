"""Keep the judge's replies in a file, so that no question is paid for twice."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Generic, TypeVar

from rlgym_llm.errors import UserError

__all__ = ["Pending", "Replies", "reply_key"]

_T = TypeVar("_T")


def reply_key(url: str, payload: Mapping[str, Any], vote: int) -> str:
    """What a reply is kept under: a hash of the address, the whole request and the vote's number.

    >>> reply_key("u", {"a": 1}, 0) == reply_key("u", {"a": 1}, 1)
    False
    """
    text = json.dumps([url, payload, vote], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


class Replies:
    """A SQLite file of replies by key; several threads and processes may use it at once."""

    def __init__(self, path: str) -> None:
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, timeout=30, check_same_thread=False)
            self._connection.execute("PRAGMA journal_mode=WAL")
            with self._connection:
                self._connection.execute(
                    "CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, reply TEXT NOT NULL)"
                )
        except (OSError, sqlite3.Error) as failure:
            raise UserError(f"the judge's cache {path} cannot be used: {failure}") from None
        self._lock = threading.Lock()

    def get(self, key: str) -> str | None:
        """The reply, or None."""
        with self._lock:
            row = self._connection.execute(
                "SELECT reply FROM replies WHERE key = ?", (key,)
            ).fetchone()
        return None if row is None else str(row[0])

    def put(self, key: str, reply: str) -> None:
        """Keeps the reply; the first one stays."""
        with self._lock, self._connection:
            self._connection.execute("INSERT OR IGNORE INTO replies VALUES (?, ?)", (key, reply))

    def close(self) -> None:
        """Closes the file."""
        self._connection.close()


class _AbandonedError(Exception):
    """Whoever asked was cancelled, or failed in a way that is its own."""


class Pending(Generic[_T]):
    """What is being asked now, in any thread or loop of this process, by key."""

    def __init__(self) -> None:
        self._answers: dict[str, Future[_T]] = {}
        self._lock = threading.Lock()

    async def once(self, key: str, ask: Callable[[], Awaitable[_T]]) -> _T:
        """What ``ask`` gives, or gave another who is asking under the same key just now.

        Where the other one is cancelled or raises, this one asks.
        """
        while True:
            with self._lock:
                theirs = self._answers.get(key)
                if theirs is None:
                    mine = self._answers[key] = Future()
                    mine.set_running_or_notify_cancel()  # one who waits and leaves ends it for none
            if theirs is None:
                return await self._ask(key, mine, ask)
            try:
                return await asyncio.wrap_future(theirs)
            except _AbandonedError:
                continue

    async def _ask(self, key: str, mine: Future[_T], ask: Callable[[], Awaitable[_T]]) -> _T:
        try:
            answer = await ask()
        except BaseException:
            self._forget(key)
            mine.set_exception(_AbandonedError())
            raise
        self._forget(key)
        mine.set_result(answer)
        return answer

    def _forget(self, key: str) -> None:
        with self._lock:
            del self._answers[key]
