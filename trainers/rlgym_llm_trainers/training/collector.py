"""The rollouts of each training step, as many steps ahead of the learner as staleness allows.

    step 1   draw -> rollouts ------> take: learn -> sync
    step 2           draw -> rollouts ------------------> take: learn -> sync
                             (beside the learner, where rollout.max_staleness is 1 or more)

Synchronous training is the same path with ``max_staleness`` 0: nothing is begun ahead, and what is
asked for is sampled at once in the learner's own thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rlgym_llm.episodes.callers_thread import CallersThread
from rlgym_llm.errors import RlgymError
from rlgym_llm.scores import ScoreCard
from rlgym_llm.types import Rollout, RolloutGroup
from rlgym_llm_trainers.generators.busy_time import BusyTime
from rlgym_llm_trainers.training.buffer import (
    BufferState,
    GroupBuffer,
    LeftOut,
    Offer,
    staleness,
)

__all__ = ["Collected", "Collector", "CollectorState", "OnGroup", "SampleGroups"]

_CLOSE_S = 10.0


class OnGroup(Protocol):
    """Hears of a group as soon as it is complete."""

    def __call__(
        self,
        place: int,
        group: RolloutGroup,
        *,
        index: int | None = None,
        greedy: Rollout | None = None,
        cards: tuple[ScoreCard, ...] | None = None,
        left_out: LeftOut | None = None,
        more: bool = False,
    ) -> None:
        """Takes a group; with ``more`` it is held back until the next one comes.

        ``index`` is of another task than was drawn for the place; the rest is of `Offer`.
        """
        ...


class SampleGroups(Protocol):
    """Samples the groups of a step's tasks, telling of each as it is complete."""

    def __call__(
        self,
        step: int,
        indices: Sequence[int],
        *,
        on_group: OnGroup,
        caller: CallersThread,
        places: Collection[int] | None = None,
    ) -> object:
        """Returns once all groups are there; ``caller.cancel()`` ends it early.

        With ``places`` only those of the tasks are sampled, each as it would be among all of them.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorState:
    """How far a collector is: the steps begun, and the groups that no learner has had."""

    num_begun: int = 0
    buffer: BufferState = field(default_factory=BufferState)
    indices: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """The tasks, all of them, of each step that misses groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What a training step learns from."""

    indices: tuple[int, ...]
    """Of the groups' tasks among the training tasks."""
    groups: tuple[RolloutGroup, ...]
    metrics: dict[str, float]
    greedy: Mapping[str, Rollout] = field(default_factory=dict)
    """The greedy siblings of the groups, by group id, where there are any."""
    cards: tuple[ScoreCard, ...] | None = None
    """Of all rollouts, group by group, where they are scored already."""
    left_out: tuple[LeftOut, ...] = ()
    """What was sampled on the way to these groups, with dynamic sampling."""

    @property
    def rollouts(self) -> list[Rollout]:
        """All rollouts, group by group."""
        return [rollout for group in self.groups for rollout in group.rollouts]


