"""The metrics of a run's last steps, and the windows that health rules look at."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

__all__ = ["History", "Row", "reward_weights"]

Row = Mapping[str, float | None]
"""The metrics of one step; None is a figure that is not a number, and says as little as none."""

_WEIGHT = re.compile(r"rewards/(.+)/weight")


@dataclass(frozen=True, slots=True)
class History:
    """Rows of metrics, oldest first, and the ``window`` of steps that makes a judgement.

    A window of a metric is ``window`` steps that have it, whatever lies between them. There is none
    where the newest step lacks it: what is no longer measured is no longer judged.
    """

    rows: Sequence[Row]
    window: int

    @property
    def latest(self) -> Row:
        """The newest step."""
        return self.rows[-1]

    def windows(self, *keys: str) -> list[list[tuple[float, ...]]]:
        """Windows without overlap, the newest first, of the steps that have every key.

        >>> rows = [{"a": 1.0}, {"a": 2.0}, {"a": None}, {"a": 4.0}, {"a": 5.0}, {"a": 6.0}]
        >>> History(rows, window=2).windows("a")
        [[(5.0,), (6.0,)], [(2.0,), (4.0,)]]
        """
        found = [values for row in self.rows if (values := _values(row, keys)) is not None]
        if not found or _values(self.latest, keys) is None:
            return []
        ends = range(len(found), self.window - 1, -self.window)
        return [found[end - self.window : end] for end in ends]

    def recent(self, key: str) -> list[float]:
        """The newest window of one metric; empty where it is not full."""
        windows = self.windows(key)
        return [value for (value,) in windows[0]] if windows else []

    def mean(self, key: str) -> float | None:
        """The mean of the newest window; None where it is not full.

        >>> History([{"a": 1.0}, {"a": 2.0}], window=2).mean("a")
        1.5
        """
        recent = self.recent(key)
        return fmean(recent) if recent else None

    def averages(self, *keys: str) -> dict[str, float] | None:
        """The means of the newest window of the steps that have every key."""
        windows = self.windows(*keys)
        if not windows:
            return None
        columns = zip(*windows[0], strict=True)
        return {key: fmean(column) for key, column in zip(keys, columns, strict=True)}

    def of_these_rewards(self) -> History:
        """The newest steps whose rewards are weighted as they are now.

        A weight that moved has moved the scale of the reward, and no policy did that. Under a
        curriculum, whose tasks change from step to step, only the newest step remains.
        """
        if any(key.startswith("curriculum/") for key in self.latest):
            return replace(self, rows=self.rows[-1:])
        weights = reward_weights(self.latest)
        start = len(self.rows)
        while start and reward_weights(self.rows[start - 1]) == weights:
            start -= 1
        return replace(self, rows=self.rows[start:])


def reward_weights(row: Row) -> dict[str, float]:
    """The weight of every reward component of a step.

    >>> reward_weights({"rewards/math/weight": 1.0, "rewards/math/mean": 0.5})
    {'math': 1.0}
    """
    found = {}
    for key, value in row.items():
        if value is not None and (match := _WEIGHT.fullmatch(key)):
            found[match[1]] = value
    return found


def _values(row: Row, keys: Sequence[str]) -> tuple[float, ...] | None:
    values = tuple(value for key in keys if (value := row.get(key)) is not None)
    return values if len(values) == len(keys) else None
