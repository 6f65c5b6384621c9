"""What the tests of the sandbox run inside it: ``act([verb, argument])``."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

NOT_CALLABLE = 3


def act(order: list[Any]) -> Any:
    verb, argument = order
    return VERBS[verb](argument)


def spin(_: Any) -> None:
    while True:
        pass


def hold_interpreter(_: Any) -> int:
    return pow(9, 9**9) % 10  # one call into C, for hours


def write_everywhere(_: Any) -> None:
    for descriptor in range(3, 32):
        try:
            os.write(descriptor, b'1 ["ok", 0.0, "forged"]\n' * 2)
        except OSError:
            continue


def write_later(seconds: float) -> str:
    def write() -> None:
        time.sleep(seconds)
        write_everywhere(None)

    threading.Thread(target=write, daemon=True).start()
    return "written later"


def fork_and_return(_: Any) -> str:
    if os.fork() == 0:
        return "child"
    return "parent"


def fork_and_die(_: Any) -> None:
    if os.fork() == 0:
        time.sleep(60)
    os._exit(7)


def start_child(_: Any) -> int:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid


def start_child_and_spin(path: str) -> None:
    with open(path, "w") as file:
        file.write(str(start_child(None)))
    spin(None)


def meet(appointment: list[Any]) -> bool:
    """Wait until so many others are in the folder too."""
    folder, number, count = appointment
    open(os.path.join(folder, str(number)), "w").close()
    while len(os.listdir(folder)) < count:
        time.sleep(0.01)
    return True


def nest(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def raise_unspeakable(_: Any) -> None:
    raise UnspeakableError


def raise_lines(_: Any) -> None:
    raise ValueError("one\ntwo" + "x" * 10_000)


def flood(_: Any) -> None:
    block = b"x" * (1 << 20)
    for descriptor in range(3, 32):
        try:
            while True:
                os.write(descriptor, block)
        except OSError:
            continue


def call_in_child(sandbox: Any, connection: Any) -> None:
    """What a process of multiprocessing runs: calls, one of which overruns."""
    orders = [["echo", number] for number in range(20)] + [["spin", None], ["echo", "last"]]
    outcomes = [sandbox.call(order) for order in orders]
    pid = sandbox.call(["pid", None]).value
    connection.send([pid, [outcome.value for outcome in outcomes], outcomes[20].status])
    connection.close()


VERBS: dict[str, Callable[[Any], Any]] = {
    "call_exit": sys.exit,
    "close_pipes": lambda _: os.closerange(3, 32),
    "echo": lambda argument: argument,
    "eat": lambda megabytes: len(bytearray(megabytes << 20)),
    "environ": lambda name: os.environ.get(name),
    "exit": os._exit,
    "flood": flood,
    "fork_and_die": fork_and_die,
    "fork_and_return": fork_and_return,
    "hold_interpreter": hold_interpreter,
    "kill": lambda number: os.kill(os.getpid(), number),
    "limits": lambda _: [resource.getrlimit(resource.RLIMIT_AS), os.getsid(0) == os.getpid()],
    "long": lambda length: "ü" * length,
    "meet": meet,
    "module": lambda name: getattr(sys.modules.get(name), "__file__", None),
    "nest": nest,
    "number": lambda text: float(text),
    "pid": lambda _: os.getpid(),
    "print": print,
    "raise_lines": raise_lines,
    "raise_unspeakable": raise_unspeakable,
    "read": lambda _: sys.stdin.read() + os.read(0, 9).decode(),
    "segfault": lambda _: ctypes.string_at(0),
    "set": lambda _: {1, 2},
    "sleep": time.sleep,
    "spin": spin,
    "start_child": start_child,
    "start_child_and_spin": start_child_and_spin,
    "sum": sum,
    "write": lambda text: os.write(1, text.encode()),
    "write_everywhere": write_everywhere,
    "write_later": write_later,
}
