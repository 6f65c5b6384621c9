"""The layouts that rows can be written in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rlgym_llm.layouts.layout import Layout, Sample
from rlgym_llm.layouts.rows import messages_row, rlgym_row, trl_row, verl_dump_row
from rlgym_llm.layouts.table import TABLE_TYPES, table_row
from rlgym_llm.layouts.verl import to_verl

__all__ = ["TARGETS", "Target"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One layout to write: how a sample becomes a row of it, and what it must have for that."""

    to_row: Callable[[Sample, Layout, int], Mapping[str, Any]]
    """Of a sample, the layout it was read by, and how many rows came before."""
    needs: tuple[str, ...] = ("prompt",)
    is_exact: bool = False
    """Whether JSON text in a parquet column is better than a type that others expect."""
    types: Mapping[str, str] = field(default_factory=dict)


TARGETS: Final[Mapping[str, Target]] = {
    "rlgym": Target(to_row=lambda sample, layout, _: rlgym_row(sample, layout), is_exact=True),
    "table": Target(
        to_row=lambda sample, layout, _: table_row(sample, layout),
        needs=("completion",),
        types=TABLE_TYPES,
    ),
    "verl": Target(
        to_row=lambda sample, layout, index: to_verl(rlgym_row(sample, layout), index),
        types={"data_source": "string", "ability": "string"},
    ),
    "verl-dump": Target(
        to_row=lambda sample, layout, _: verl_dump_row(rlgym_row(sample, layout)),
        needs=("prompt", "completion"),
    ),
    "trl": Target(to_row=lambda sample, layout, _: trl_row(rlgym_row(sample, layout))),
    "messages": Target(to_row=lambda sample, layout, _: messages_row(rlgym_row(sample, layout))),
}
"""The layouts that can be written: ours, the wide table, verl's two, TRL's, conversations."""
