"""Makes the virtual environment of a peer, so that its dependencies meet nobody else's."""

from __future__ import annotations

import shutil
import subprocess
import venv
from collections.abc import Iterable, Sequence
from pathlib import Path

__all__ = ["InstallError", "peer_environment"]


class InstallError(Exception):
    """A peer that does not install; holds what pip said."""


def peer_environment(home: Path, calls_of_pip: Iterable[Sequence[str]]) -> Path:
    """The interpreter of the environment ``home``, made now if it is not there.

    ``calls_of_pip`` are what ``pip install`` is called with, one after the other. Raises
    InstallError, and leaves nothing behind, where one fails.
    """
    python = home.absolute() / "bin" / "python"
    if python.exists():
        return python
    venv.create(home, with_pip=True)
    for requirements in calls_of_pip:
        command = [str(python), "-m", "pip", "install", "--quiet", *requirements]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            shutil.rmtree(home)
            raise InstallError(done.stderr)
    return python
