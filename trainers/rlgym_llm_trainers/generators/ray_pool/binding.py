"""Cores of its own for each generator's process, so that none takes another's."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from rlgym_llm.config_rollout import RolloutConfig
from rlgym_llm.cores import num_cores
from rlgym_llm.errors import ConfigError

__all__ = ["bind_process", "check_binding"]

_THREADS = Path("/proc/self/task")


def bind_process(cores: Sequence[int]) -> None:
    """Keeps all threads of this process on ``cores``, and those that they will start."""
    # By thread: the system binds no process, and Ray's event loop is there before we are.
    for thread in [*map(int, os.listdir(_THREADS)), 0]:
        with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
            os.sched_setaffinity(thread, cores)


def check_binding(rollout: RolloutConfig, device: str, *, is_own: bool) -> None:
    """Raises ConfigError where ``rollout.workers.bind_cores`` is asked for and cannot be had.

    Args:
        rollout: the run's.
        device: type of the generators' device, ``cpu`` or ``cuda``.
        is_own: whether Ray is the run's own, on this machine.
    """
    workers = rollout.workers
    if not workers.bind_cores:
        return
    reason = None
    each = max(1, int(workers.num_cpus))
    if not hasattr(os, "sched_setaffinity"):
        reason = "only Linux binds a process to cores"
    elif device != "cpu":
        reason = f"is for generators on a CPU, and the run is on {device}"
    elif not is_own:
        reason = "is for a Ray that the run starts itself; leave --rollout.workers.address out"
    elif rollout.num_workers * each > num_cores():
        reason = (
            f"--rollout.num_workers {rollout.num_workers} with {each} of their own each need "
            f"{rollout.num_workers * each} cores, this machine has {num_cores()}; take fewer, or "
            "lower --rollout.workers.num_cpus"
        )
    if reason is not None:
        raise ConfigError(f"--rollout.workers.bind_cores true: {reason}")
