"""Workers in processes of their own, which get ready while the command reads what is asked."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlgym_llm.errors import RlgymError
from rlgym_llm.sandbox import LONGEST_S, Outcome, Sandbox

__all__ = ["SandboxWorkers"]


class SandboxWorkers:
    """A sandbox of chunk scorers, to be closed.

    What a worker imports takes most of a short run's time, and it is known before anything else
    is: so they start when this is made, and wait for the settings, which `begin` gives them.
    """

    def __init__(self, *, num_workers: int, timeout_s: float, memory_mb: int | None) -> None:
        self.num_workers = num_workers
        self._folder = Path(tempfile.mkdtemp(prefix="rlgym-score-"))
        self._settings = self._folder / "settings.json"
        self._sandbox = Sandbox(
            "rlgym_llm.offline.worker:open_scorer",
            factory_argument=str(self._settings),
            num_workers=num_workers,
            deadline_s=timeout_s,
            memory_mb=memory_mb,
            memory="auto",
            start_deadline_s=LONGEST_S,
            folder=os.getcwd(),
            max_calls=1 << 40,  # a call is a chunk, and a worker is as good after many
        )
        threading.Thread(target=self._warm, daemon=True).start()

    def begin(self, settings: str) -> None:
        """Gives the workers the settings that they wait for, as JSON."""
        draft = self._folder / "settings.tmp"
        draft.write_text(settings)
        draft.replace(self._settings)

    def call(self, request: Mapping[str, Any]) -> Outcome:
        """One request to the next free worker; what it does wrong is in the outcome."""
        return self._sandbox.call(request)

    def close(self) -> None:
        """Ends the workers; safe to call twice."""
        self._sandbox.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _warm(self) -> None:
        # One that does not start says so again to whoever calls it.
        with contextlib.suppress(RlgymError):
            self._sandbox.warm()
