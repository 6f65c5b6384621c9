"""Which tasks a step trains on: by shares, and by how often the policy succeeds."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from rlgym_llm.call_signature import check_arguments
from rlgym_llm.errors import ConfigError, UserError
from rlgym_llm.types import Task

__all__ = [
    "ShareSampler",
    "SuccessCurriculum",
    "TaskSampler",
    "kinds_of_tasks",
    "read_curriculum",
]


class TaskSampler(Protocol):
    """Draws the tasks of a step; what it draws depends on its seed, the step and its state only."""

    def draw(self, step: int, num_tasks: int) -> list[int]:
        """Indices of the ``num_tasks`` tasks of optimization step ``step`` (from 1)."""
        ...

    def observe(self, step: int, indices: Sequence[int], successes: Sequence[float | None]) -> None:
        """Takes in how each task that was drawn went: 0.0 to 1.0, None where nothing tells."""
        ...

    def state(self) -> dict[str, Any]:
        """What was observed, as JSON data."""
        ...

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from a state. Raises UserError for one of other tasks."""
        ...

    def metrics(self) -> dict[str, float]:
        """What there is to say of the next draw, as metrics."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SuccessCurriculum:
    """Prefers the kinds of task at which the policy succeeds about as often as ``target``.

    A kind is a level of an environment, or all of an environment whose tasks have no ``level``. Its
    share is multiplied by ``floor + exp(-((rate - target) / width)^2)``, with the success rate of
    its last ``window`` tasks. One that was never tried counts as if its rate were the target.
    Raises UserError for a number out of range.

    >>> curriculum = SuccessCurriculum(target=0.5, width=0.2, floor=0.05)
    >>> [round(curriculum.interest(rate), 4) for rate in (0.5, 0.7, 1.0, None)]
    [1.05, 0.4179, 0.0519, 1.05]
    """

    target: float = 0.5
    """The success rate that there is most to learn at."""
    width: float = 0.2
    """How far from the target a kind of task still counts; at this distance e times less."""
    window: int = 64
    """So many of the last tasks of a kind make its success rate."""
    floor: float = 0.05
    """What is left of a kind that is solved or hopeless, so that it is not forgotten."""

    def __post_init__(self) -> None:
        rules = {
            "target": (0 <= self.target <= 1, "from 0 to 1"),
            "width": (math.isfinite(self.width) and self.width > 0, "above 0"),
            "window": (type(self.window) is int and self.window >= 1, "a whole number from 1 on"),
            "floor": (math.isfinite(self.floor) and self.floor > 0, "above 0"),
        }
        for name, (is_right, wanted) in rules.items():
            if not is_right:
                raise UserError(f"curriculum: {name} must be {wanted}, got {getattr(self, name)}")

    def interest(self, rate: float | None) -> float:
        """What a share is multiplied by at that success rate."""
        distance = 0.0 if rate is None else (rate - self.target) / self.width
        return self.floor + math.exp(-(distance**2))


def read_curriculum(
    data: SuccessCurriculum | Mapping[str, Any] | bool | None,
) -> SuccessCurriculum | None:
    """The curriculum that is meant. Raises ConfigError for an argument that it does not take."""
    if data is None or data is False:
        return None
    if isinstance(data, SuccessCurriculum):
        return data
    settings = {} if data is True else data
    if not isinstance(settings, Mapping):
        raise ConfigError(f"curriculum takes true or its settings, got {data!r}")
    check_arguments("curriculum", SuccessCurriculum, settings)
    return SuccessCurriculum(**settings)


class ShareSampler:
    """Draws tasks of several kinds by their shares, which a curriculum may move.

    The kinds of a draw are as near to their shares as whole numbers allow (systematic sampling);
    no task comes twice in a draw that its kind has tasks enough for.

    >>> sampler = ShareSampler(["a", "a", "a", "b"], shares={"a": 0.75, "b": 0.25}, seed=0)
    >>> sorted(sampler.draw(1, 4)), sampler.draw(1, 4) == sampler.draw(1, 4)
    ([0, 1, 2, 3], True)

    Args:
        kinds: The kind of every task, in order.
        shares: Share of every kind; they need not add up to 1.
        curriculum: Multiplies the shares; None leaves them as they are.
        seed: Seed of the draws.
    """

    def __init__(
        self,
        kinds: Sequence[str],
        *,
        shares: Mapping[str, float],
        curriculum: SuccessCurriculum | None = None,
        seed: int = 0,
    ) -> None:
        self._kinds = tuple(kinds)
        self._members: dict[str, list[int]] = defaultdict(list)
        for index, kind in enumerate(self._kinds):
            self._members[kind].append(index)
        # A kind that has no task, or no share, is never drawn.
        self._shares = {kind: share for kind, share in shares.items() if kind in self._members}
        if not sum(self._shares.values()) > 0:
            raise UserError("no kind of task has a share above 0")
        self._curriculum = curriculum
        self._seed = seed
        self._window = curriculum.window if curriculum is not None else 1
        self._observed: dict[str, deque[float]] = self._empty()

    @property
    def shares(self) -> dict[str, float]:
        """The share of every kind in the next draw; they add up to 1."""
        weights = dict(self._shares)
        if self._curriculum is not None:
            for kind in weights:
                weights[kind] *= self._curriculum.interest(self.rate(kind))
        total = math.fsum(weights.values())
        return {kind: weight / total for kind, weight in weights.items()}

    def rate(self, kind: str) -> float | None:
        """The success rate of a kind of late, None where none was observed."""
        seen = self._observed[kind]
        return math.fsum(seen) / len(seen) if seen else None

    def draw(self, step: int, num_tasks: int) -> list[int]:
        """As `TaskSampler.draw`."""
        rng = np.random.Generator(np.random.Philox(key=[self._seed, step]))
        shares = self.shares
        kinds = list(shares)
        ends = np.cumsum(list(shares.values()))
        ends[-1] = 1.0
        points = (rng.random() + np.arange(num_tasks)) / num_tasks
        places = np.searchsorted(ends, points, side="right")
        counts = np.bincount(places, minlength=len(kinds))
        drawn: list[int] = []
        for kind, count in zip(kinds, counts.tolist(), strict=True):
            members = self._members[kind]
            chosen = rng.choice(len(members), size=count, replace=count > len(members))
            drawn += [members[place] for place in chosen.tolist()]
        # Mini-batches are cut in order, so kinds must not stand in blocks.
        return [drawn[place] for place in rng.permutation(num_tasks).tolist()]

    def observe(self, step: int, indices: Sequence[int], successes: Sequence[float | None]) -> None:
        """As `TaskSampler.observe`; without a curriculum it is forgotten."""
        if self._curriculum is None:
            return
        for index, success in zip(indices, successes, strict=True):
            if success is not None:
                self._observed[self._kinds[index]].append(float(success))

    def state(self) -> dict[str, Any]:
        """As `TaskSampler.state`."""
        return {"observed": {kind: list(seen) for kind, seen in self._observed.items()}}

    def load(self, state: Mapping[str, Any]) -> None:
        """As `TaskSampler.load`."""
        if "observed" not in state:
            raise UserError("the state is of no curriculum")
        observed = state["observed"]
        if set(observed) != set(self._shares):
            raise UserError(
                f"the curriculum's state is of {', '.join(sorted(observed))}, "
                f"and the tasks are of {', '.join(sorted(self._shares))}"
            )
        self._observed = self._empty()
        for kind, seen in observed.items():
            self._observed[kind].extend(map(float, seen))

    def metrics(self) -> dict[str, float]:
        """``curriculum/share/<kind>``, and ``curriculum/success/<kind>`` where it is known."""
        if self._curriculum is None:
            return {}
        found = {f"curriculum/share/{kind}": share for kind, share in self.shares.items()}
        for kind in self._shares:
            if (rate := self.rate(kind)) is not None:
                found[f"curriculum/success/{kind}"] = rate
        return found

    def _empty(self) -> dict[str, deque[float]]:
        return {kind: deque(maxlen=self._window) for kind in self._shares}


def kinds_of_tasks(
    tasks: Sequence[Task], weights: Mapping[str, float] | None = None
) -> tuple[list[str], dict[str, float]]:
    """The kind of every task, and the share of every kind.

    A kind is ``<env>``, ``level <level>`` or ``<env> level <level>``, by what the tasks' ``info``
    holds. ``weights`` are of the environments; those of the given tasks share them, and the kinds
    of one environment share its part by their number of tasks.

    >>> tasks = [Task(prompt="?", info={"env": "sums", "level": level}) for level in (1, 1, 1, 2)]
    >>> kinds_of_tasks(tasks, {"sums": 2.0})[1]
    {'sums level 1': 1.5, 'sums level 2': 0.5}
    """
    kinds: list[str] = []
    counts: dict[str, int] = defaultdict(int)
    env_of: dict[str, str] = {}
    sizes: dict[str, int] = defaultdict(int)
    for task in tasks:
        env = str(task.info.get("env", "")) if weights is not None else ""
        level = f"level {task.info['level']}" if task.info.get("level") is not None else ""
        kind = " ".join(filter(None, (env, level))) or "all"
        kinds.append(kind)
        counts[kind] += 1
        env_of[kind] = env
        sizes[env] += 1
    weights = {"": 1.0} if weights is None else weights
    shares = {kind: weights[env_of[kind]] * counts[kind] / sizes[env_of[kind]] for kind in counts}
    return kinds, shares
