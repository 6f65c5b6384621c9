"""How a reward asks a model server: the house's client, and patience that makes sense."""

from __future__ import annotations

import math

from rlgym_llm.errors import UserError
from rlgym_llm.http_endpoint import Endpoint, EndpointError, EndpointTimeoutError, check_url, run

__all__ = [
    "Endpoint",
    "EndpointError",
    "EndpointTimeoutError",
    "check_patience",
    "check_url",
    "run",
]


def check_patience(
    reward: str, *, retries: int, request_timeout_s: float, backoff_s: float
) -> None:
    """Raises UserError unless attempts, their time and the wait between them make sense."""
    if retries < 0:
        raise UserError(f"reward {reward!r}: retries is at least 0, not {retries}")
    if not (math.isfinite(request_timeout_s) and request_timeout_s > 0):
        raise UserError(
            f"reward {reward!r}: request_timeout_s is a time above 0, not {request_timeout_s:g}"
        )
    if not (math.isfinite(backoff_s) and backoff_s >= 0):
        raise UserError(f"reward {reward!r}: backoff_s is 0 or more seconds, not {backoff_s:g}")
