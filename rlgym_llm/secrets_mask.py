"""Hides what is named like a secret before a configuration is printed, saved or sent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["MASK", "is_secret_name", "mask_secrets"]

MASK = "***"
"""What stands for a secret in every dump."""

_SECRET = re.compile(
    r"(api|access|secret|private|auth|wandb|openai|hf|hub|bearer)_?(key|token)"
    r"|passwo?r?d|secret|credential|authorization|cookie|^token$",
    re.IGNORECASE,
)


def is_secret_name(name: str) -> bool:
    """Whether a key of this name holds a secret; the name of a variable that holds one is none.

    >>> [is_secret_name(n) for n in ("wandb_key", "API-KEY", "max_tokens", "api_key_env")]
    [True, True, False, False]
    """
    plain = name.replace("-", "_").lower()
    return not plain.endswith("_env") and _SECRET.search(plain) is not None


def mask_secrets(value: Any, *, is_secret: bool = False) -> Any:
    """The value with every text under a secret name replaced by ``***``; numbers stay.

    >>> mask_secrets({"url": "http://judge", "headers": {"Authorization": "Bearer zzz"}})
    {'url': 'http://judge', 'headers': {'Authorization': '***'}}
    """
    if isinstance(value, Mapping):
        return {
            key: mask_secrets(item, is_secret=is_secret or is_secret_name(str(key)))
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return type(value)(mask_secrets(item, is_secret=is_secret) for item in value)
    return MASK if is_secret and isinstance(value, str) else value
