"""The outer end of a sandbox: one worker process and the outcome of one call in it.

One caller at a time uses a `WorkerProcess`; only `kill` may be called from anywhere. The lines on
the pipes are explained in ``rlgym_llm.sandbox_worker``.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import select
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from rlgym_llm.sandbox_worker import MEMORY_EXIT, TAKEN

__all__ = ["Outcome", "OutcomeStatus", "WorkerProcess", "WorkerSettings"]

_WORKER = Path(__file__).with_name("sandbox_worker.py")
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_LONGEST_ANSWER = 1 << 26  # bytes; a function that floods the pipe must not fill our memory
_CHUNK = 1 << 16
_WATCH_MS = 50  # between two looks at the resident size


class OutcomeStatus(StrEnum):
    """How a call ended."""

    OK = "ok"
    """The function returned."""
    ERROR = "error"
    """It raised, or returned what JSON cannot carry."""
    TIMEOUT = "timeout"
    """It overran its deadline; its worker was killed."""
    DIED = "died"
    """Its worker died: killed, crashed, left, out of memory, or no longer making sense."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one call: a value, or the cause why there is none."""

    status: OutcomeStatus
    """How it ended."""
    value: Any = None
    """What the function returned, as JSON carries it (a tuple is a list)."""
    error: str | None = None
    """Why there is no value, on one line; None where there is one."""
    seconds: float = 0.0
    """How long the function worked."""
    num_taken: int = 0
    """Of a call that failed: how many items it had taken up, one of which is the call itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """What each worker of a sandbox is given."""

    target: str
    """The function, as ``module:attribute``."""
    deadline_s: float
    """Longest time that one call may work."""
    memory_mb: int | None
    """Largest size, in MiB; None: as the parent's."""
    memory: Literal["address_space", "resident", "auto"]
    """Which size that is; under ``auto`` the resident one where the target has loaded torch."""
    is_factory: bool
    """Whether the target makes the function, from ``argument``."""
    argument: Any
    """JSON data."""
    start_deadline_s: float
    """Longest time to start and import the target."""
    folder: str | None = None
    """Where it starts; None is where the parent is then."""


