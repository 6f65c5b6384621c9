"""Ray for a run: one started on this machine or joined by its address, quiet, and ended again."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import tempfile
import threading
import uuid
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rlgym_llm.errors import ConfigError, UserError, one_line

__all__ = ["Cluster", "open_cluster"]

_OBJECT_STORE_BYTES = 100 * 2**20
"""Requests and completions are small and weights go another way; Ray wants at least 75 MiB."""
_ANSWER_S = 10.0
"""Within which something must answer at the address of a cluster."""


class Cluster:
    """Ray, as this process is connected to it."""

    def __init__(self, *, is_own: bool, is_local: bool) -> None:
        self._is_own = is_own
        self.is_local = is_local
        """Whether it runs on this machine alone, for this process alone."""

    def resources(self) -> dict[str, float]:
        """What the cluster has in all, such as ``{"CPU": 8.0, "GPU": 1.0}``."""
        import ray

        found: dict[str, float] = ray.cluster_resources()
        return found

    def close(self) -> None:
        """Ends what `open_cluster` began, and only that; safe to call twice."""
        if self._is_own:
            import ray

            self._is_own = False
            ray.shutdown()


def open_cluster(address: str | None = None, *, num_cpus: int | None = None) -> Cluster:
    """Starts Ray on this machine, or joins the cluster at ``address``.

    What this process is connected to already is taken as it is, and left so by `Cluster.close`.

    Args:
        address: ``auto``, ``host:6379`` or ``ray://host:10001``; None starts one.
        num_cpus: cores that a started one has to give; None is what the machine has.

    Raises UserError where Ray is not installed and ConfigError where nobody answers.
    """
    if find_spec("ray") is None:
        raise UserError(
            "rollout.num_workers needs Ray, which is not installed: "
            "pip install 'rlgym-llm[train]', or take rollout.num_workers 0"
        )
    import ray

    if ray.is_initialized():
        return Cluster(is_own=False, is_local=False)
    logging.getLogger("ray").setLevel(logging.ERROR)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a run tells nobody about itself
    options: dict[str, Any] = {
        "address": address or "local",  # which starts one, whatever RAY_ADDRESS says
        "namespace": f"rlgym-llm-{uuid.uuid4().hex[:12]}",
        "log_to_driver": False,
        "configure_logging": False,
    }
    if address is None:
        options |= {
            "num_cpus": num_cpus or len(os.sched_getaffinity(0)),
            "include_dashboard": False,
            "object_store_memory": _OBJECT_STORE_BYTES,
        }
    else:
        _check_answers(address)
    try:
        with _own_signals(), _no_error_listener():
            ray.init(**options)
    except BaseException as error:  # Ray raises what its parts raise
        ray.shutdown()  # an interrupt finds it half open
        if not isinstance(error, Exception):
            raise
        where = "on this machine" if address is None else f"at rollout.workers.address {address}"
        raise ConfigError(f"no Ray {where}: {one_line(error, 300)}{_token_hint(error)}") from error
    return Cluster(is_own=True, is_local=address is None)


def _check_answers(address: str) -> None:
    """Raises ConfigError where nothing listens at ``address``; Ray itself tries for minutes."""
    where = os.environ.get("RAY_ADDRESS") or _known_here() if address == "auto" else address
    if not where:
        return  # Ray looks for one on this machine, and says at once where there is none
    parts = urlsplit(where if "://" in where else f"ray-node://{where}")
    try:
        host, port = parts.hostname, parts.port or 10001
        with socket.create_connection((host or "", port), timeout=_ANSWER_S):
            return
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"rollout.workers.address {address}: no Ray cluster answers there "
            f"({one_line(error, 300)}); start one with `ray start --head`, or leave the address out"
        ) from error


def _known_here() -> str:
    """The cluster that was last started on this machine, as Ray itself finds it; it may be gone."""
    try:
        return Path(tempfile.gettempdir(), "ray", "ray_current_cluster").read_text("utf-8").strip()
    except (OSError, ValueError):
        return ""


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Ray would take SIGTERM for itself, which ends a run with its work saved."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if before is not None:  # else it was set by no Python code
            signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _no_error_listener() -> Iterator[None]:
    """Ray would print to this process's output, whatever ``log_to_driver``, when an actor dies.

    The pool sees that itself. Where a later Ray has no such listener there is nothing to do.
    """
    from ray._private import worker

    listen = getattr(worker, "listen_error_messages", None)
    if listen is None:
        yield
        return
    worker.listen_error_messages = lambda *_: None
    try:
        yield
    finally:
        worker.listen_error_messages = listen


def _token_hint(error: BaseException | None) -> str:
    """Ray only says that it did not connect where it lacked the cluster's token."""
    while error is not None:
        if "AuthenticationError" in f"{type(error).__name__}: {error}":
            return (
                "; it asks for a token: set RAY_AUTH_MODE=token, with the token as RAY_AUTH_TOKEN "
                "or in ~/.ray/auth_token"
            )
        error = error.__cause__
    return ""
