"""A side of a benchmark: a process of its own that stays and answers a line with a line.

The parent makes a `Side` and asks it; the process hands what answers to `serve`. What libraries
print there goes to a file, whose end is shown if the process dies.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["Answer", "Side", "serve"]

Answer = Callable[[dict[str, Any]], Mapping[str, Any]]

_LAST_LINES = 20
_CLOSE_S = 60.0


class Side:
    """The parent's end.

    >>> Side("ours", ["rollout.py", "--serve", "ours"]).ask({"round": 1})  # doctest: +SKIP
    {'seconds': 2.5}
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        python: str | Path = sys.executable,
    ) -> None:
        self._name = name
        self._noise = tempfile.TemporaryFile("w+")  # noqa: SIM115  # `close` closes it
        self._process = subprocess.Popen(
            [str(python), *arguments],
            env={**os.environ, **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._noise,
            text=True,
        )

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one question. Raises SystemExit, with its last words, if it died."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has died, and the next line says so
        line = self._process.stdout.readline()
        if not line:
            self._noise.seek(0)
            words = "".join(self._noise.readlines()[-_LAST_LINES:])
            raise SystemExit(f"{words}\nside {self._name} ended without an answer")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """Ends the process and waits for it."""
        try:
            self._process.communicate(timeout=_CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        self._noise.close()


def serve(make: Callable[[], Answer]) -> None:
    """The process's end: makes what answers, and has it answer every line of the input.

    After each answer it gives back the memory that it does not hold, for others to work in.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed is noise
    answer = make()
    for line in sys.stdin:
        found = json.dumps(answer(json.loads(line)))
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        print(found, file=answers, flush=True)
