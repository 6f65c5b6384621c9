"""Columns on the command line: ``--map FIELD=COLUMN``."""

from __future__ import annotations

from collections.abc import Sequence

from rlgym_llm.errors import UserError

__all__ = ["read_mapping"]


def read_mapping(flags: Sequence[str]) -> dict[str, str]:
    """The columns by field. Raises UserError for a flag of no such form, or a field given twice.

    >>> read_mapping(["completion=response", "answer=reward_model.ground_truth"])
    {'completion': 'response', 'answer': 'reward_model.ground_truth'}
    """
    found: dict[str, str] = {}
    for flag in flags:
        field, equals, column = flag.partition("=")
        if not (field and equals and column):
            raise UserError(f"--map takes FIELD=COLUMN, such as completion=response, not {flag!r}")
        if field in found:
            raise UserError(
                f"--map {field} is given twice, as {found[field]!r} and as {column!r}; keep one"
            )
        found[field] = column
    return found
