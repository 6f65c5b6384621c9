"""The parts of a data set, and of tasks that are drawn: what to train on, what to validate on."""

from __future__ import annotations

from typing import Literal, get_args

from rlgym_llm.check_argument import check_choice

__all__ = ["Split", "check_split", "drawn_size", "drawn_split"]

Split = Literal["train", "val", "test"]


def check_split(split: str) -> None:
    """Raises UserError for what is no split."""
    check_choice("split", split, get_args(Split))


def drawn_split(split: Split) -> Literal["train", "val"]:
    """Of tasks that are drawn, validation and test are the same.

    >>> drawn_split("test")
    'val'
    """
    return "train" if split == "train" else "val"


def drawn_size(split: Split, num_tasks: int | None = None) -> int:
    """How many tasks to draw: so many, or 4096 to train on and 200 otherwise.

    >>> drawn_size("train"), drawn_size("test"), drawn_size("test", 7)
    (4096, 200, 7)
    """
    default = 4096 if split == "train" else 200
    return default if num_tasks is None else num_tasks
