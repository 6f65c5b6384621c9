"""Groups that wait for the learner, and which of them are still fresh enough for it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rlgym_llm.scores import ScoreCard
from rlgym_llm.types import Rollout, RolloutGroup

__all__ = ["BufferState", "GroupBuffer", "LeftOut", "Offer", "is_fresh", "staleness"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """What was sampled for a step and is not learned from, since it carries no signal."""

    indices: tuple[int, ...] = ()
    """Of the groups' tasks; those with signal that were too many included."""
    successes: tuple[float | None, ...] = ()
    """How each of them went, 0.0 to 1.0; None where nothing tells."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """How many they are; they add up over steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A group for a step of training, and which task it is of."""

    step: int
    """The step whose tasks it was drawn with."""
    place: int
    """Which of that step's tasks it is of, from 0."""
    index: int
    """Index of the task among the training tasks."""
    group: RolloutGroup
    greedy: Rollout | None = None
    """The sibling that was sampled greedily, where the advantages need one; it never trains."""
    cards: tuple[ScoreCard, ...] | None = None
    """Of the group's rollouts, where they had to be scored before they were offered."""
    left_out: LeftOut | None = None
    """Beside one of the groups of a step, where some were sampled in vain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferState:
    """What a buffer held at one moment, and what it was still to get."""

    offers: tuple[Offer, ...] = ()
    """The groups that waited, in the order in which they came."""
    missing: Mapping[int, frozenset[int]] = field(default_factory=dict)
    """Places of each step that was begun whose groups were not there yet; no step with none."""
    num_dropped: int = 0
    num_taken: int = 0


def staleness(group: RolloutGroup, version: int) -> int:
    """How many updates the oldest token of a group is behind the policy ``version``.

    Time in the buffer counts as time in the generator does: what was sampled by version 3 is 3
    behind when version 6 is about to learn from it. 0 where no token tells.
    """
    oldest = (rollout.min_policy_version for rollout in group.rollouts)
    return max((version - one for one in oldest if one is not None), default=0)


def is_fresh(group: RolloutGroup, version: int, max_staleness: int) -> bool:
    """Whether policy ``version`` may learn from the group, whole: siblings go together."""
    return staleness(group, version) <= max_staleness


class GroupBuffer:
    """Takes groups from any thread and hands them out to the learner, in one of two ways.

    ``stale="wait"``: those of a step, all of them, in the order of its tasks. ``stale="drop"``: the
    first that are fresh enough, oldest step first, in the order in which they came.
    """

    def __init__(self, *, max_staleness: int, stale: str) -> None:
        self._max_staleness = max_staleness
        self._in_order = stale == "wait"
        self._offers: list[Offer] = []
        self._missing: dict[int, frozenset[int]] = {}
        self._failure: BaseException | None = None
        self._changed = threading.Condition()
        self.num_dropped = 0
        """Groups that were too old when it was their turn, so far."""

        self.num_taken = 0
        """Groups that the learner got, so far."""

    def expect(self, step: int, num_groups: int) -> None:
        """Takes note that the groups of a step have been begun, places 0 to ``num_groups`` - 1."""
        with self._changed:
            self._missing[step] = frozenset(range(num_groups))

    def put(self, *offers: Offer) -> None:
        """Adds groups, all at once."""
        with self._changed:
            for offer in offers:
                self._offers.append(offer)
                left = self._missing.pop(offer.step, frozenset()) - {offer.place}
                if left:
                    self._missing[offer.step] = left
            self._changed.notify_all()

    def state(self) -> BufferState:
        """What there is now; what is put or taken later does not change it."""
        with self._changed:
            return BufferState(
                offers=tuple(self._offers),
                missing=dict(self._missing),
                num_dropped=self.num_dropped,
                num_taken=self.num_taken,
            )

    def load(self, state: BufferState) -> None:
        """Goes on from a state; what it says is missing has to be sampled again."""
        with self._changed:
            self._offers = list(state.offers)
            self._missing = dict(state.missing)
            self.num_dropped, self.num_taken = state.num_dropped, state.num_taken
            self._changed.notify_all()

    def fail(self, failure: BaseException) -> None:
        """No more groups will come: whoever waits, or asks later, gets the failure raised."""
        with self._changed:
            self._failure = self._failure or failure
            self._changed.notify_all()

    def take(self, num_groups: int, *, step: int, version: int) -> list[Offer] | None:
        """Waits for ``num_groups`` groups that policy ``version`` may learn from.

        A group that is too old is dropped, and counted. Under "wait" nothing comes in its place,
        so that fewer may be returned; under "drop" others are needed: None asks for them.
        """
        with self._changed:
            while True:
                num_dropped = self.num_dropped
                taken = self._ready(num_groups, step=step, version=version)
                if taken is not None:
                    self.num_taken += len(taken)
                    return taken
                if self.num_dropped > num_dropped:
                    return None
                if self._failure is not None:
                    raise self._failure
                self._changed.wait()

    def _ready(self, num_groups: int, *, step: int, version: int) -> list[Offer] | None:
        if self._in_order:
            mine = [offer for offer in self._offers if offer.step == step]
            if len(mine) < num_groups:
                return None
            self._offers = [offer for offer in self._offers if offer.step != step]
            return sorted(self._fresh(mine, version), key=lambda offer: offer.place)
        self._offers = self._fresh(self._offers, version)
        if len(self._offers) < num_groups:
            return None
        self._offers.sort(key=lambda offer: offer.step)  # stable: as they came
        taken, self._offers = self._offers[:num_groups], self._offers[num_groups:]
        return taken

    def _fresh(self, offers: Sequence[Offer], version: int) -> list[Offer]:
        kept = [offer for offer in offers if is_fresh(offer.group, version, self._max_staleness)]
        self.num_dropped += len(offers) - len(kept)
        return kept
