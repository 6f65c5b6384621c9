"""Tasks that are made when they are first asked for, and kept."""

from __future__ import annotations

from rlgym_llm.types import Task

__all__ = ["KeptTasks"]


class KeptTasks:
    """A task source of so many tasks, for projects in which making one is slow.

    Override `make`.
    """

    def __init__(self, num_tasks: int) -> None:
        self.num_tasks = num_tasks
        self._made: dict[int, Task] = {}

    def __len__(self) -> int:
        return self.num_tasks

    def __getitem__(self, index: int, /) -> Task:
        if not -self.num_tasks <= index < self.num_tasks:
            raise IndexError(f"task {index} of {self.num_tasks}")
        index %= self.num_tasks
        if index not in self._made:
            self._made[index] = self.make(index)
        return self._made[index]

    def make(self, index: int) -> Task:
        """The task of that index, from 0."""
        raise NotImplementedError(f"{type(self).__name__} must define make(index)")