class WorkerProcess:
    """A started worker: wait until it is ready, then run one call after another.

    Raises OSError where the system gives no further process.
    """

    def __init__(self, settings: WorkerSettings) -> None:
        self.num_calls = 0
        self._settings = settings
        self._lock = threading.RLock()
        self._killed: str | None = None
        self._buffer = bytearray()
        self._num_taken = 0
        self._is_watched = settings.memory_mb is not None and settings.memory != "address_space"
        self.is_ready = False
        self._spawned = time.monotonic()
        folder = settings.folder if os.path.isdir(settings.folder or "") else None
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            self._notes, their_notes = _pipe()
            ours.callback(os.close, self._notes)
            theirs.callback(os.close, their_notes)
            their_lifeline, self._lifeline = _pipe()
            ours.callback(os.close, self._lifeline)
            theirs.callback(os.close, their_lifeline)
            python = [sys.executable, "-I" if sys.flags.isolated else "-P"]
            self._process = subprocess.Popen(
                [*python, str(_WORKER), str(their_notes), str(their_lifeline)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                pass_fds=(their_notes, their_lifeline),
                start_new_session=True,
                cwd=folder,
                env={**os.environ, **_ONE_THREAD},
            )
            ours.pop_all()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests = self._process.stdin.fileno()
        self._answers = self._process.stdout.fileno()
        for descriptor in (self._requests, self._answers, self._notes):
            os.set_blocking(descriptor, False)
        self._arrival = select.poll()
        self._arrival.register(self._answers, select.POLLIN)
        hello = {
            "target": settings.target,
            "memory_mb": settings.memory_mb,
            "memory": settings.memory,
            "is_factory": settings.is_factory,
            "argument": settings.argument,
            "path": _import_path(folder),
        }
        self._send(
            b"0 %s\n" % json.dumps(hello).encode(), self._spawned + settings.start_deadline_s
        )

    def wait_ready(self, within_s: float | None = None) -> Outcome:
        """Wait until the target is imported; ``error`` is one of the import."""
        seconds = within_s or self._settings.start_deadline_s
        if (line := self._receive(self._spawned + seconds)) is None:
            return self._overrun(f"not ready within {seconds:g} s", self._spawned)
        outcome = self._read(line, "0")
        self.is_ready = outcome.status is OutcomeStatus.OK
        if self.is_ready:
            self._is_watched = self._is_watched and outcome.value == "resident"
        return outcome

    def is_quiet(self) -> bool:
        """Whether nothing has come from it: a ready worker without a call is silent and alive."""
        return not self._arrival.poll(0)

    def run(self, text: str, deadline_s: float | None = None) -> Outcome:
        """Call the function with an argument that is JSON text; kills the worker on overrun."""
        outcome = self._run(text, deadline_s or self._settings.deadline_s)
        if outcome.status is OutcomeStatus.OK:
            return outcome
        return replace(outcome, num_taken=self._num_taken)

    def _run(self, text: str, deadline_s: float) -> Outcome:
        settings = self._settings
        self.num_calls += 1
        self._num_taken = 0
        name = str(self.num_calls)
        sent = time.monotonic()
        taken_by = sent + settings.start_deadline_s
        if not self._send(b"%s %s\n" % (name.encode(), text.encode()), taken_by):
            return self._overrun("did not take the call", sent)
        taken: float | None = None
        until = time.monotonic() + deadline_s
        while (line := self._receive(until)) is None:
            taken = self._taken_at(self.num_calls, sent) or taken
            if taken is not None and until >= taken + deadline_s:
                return self._overrun(f"over its deadline of {deadline_s:g} s", taken)
            if taken is None and until >= taken_by:
                return self._overrun("did not take the call", sent)
            until = deadline_s + (until if taken is None else taken)
        self._taken_at(self.num_calls, sent)  # keeps that pipe from filling
        return self._read(line, name)

    def finish(self) -> None:
        """Tell an idle worker that no call will come: it lets the function close and ends."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def wait(self, seconds: float) -> None:
        """Give a process that was told to finish that much time."""
        with self._lock, contextlib.suppress(subprocess.TimeoutExpired):
            if self._killed is None:
                self._process.wait(seconds)

    def kill(self, cause: str) -> None:
        """Kill the process and those it started, and reap it; the first cause is remembered."""
        with self._lock:
            if self._killed is not None:
                return
            self._killed = cause
            # Its id, and that of its group, stay taken until it is reaped.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def dispose(self) -> None:
        """Kill the process and close the pipes."""
        self.kill("disposed of")
        self._close()

    def forget(self) -> None:
        """In a forked child: let go of the parent's worker without touching it."""
        self._process.returncode = 0  # not ours to reap
        self._close()

    def _close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        os.close(self._notes)
        os.close(self._lifeline)

    def _send(self, data: bytes, until: float) -> bool:
        """Write it all; False at the time ``until``. That a worker is dead shows in its answer."""
        view = memoryview(data)
        while True:
            try:
                view = view[os.write(self._requests, view) :]
            except BlockingIOError:
                pass
            except BrokenPipeError:
                return True
            if not view:
                return True
            room = select.poll()
            room.register(self._requests, select.POLLOUT)
            if not room.poll(_milliseconds(until)):
                return False

    def _receive(self, until: float) -> bytes | None:
        """The next line; without a line's end where the worker fell silent; None at ``until``."""
        while self._wait_for_answer(until):
            chunk = os.read(self._answers, _CHUNK)
            self._buffer += chunk
            if not chunk or chunk.endswith(b"\n") or len(self._buffer) > _LONGEST_ANSWER:
                line = bytes(self._buffer)
                self._buffer.clear()
                return line
        return None

    def _wait_for_answer(self, until: float) -> bool:
        """Whether something can be read by then; kills a worker that outgrows its memory."""
        if not self._is_watched:
            return bool(self._arrival.poll(_milliseconds(until)))
        limit = self._settings.memory_mb
        assert limit is not None
        while not self._arrival.poll(min(_milliseconds(until), _WATCH_MS)):
            if _resident_mb(self._process.pid) > limit:
                self.kill(f"over its memory limit of {limit} MiB")  # which ends its answers
            elif time.monotonic() >= until:
                return False
        return True

    def _read(self, line: bytes, name: str) -> Outcome:
        """The outcome that a line tells of, where it answers this very call."""
        if not line.endswith(b"\n"):
            if len(line) > _LONGEST_ANSWER:
                self.kill(f"its answer is longer than {_LONGEST_ANSWER >> 20} MiB")
            return self._died()
        found, _, text = line.partition(b" ")
        try:
            status, seconds, value = json.loads(text)
            if found != name.encode() or status not in ("ok", "error"):
                raise ValueError("it answers no call of ours")
        except (ValueError, TypeError, RecursionError):
            self.kill("it wrote into its answers")
            return self._died()
        if status == "ok":
            return Outcome(status=OutcomeStatus.OK, value=value, seconds=seconds)
        return Outcome(status=OutcomeStatus.ERROR, error=value, seconds=seconds)

    def _overrun(self, cause: str, since: float) -> Outcome:
        seconds = time.monotonic() - since
        self.kill(cause)
        if self._process.returncode != -signal.SIGKILL:  # it had ended; a child of it kept the pipe
            return Outcome(status=OutcomeStatus.DIED, error=self._exit_cause(), seconds=seconds)
        return Outcome(status=OutcomeStatus.TIMEOUT, error=cause, seconds=seconds)

    def _died(self) -> Outcome:
        """Why there was no answer. A process that is ending keeps the code that it ends with."""
        self.kill("")
        return Outcome(status=OutcomeStatus.DIED, error=self._killed or self._exit_cause())

    def _exit_cause(self) -> str:
        code = self._process.returncode
        if code == MEMORY_EXIT:
            limit = self._settings.memory_mb
            return "out of memory" if limit is None else f"over its memory limit of {limit} MiB"
        if code >= 0:
            return f"the worker left with exit code {code}"
        try:
            return f"the worker was killed by signal {-code} ({signal.Signals(-code).name})"
        except ValueError:
            return f"the worker was killed by signal {-code}"

    def _taken_at(self, number: int, sent: float) -> float | None:
        """When the worker took up this call, or its last item since; None where it is silent."""
        try:
            notes = os.read(self._notes, _CHUNK)
        except BlockingIOError:
            return None
        if len(notes) >= TAKEN.size:
            found, taken = TAKEN.unpack(notes[-TAKEN.size :])
            if found == number and sent <= taken <= time.monotonic():
                self._num_taken += len(notes) // TAKEN.size
                return float(taken)
        return sent  # the function wrote here as well, so it does run


def _pipe() -> tuple[int, int]:
    """A pipe beyond descriptors 0 to 2, which a program may have closed, but not its child."""
    ends = os.pipe()
    if min(ends) > 2:
        return ends
    try:
        reader, writer = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 3) for end in ends)
    finally:
        os.close(ends[0])
        os.close(ends[1])
    return reader, writer


def _resident_mb(pid: int) -> float:
    """The resident size of a process, 0 where the system does not tell."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except (OSError, IndexError):
        return 0.0
    return int(pages) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def _milliseconds(until: float) -> int:
    return max(0, math.ceil((until - time.monotonic()) * 1000))


def _import_path(folder: str | None) -> list[str]:
    """Where the worker looks for modules: as the parent, but nothing shadows the standard library.

    The standard library comes first; the parent's ``""`` (the worker's own folder, or wherever the
    parent is now) comes last.
    """
    library = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
    library = [*library, *(os.path.join(folder, "lib-dynload") for folder in library)]
    path = [entry for entry in sys.path if isinstance(entry, str)]
    rest = [entry for entry in path if entry and entry not in library]
    here = []
    if "" in path:
        with contextlib.suppress(OSError):  # a folder that is no longer there
            here = [folder or os.getcwd()]
    return [*(entry for entry in path if entry in library), *rest, *here]
