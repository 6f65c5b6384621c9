"""Rows of a data set of the Hugging Face hub, or of its cache."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rlgym_llm.errors import DataError, UserError, did_you_mean
from rlgym_llm.quiet_hub import quiet_hub

__all__ = ["hub_rows", "load_from_hub", "parse_address"]


def parse_address(address: str) -> tuple[str, str | None, str | None]:
    """``OWNER/NAME[:CONFIG[:SPLIT]]`` as (name, config, split); an empty part is left open.

    >>> parse_address("openai/gsm8k:main:test"), parse_address("owner/name::train")
    (('openai/gsm8k', 'main', 'test'), ('owner/name', None, 'train'))
    """
    name, config, split = (*address.split(":"), "", "")[:3]
    if not name or address.count(":") > 2:
        raise UserError(f"hf:{address} is not hf:OWNER/NAME[:CONFIG[:SPLIT]]")
    return name, config or None, split or None


def load_from_hub(
    what: str, name: str, config: str | None, *, ways_out: str = "", **options: Any
) -> Any:
    """What ``datasets.load_dataset`` gives, from the hub or its cache.

    Whatever fails is one DataError about ``what``, which ends in the further ``ways_out``.
    """
    try:
        import datasets
    except ImportError as error:
        install = "pip install 'rlgym-llm[train]'"
        hint = f" ({install}): {ways_out}" if ways_out else f": {install}"
        raise DataError(f"{what} needs the package datasets{hint}") from error
    try:
        with quiet_hub():
            return datasets.load_dataset(name, config, **options)
    except Exception as error:
        reason = str(error).partition("\n")[0]
        hint = f": {ways_out}" if ways_out else ""
        raise DataError(f"{what} cannot be had from the hub ({reason}){hint}") from error


def hub_rows(address: str) -> Iterable[Mapping[str, Any]]:
    """The rows, read from disk as they are gone through; without a split the training split.

    A set that is not in the cache is downloaded first. Raises DataError where the package
    ``datasets`` is missing, the set cannot be had, or no split of it is meant.
    """
    name, config, split = parse_address(address)
    found = load_from_hub(f"hf:{address}", name, config)
    if split is None:
        split = "train" if "train" in found or len(found) != 1 else next(iter(found))
    if split not in found:
        hint = did_you_mean(split, found)
        raise DataError(f"hf:{address} has no split {split!r}{hint} (splits: {', '.join(found)})")
    rows: Iterable[Mapping[str, Any]] = found[split]
    return rows
