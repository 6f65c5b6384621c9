"""The inner end of a sandbox: one function, called once for each line that comes in.

``rlgym_llm.sandbox_process`` runs this file by its path with ``python -P``, so neither the current
directory nor this package's modules can shadow the standard library, which is all it needs.

Every line is ``ID SPACE JSON``. In: the settings as line 0, then one argument a line. Out:
``[status, seconds, value or cause]`` under the same id; line 0 says that the target is imported,
and how the memory is bounded.
Both pipes are moved away from descriptors 0 and 1: what the function prints goes to stderr and it
reads an empty stdin. When it takes a call the worker notes id and time in a third pipe, which the
parent reads only where an answer is late: so the deadline runs from the start of the work, and a
call costs the parent no second awakening. A function that works through several items in one call
notes each as it takes it up, and its deadline starts anew.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import json
import os
import resource
import select
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, BinaryIO

__all__ = ["MEMORY_EXIT", "TAKEN", "main"]

MEMORY_EXIT = 86
"""Exit code of a worker that met its memory limit: after a MemoryError nothing in it is sound."""
TAKEN = struct.Struct("=qd")
"""A call that was taken: its id, and the time on ``time.monotonic``, one clock for the machine."""
_LONGEST_CAUSE = 500


def main() -> None:
    """Serve calls until the parent closes its end; arguments: fds of the notes and the lifeline."""
    notes, lifeline = (int(argument) for argument in sys.argv[1:])
    for descriptor in (notes, lifeline):
        os.set_inheritable(descriptor, False)
    _die_with_parent(lifeline)
    requests, answers = _own_pipes()
    _, _, line = requests.readline().partition(b" ")
    if not line.endswith(b"\n"):  # it died while it wrote
        _end_group()
    settings = json.loads(line)
    _go_first()
    if settings["memory"] == "address_space":
        _limit_memory(settings["memory_mb"])
    sys.argv[1:] = []
    sys.path[:] = settings["path"]
    number = 0

    def take() -> None:
        os.write(notes, TAKEN.pack(number, time.monotonic()))

    def bound(_: Any) -> str:
        if settings["memory"] == "auto" and "torch" not in sys.modules:
            _limit_memory(settings["memory_mb"])
            return "address_space"
        return "resident" if settings["memory"] == "auto" else str(settings["memory"])

    def load(settings: dict[str, Any]) -> Callable[[Any], Any]:
        found = _load(settings["target"])
        return _callable(found(settings["argument"], take)) if settings["is_factory"] else found

    function = _answer(answers, b"0", load, settings, show=bound)
    gc.collect()
    gc.freeze()  # what an import left behind need not be walked again after every call
    for line in requests:
        name, _, text = line.partition(b" ")
        number = int(name)
        take()
        _answer(answers, name, lambda text: function(json.loads(text)), text)
    if settings["is_factory"]:
        _close(function)
    _end_group()  # what the function has started goes too


def _answer(
    answers: int,
    name: bytes,
    work: Callable[[Any], Any],
    argument: Any,
    *,
    show: Callable[[Any], Any] = lambda value: value,
) -> Any:
    """Do the work and write what became of it: the one place where a failure turns into data."""
    pid = os.getpid()
    started = time.perf_counter()
    value = None
    try:
        value = work(argument)
        text = json.dumps(["ok", time.perf_counter() - started, show(value)])
    except MemoryError:
        os._exit(MEMORY_EXIT)
    except BaseException as error:  # also exit() and KeyboardInterrupt: data for the caller
        text = json.dumps(["error", time.perf_counter() - started, _cause(error)])
    if os.getpid() != pid:  # the function forked, and this is the child coming back from it
        os._exit(0)
    data = memoryview(b"%s %s\n" % (name, text.encode()))
    while data:
        data = data[os.write(answers, data) :]
    return value


def _cause(error: BaseException) -> str:
    """The error on one line, whatever its own ``__str__`` does."""
    try:
        text = " ".join(str(error).split())
    except BaseException:
        text = "(its message cannot be read)"
    name = type(error).__name__
    return f"{name}: {text[:_LONGEST_CAUSE]}" if text else name


def _load(target: str) -> Callable[..., Any]:
    # As `rlgym_llm.entry_point`, which this process does not import.
    module, _, attribute = target.partition(":")
    found: Any = importlib.import_module(module)
    for name in attribute.split("."):
        found = getattr(found, name)
    return _callable(found)


def _callable(found: Any) -> Callable[..., Any]:
    if not callable(found):
        raise TypeError(f"a {type(found).__name__} is no function")
    return found  # type: ignore[no-any-return]


def _close(function: Any) -> None:
    """Let what a factory made give back what it holds; nobody waits for what comes of it."""
    if callable(close := getattr(function, "close", None)):
        try:
            close()
        except BaseException as error:
            print(f"close raised {_cause(error)}", file=sys.stderr)


def _own_pipes() -> tuple[BinaryIO, int]:
    """Take the two pipes for ourselves and leave harmless files in their place."""
    while (nothing := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass  # a standard descriptor that the parent has closed is a harmless file here
    requests, answers = os.fdopen(os.dup(0), "rb"), os.dup(1)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    sys.stdout = sys.stderr
    return requests, answers


def _die_with_parent(lifeline: int) -> None:
    """End this process group when the other end of the lifeline closes: when the parent has died.

    On Linux the kernel itself sends SIGKILL, also where one long call into C keeps the interpreter
    busy. (PR_SET_PDEATHSIG would fire when the parent's *thread* that started us ends.) Elsewhere
    a thread waits, and gets its turn when such a call ends.
    """
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
        poller = select.poll()
        poller.register(lifeline, select.POLLIN)
        if poller.poll(0):  # it had died before
            _end_group()
    else:

        def wait() -> None:
            os.read(lifeline, 1)
            _end_group()

        threading.Thread(target=wait, daemon=True).start()


def _end_group() -> None:
    os.killpg(0, signal.SIGKILL)


def _go_first() -> None:
    """Leave no core file; be the first to go when the machine's memory is short."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def _limit_memory(memory_mb: int | None) -> None:
    """Bound the address space.

    RLIMIT_AS counts every mapping; RLIMIT_DATA would let shared anonymous ones pass.
    """
    if memory_mb is None:
        return
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = memory_mb << 20
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    # macOS refuses a limit below what is already mapped, and enforces none.
    with contextlib.suppress(*(() if sys.platform == "linux" else (ValueError, OSError))):
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    try:
        main()
    except MemoryError:
        os._exit(MEMORY_EXIT)
    except OSError:  # the parent has closed the pipes, or the function has
        _end_group()
