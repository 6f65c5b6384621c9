"""Which tasks a step trains on: a pure function of the step."""

from __future__ import annotations

import numpy as np

__all__ = ["epoch_of", "task_indices"]


def epoch_of(step: int, *, num_tasks: int, batch_size: int) -> int:
    """The epoch, from 0, that optimization step ``step`` (from 1) belongs to.

    The last tasks of an epoch that fill no batch are dropped: with 10 tasks in batches of 4,
    steps 1 and 2 are epoch 0 and step 3 opens epoch 1.
    """
    return (step - 1) // (num_tasks // batch_size)


def task_indices(
    step: int, *, num_tasks: int, batch_size: int, seed: int, shuffle: bool = True
) -> list[int]:
    """Indices of the ``batch_size`` tasks of step ``step`` (from 1), without repeats in an epoch.

    Every epoch has an order of its own, drawn from (seed, epoch). With ``shuffle=False``,
    10 tasks and batches of 4, step 2 takes [4, 5, 6, 7] and step 3 [0, 1, 2, 3] again.
    """
    steps_per_epoch = num_tasks // batch_size
    if steps_per_epoch < 1:
        raise ValueError(f"{num_tasks} tasks do not fill a batch of {batch_size}")
    epoch, place = divmod(step - 1, steps_per_epoch)
    order = np.arange(num_tasks)
    if shuffle:
        order = np.random.Generator(np.random.Philox(key=[seed, epoch])).permutation(num_tasks)
    return [int(i) for i in order[place * batch_size : (place + 1) * batch_size]]
