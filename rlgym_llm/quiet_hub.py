"""Keeps the client of the Hugging Face hub from talking while something is loaded."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["quiet_hub"]


@contextmanager
def quiet_hub() -> Iterator[None]:
    """Within it the client's log shows errors only; its level is put back.

    The client tells of every retry, and whoever asks the hub says in one line what came of it.
    """
    log = logging.getLogger("huggingface_hub")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)
