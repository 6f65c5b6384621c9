"""Which tasks a step trains on: in epochs, a pure function of the step; or by shares."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from rlgym_llm.config_schema import CurriculumConfig, DataConfig
from rlgym_llm.curriculum import ShareSampler, SuccessCurriculum, TaskSampler, kinds_of_tasks
from rlgym_llm.env import TextEnv
from rlgym_llm.errors import ConfigError
from rlgym_llm.mixture import Mixture
from rlgym_llm.types import Task

__all__ = [
    "EpochOrder",
    "choose_sampler",
    "epoch_of",
    "further_tasks",
    "task_indices",
    "tasks_mark",
]

_APART = 1_000_003
"""Steps between a step and what is drawn for it further: a prime, so that without shuffling each
draw is of another batch."""


def choose_sampler(
    config: DataConfig, env: TextEnv, tasks: Sequence[Task], *, seed: int
) -> TaskSampler:
    """What draws the training tasks: epochs, or shares for a mixture and under a curriculum.

    Raises ConfigError for a curriculum over tasks that are all of one kind.
    """
    is_mixture = isinstance(env, Mixture)
    curriculum = _curriculum(config.curriculum, env)
    if not is_mixture and curriculum is None:
        return EpochOrder(len(tasks), seed=seed, shuffle=config.shuffle)
    kinds, shares = kinds_of_tasks(tasks, env.weights if isinstance(env, Mixture) else None)
    if not is_mixture and len(shares) < 2:
        raise ConfigError(
            "--data.curriculum.type success: the tasks are all of one kind; a curriculum needs "
            "tasks of several levels (task.info['level']), or a mixture"
        )
    if not config.shuffle:
        raise ConfigError(
            "--data.shuffle false: the tasks of a mixture or a curriculum are drawn by shares"
        )
    return ShareSampler(kinds, shares=shares, curriculum=curriculum, seed=seed)


def _curriculum(config: CurriculumConfig, env: TextEnv) -> SuccessCurriculum | None:
    if config.type == "success":
        return SuccessCurriculum(
            target=config.target, width=config.width, window=config.window, floor=config.floor
        )
    own: SuccessCurriculum | None = getattr(env, "curriculum", None)
    return own if config.type == "auto" else None


class EpochOrder:
    """Every task once an epoch, in an order of its own; see `task_indices`."""

    def __init__(self, num_tasks: int, *, seed: int, shuffle: bool = True) -> None:
        self._num_tasks = num_tasks
        self._seed = seed
        self._shuffle = shuffle

    def draw(self, step: int, num_tasks: int) -> list[int]:
        """As `TaskSampler.draw`."""
        return task_indices(
            step,
            num_tasks=self._num_tasks,
            batch_size=num_tasks,
            seed=self._seed,
            shuffle=self._shuffle,
        )

    def observe(self, step: int, indices: Sequence[int], successes: Sequence[float | None]) -> None:
        """Nothing: the order depends on the step alone."""

    def state(self) -> dict[str, Any]:
        """Empty."""
        return {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Nothing to go on from."""

    def metrics(self) -> dict[str, float]:
        """Empty."""
        return {}


def epoch_of(step: int, *, num_tasks: int, batch_size: int) -> int:
    """The epoch, from 0, that optimization step ``step`` (from 1) belongs to.

    The last tasks of an epoch that fill no batch are dropped: with 10 tasks in batches of 4,
    steps 1 and 2 are epoch 0 and step 3 opens epoch 1.
    """
    return (step - 1) // (num_tasks // batch_size)


def further_tasks(
    sampler: TaskSampler,
    step: int,
    *,
    draw: int,
    batch_size: int,
    num_tasks: int,
    tried: Collection[int],
) -> list[int]:
    """At most ``num_tasks`` tasks more for a step, at its ``draw`` (from 1) after its own tasks.

    A pure function of its arguments: the step draws as a later one would. Tasks that the step has
    tried come again only where the draw holds no other.

    >>> order = EpochOrder(6, seed=0, shuffle=False)
    >>> order.draw(1, 2), further_tasks(
    ...     order, 1, draw=1, batch_size=2, num_tasks=2, tried={0, 1})
    ([0, 1], [2, 3])
    """
    drawn = list(dict.fromkeys(sampler.draw(step + draw * _APART, batch_size)))
    fresh = [index for index in drawn if index not in tried]
    return (fresh or drawn)[:num_tasks]


def tasks_mark(tasks: Sequence[Task]) -> dict[str, Any]:
    """What tells these tasks, in this order, from others: how many there are, and a digest.

    A step's tasks are drawn as numbers, which mean the same only among the same tasks.

    >>> tasks_mark([Task(prompt="2 + 3 = ?", answer="5")])["count"]
    1
    """
    digest = hashlib.sha256("\n".join(task.id for task in tasks).encode())
    return {"count": len(tasks), "digest": digest.hexdigest()[:16]}


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