class Collector:
    """Draws tasks and samples their groups, up to ``max_staleness`` steps ahead of the learner.

    Under ``stale="wait"`` a step gets the groups of its own tasks, which were begun so late that
    they are fresh. Under ``"drop"`` sampling runs twice as far ahead, a step gets whatever groups
    are complete, and those that are too old are thrown away.
    """

    def __init__(
        self,
        *,
        draw: Callable[[int], Sequence[int]],
        sample: SampleGroups,
        batch_size: int,
        total_steps: int,
        max_staleness: int = 0,
        stale: str = "wait",
    ) -> None:
        self._draw = draw
        self._sample = sample
        self._batch_size = batch_size
        self._total_steps = total_steps
        self._max_staleness = max_staleness
        self._takes_any = stale == "drop"
        self._num_ahead = 2 * max_staleness + 1 if self._takes_any else max_staleness
        self._buffer = GroupBuffer(max_staleness=max_staleness, stale=stale)
        self._num_begun = 0
        self._indices: dict[int, tuple[int, ...]] = {}
        self._running: dict[threading.Thread, CallersThread] = {}
        self._busy = BusyTime()
        self._last_asked = time.monotonic()

    def collect(self, step: int, *, version: int) -> Collected:
        """The groups that policy ``version`` learns from in ``step``: 1, 2, 3, one after the other.

        Raises what sampling raised, and RlgymError where every group was too old.
        """
        asked, num_dropped = time.monotonic(), self._buffer.num_dropped
        offers: list[Offer] | None = None
        while offers is None:
            while self._should_begin(step):
                self._num_begun += 1
                self._draw_and_begin(self._num_begun)
            offers = self._buffer.take(self._batch_size, step=step, version=version)
        self.state()  # lets go of the tasks of steps that are complete
        if not offers:
            raise RlgymError(
                f"step {step}: every group is older than rollout.max_staleness "
                f"{self._max_staleness} allows"
            )
        groups = tuple(offer.group for offer in offers)
        metrics = {}
        if self._num_ahead:
            metrics = _freshness(groups, version) | {
                "fully_async/count/dropped_stale_groups": float(
                    self._buffer.num_dropped - num_dropped
                ),
                **self._idle_ratios(asked),
            }
        return Collected(
            indices=tuple(offer.index for offer in offers),
            groups=groups,
            metrics=metrics,
            greedy={o.group.group_id: o.greedy for o in offers if o.greedy is not None},
            cards=_all_cards(offers),
            left_out=tuple(o.left_out for o in offers if o.left_out is not None),
        )

    def state(self) -> CollectorState:
        """How far it is, between two steps; goes with the sampler's state of the same moment."""
        buffer = self._buffer.state()
        self._indices = {step: self._indices[step] for step in buffer.missing}
        return CollectorState(num_begun=self._num_begun, buffer=buffer, indices=self._indices)

    def load(self, state: CollectorState) -> None:
        """Goes on from a state, before the first `collect`: what was missing is begun again."""
        self._num_begun, self._indices = state.num_begun, dict(state.indices)
        self._buffer.load(state.buffer)
        for step, places in state.buffer.missing.items():
            self._begin(step, places=places)

    def close(self) -> None:
        """Ends what is being sampled; safe to call twice."""
        for caller in self._running.values():
            caller.cancel()
        for thread in self._running:
            thread.join(_CLOSE_S)
        self._running.clear()

    def _should_begin(self, step: int) -> bool:
        """Whether the tasks of one step more are to be sampled now."""
        num_steps = min(self._num_ahead + 1, self._total_steps - step + 1)
        if not self._takes_any:
            return self._num_begun < step - 1 + num_steps
        num_gone = self._buffer.num_taken + self._buffer.num_dropped
        return self._num_begun * self._batch_size - num_gone < num_steps * self._batch_size

    def _draw_and_begin(self, step: int) -> None:
        self._indices[step] = tuple(self._draw(step))
        self._buffer.expect(step, len(self._indices[step]))
        self._begin(step)

    def _begin(self, step: int, places: Collection[int] | None = None) -> None:
        indices = self._indices[step]
        caller = CallersThread()

        held: list[Offer] = []

        def offer(
            place: int,
            group: RolloutGroup,
            *,
            index: int | None = None,
            more: bool = False,
            **beside: Any,
        ) -> None:
            index = indices[place] if index is None else index
            held.append(Offer(step=step, place=place, index=index, group=group, **beside))
            if not more:
                self._buffer.put(*held)
                held.clear()

        if not self._num_ahead:  # in this thread, where the learner's own weights may be used
            self._sample(step, indices, on_group=offer, caller=caller, places=places)
            return

        def sample() -> None:
            try:
                with self._busy:
                    self._sample(step, indices, on_group=offer, caller=caller, places=places)
            except BaseException as failure:  # raised where the groups are waited for
                self._buffer.fail(failure)

        thread = threading.Thread(target=sample, name=f"rlgym-collect-{step}", daemon=True)
        self._running = {t: c for t, c in self._running.items() if t.is_alive()} | {thread: caller}
        thread.start()

    def _idle_ratios(self, asked: float) -> dict[str, float]:
        """Shares of the time since the last step: the learner's waits, and nobody sampling."""
        now = time.monotonic()
        passed = now - self._last_asked
        ratios = {
            "fully_async/trainer/idle_ratio": (now - asked) / passed,
            "fully_async/rollouter/idle_ratio": max(0.0, 1 - self._busy.take() / passed),
        }
        self._last_asked = now
        return ratios


def _all_cards(offers: Sequence[Offer]) -> tuple[ScoreCard, ...] | None:
    """The cards of all groups; None where those of one are missing, a resumed one say."""
    cards: list[ScoreCard] = []
    for offer in offers:
        if offer.cards is None:
            return None
        cards += offer.cards
    return tuple(cards)


def _freshness(groups: Sequence[RolloutGroup], version: int) -> dict[str, float]:
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    num_partial = sum(r.min_policy_version != r.max_policy_version for r in rollouts)
    num_stale = sum(len(group.rollouts) for group in groups if staleness(group, version) > 0)
    return {
        "fully_async/current_param_version": float(version),
        "fully_async/count/stale_samples_processed": float(num_stale),
        "fully_async/partial/partial_ratio": num_partial / len(rollouts),
    }
