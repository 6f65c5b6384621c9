"""The peers of the verifier benchmark: their environments, and each side's process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from threading import Timer
from typing import IO

from peer_environment import InstallError, peer_environment

MATH_VERIFY = "math-verify[antlr4_13_2]==0.9.0"
PEERS: dict[str, tuple[tuple[str, ...], ...]] = {
    "math-verify": ((MATH_VERIFY,),),
    "inspect-ai": (("inspect-ai==0.3.285", "latex2sympy2_extended[antlr4_13_2]==1.11.0"),),
    "nemo-skills": (
        (MATH_VERIFY, "rich"),
        # its dependencies run clusters; the grader needs none of them
        ("--no-deps", "git+https://github.com/NVIDIA-NeMo/Skills.git"),
    ),
}
"""What ``pip install`` is called with, one call after the other."""
START_LIMIT_S = 120.0


class SideError(Exception):
    """A side that cannot be made or started, and why."""


def make_peer(folder: Path, name: str) -> Path:
    """The interpreter of the peer's environment ``folder/name``, made now if it is not there."""
    try:
        return peer_environment(folder / name, PEERS[name])
    except InstallError as failure:
        raise SideError(f"{name} does not install: {_cause(str(failure))}") from None


@dataclass(frozen=True, slots=True)
class Reply:
    """What a side answered for a batch of rows."""

    seconds: float
    statuses: list[str]


@dataclass(slots=True)
class Side:
    """A grader in a process of its own, which is killed where it takes too long.

    It inherits the benchmark's one core, and so do the workers it starts.
    """

    name: str
    python: Path
    folder: Path
    """Where it runs, so that a payload leaves its marker there."""
    version: str = ""
    _process: subprocess.Popen[str] = field(init=False, repr=False)
    _errors: IO[str] = field(init=False, repr=False)

    def start(self) -> None:
        """Starts the process and waits until it is warm."""
        script = Path(__file__).absolute().with_name("verifier_sides.py")
        self._errors = (self.folder / f"{self.name}.log").open("w+")
        self._process = subprocess.Popen(
            [str(self.python), str(script), self.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=self.folder,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,  # one group to kill, workers and all
        )
        line = self._read_line("", START_LIMIT_S)
        if not line:
            self.stop()
            raise SideError(f"{self.name} does not start: {_cause(self._log())}")
        self.version = json.loads(line)["version"]

    def ask(self, rows: list[tuple[str, str]], *, bare: bool, limit_s: float) -> Reply | None:
        """The statuses of the rows, or None where the side died or ran past the limit."""
        line = self._read_line(json.dumps({"rows": rows, "bare": bare}) + "\n", limit_s)
        if line:
            return Reply(**json.loads(line))
        self.restart()
        return None

    def restart(self) -> None:
        """Starts it afresh."""
        self.stop()
        self.start()

    def stop(self) -> None:
        """Ends the process and all that it started."""
        _kill(self._process)
        self._process.wait()

    def _read_line(self, request: str, limit_s: float) -> str:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        timer = Timer(limit_s, _kill, (self._process,))
        timer.start()
        try:
            stdin.write(request)
            stdin.flush()
            return stdout.readline()
        except BrokenPipeError:
            return ""
        finally:
            timer.cancel()

    def _log(self) -> str:
        self._errors.seek(0)
        return self._errors.read()


def our_side(folder: Path) -> Side:
    """The side that is measured, under this interpreter."""
    return Side("ours", Path(sys.executable), folder)


def _kill(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


def _cause(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    told = [line for line in lines if line.startswith(("fatal:", "ERROR:"))]
    return (told or lines[-1:] or ["it said nothing"])[0]
