"""Tasks drawn at random, in splits that share none."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from functools import partial
from typing import Final, Literal, get_args

from rlgym_llm.errors import UserError
from rlgym_llm.tasks import GeneratorTasks
from rlgym_llm.types import Task

__all__ = ["Draw", "DrawnSplit", "drawn_tasks"]

Draw = Callable[[int, random.Random], Task]
"""Makes one task at random for an index: ``draw(index, rng)``, with chance from ``rng`` alone."""

DrawnSplit = Literal["train", "val", "example"]
"""The parts that drawn tasks fall into; ``example`` holds what is shown solved in a prompt."""

_SPLIT_SHARES: Final = ("val", "val", "example", *["train"] * 13)
_MAX_DRAWS: Final = 1000


def drawn_tasks(
    draw: Draw, *, num_tasks: int, seed: int = 0, split: DrawnSplit = "train"
) -> GeneratorTasks:
    """Tasks drawn at random, of which no two splits share one.

    A task belongs to one split by the hash of its id: 13 in 16 to ``train``, 2 to ``val``, 1 to
    ``example``; what falls into another split is drawn again. Index, seed and split give the same
    task in any process; two indices may repeat one. ``draw`` is a module-level function, or a
    `functools.partial` of one, so that it pickles. Raises UserError for an unknown split and, when
    a task is asked for, where 1,000 draws in a row fall into other splits.

    >>> def draw(index, rng):
    ...     a, b = rng.randint(0, 99), rng.randint(0, 99)
    ...     return Task(prompt=f"{a} + {b} = ?", answer=str(a + b))
    >>> train = drawn_tasks(draw, num_tasks=1000)
    >>> val = drawn_tasks(draw, num_tasks=100, split="val")
    >>> {task.id for task in train} & {task.id for task in val}
    set()
    """
    if split not in get_args(DrawnSplit):
        raise UserError(f"split must be one of {', '.join(get_args(DrawnSplit))}, got {split!r}")
    return GeneratorTasks(partial(_drawn, draw=draw, split=split), num_tasks=num_tasks, seed=seed)


def _drawn(index: int, seed: int, *, draw: Draw, split: str) -> Task:
    digest = hashlib.sha256(f"{index}/{split}/{seed}".encode()).digest()
    rng = random.Random(int.from_bytes(digest[:8], "big"))
    for _ in range(_MAX_DRAWS):
        task = draw(index, rng)
        share = hashlib.sha256(task.id.encode()).digest()[0] % len(_SPLIT_SHARES)
        if _SPLIT_SHARES[share] == split:
            return task
    raise UserError(
        f"{_MAX_DRAWS} draws gave no task of the split {split}: there are too few different ones"
    )
