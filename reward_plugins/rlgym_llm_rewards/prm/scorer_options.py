"""Which options belong to which scorer, so that none is taken and then left unread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING

from rlgym_llm.errors import ConfigError

if TYPE_CHECKING:
    from rlgym_llm_rewards.prm.reward import PRM

__all__ = ["check_scorer_options"]

_MODEL = (
    *("model", "head", "separator", "template", "batch_size"),
    *("max_length", "dtype", "device", "trust_remote_code"),
)
_SERVER = (
    *("url", "api", "model", "concurrency"),
    *("api_key_env", "retries", "request_timeout_s", "backoff_s"),
)
_POOLING = (*_SERVER, "separator", "template", "label")
_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "function": ("function",),
    "model with head: token": (*_MODEL, "label"),
    "model with head: causal": (*_MODEL, "good", "bad"),
    "url with api: pooling": _POOLING,
    "url with api: pooling and a template": (*_POOLING, "batch_size"),
    "url with api: steps": (*_SERVER, "batch_size"),
}
_OF_A_SCORER = frozenset(name for names in _OPTIONS.values() for name in names)


def check_scorer_options(prm: PRM) -> None:
    """Raises ConfigError for an option that another scorer has, or an ``eta`` that nothing reads.

    A value that is the option's default passes, for it says nothing.
    """
    scorer = _scorer(prm)
    used = _OPTIONS[scorer]
    for field in fields(prm):
        name = field.name
        if name not in _OF_A_SCORER or name in used or getattr(prm, name) == field.default:
            continue
        owners = [owner for owner, names in _OPTIONS.items() if name in names]
        raise ConfigError(
            f"reward 'prm': {name} is an option of {', or '.join(owners)}, not of {scorer}"
        )
    if prm.eta != 0.0 and "clip" not in prm.transform:
        raise ConfigError(
            "reward 'prm': eta is an option of transform clip and clip_delta, not of "
            f"{prm.transform}"
        )


def _scorer(prm: PRM) -> str:
    if prm.function is not None:
        return "function"
    if prm.url is None:
        return f"model with head: {prm.head}"
    if prm.api == "steps":
        return "url with api: steps"
    return f"url with api: pooling{'' if prm.template is None else ' and a template'}"
