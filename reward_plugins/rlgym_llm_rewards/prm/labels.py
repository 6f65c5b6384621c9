"""Labels of steps as labels of tokens, to train a process reward model on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlgym_llm.errors import DataError

__all__ = ["IGNORED", "check_labels", "prm_labels"]

IGNORED = -100
"""The label that a cross-entropy loss leaves out, in PyTorch and therefore everywhere."""


def prm_labels(
    step_labels: Sequence[int | bool], step_end_tokens: Sequence[int], num_tokens: int
) -> NDArray[np.int64]:
    """One integer label per token, ``[T]``: the step's on its last token, -100 on all others.

    Data sets hold step labels as booleans, and a column that stays boolean turns -100 into True
    and trains on every token; so the labels are written as int64 here, whatever they came as.

    Two steps, wrong and right, that end on tokens 1 and 4 of 6:

    >>> prm_labels([False, True], [1, 4], 6).tolist()
    [-100, 0, -100, -100, 1, -100]

    Raises DataError for labels other than 0 and 1, and for steps that do not fit the tokens.
    """
    if len(step_labels) != len(step_end_tokens):
        raise DataError(f"{len(step_labels)} step labels for {len(step_end_tokens)} steps")
    labels = np.full(num_tokens, IGNORED, dtype=np.int64)
    last = -1
    for label, token in zip(step_labels, step_end_tokens, strict=True):
        if label not in (0, 1):
            raise DataError(f"step label {label!r} is neither 0 (wrong) nor 1 (right)")
        if not last < token < num_tokens:
            raise DataError(f"a step ends on token {token}, after {last}, of {num_tokens} tokens")
        labels[token] = int(label)
        last = token
    return labels


def check_labels(labels: Any) -> NDArray[np.int64]:
    """The token labels as int64. Raises DataError for a boolean column, or any but integers.

    >>> check_labels([True, False])
    Traceback (most recent call last):
        ...
    rlgym_llm.errors.DataError: token labels are bool, where -100 (ignored) reads as True; keep \
the column as integers
    """
    array = np.asarray(labels)
    if array.dtype == np.bool_:
        raise DataError(
            f"token labels are bool, where {IGNORED} (ignored) reads as True; keep the column as "
            "integers"
        )
    if not np.issubdtype(array.dtype, np.integer):
        raise DataError(f"token labels are {array.dtype}; they are integers, {IGNORED} for ignored")
    return array.astype(np.int64)
