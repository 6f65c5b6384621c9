"""Dynamic sampling: a step samples on until each of its groups carries signal.

tasks -> groups -> cards --rewards differ--> offered
|
+-----all the same----> left out; others are drawn in their place
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from rlgym_llm.config_samples import FilterGroupsConfig
from rlgym_llm.curriculum import TaskSampler
from rlgym_llm.episodes.callers_thread import CallersThread
from rlgym_llm.errors import ConfigError, RlgymError, did_you_mean
from rlgym_llm.reward_config import RewardsConfig
from rlgym_llm.scores import ScoreCard
from rlgym_llm.types import Rollout, RolloutGroup, Task
from rlgym_llm_trainers.algorithms.dynamic_sampling import SamplingAccount, carries_signal
from rlgym_llm_trainers.training.buffer import LeftOut
from rlgym_llm_trainers.training.collector import OnGroup
from rlgym_llm_trainers.training.failed_episodes import check_failures, check_scores
from rlgym_llm_trainers.training.interrupt import StepInterruptedError
from rlgym_llm_trainers.training.run_rewards import Accuracy
from rlgym_llm_trainers.training.task_order import further_tasks

__all__ = ["SampleDraw", "SignalFilter", "check_signal", "signal_of"]

_SAYS_EVERY = 5
"""Draws of one step between two notes that it is still sampling."""


class SampleDraw(Protocol):
    """Samples the groups of tasks; ``draw`` counts the draws of one step from 0."""

    def __call__(
        self,
        step: int,
        indices: Sequence[int],
        *,
        on_group: OnGroup,
        caller: CallersThread,
        draw: int,
    ) -> None:
        """Returns once all groups are there; ``caller.cancel()`` ends it early."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scored:
    """A group with its cards, as it was sampled."""

    index: int
    """Of its task among the training tasks."""
    group: RolloutGroup
    greedy: Rollout | None
    cards: tuple[ScoreCard, ...]


class SignalFilter:
    """Samples the groups of a step like what it wraps, and only offers those that carry signal.

    What is drawn in the place of others depends on the seed, the step and the rewards before it
    alone. Groups are offered together, in the order in which their tasks were drawn. ``score`` may
    be called by several threads at once, for steps that are sampled side by side.
    """

    def __init__(
        self,
        *,
        sample: SampleDraw,
        score: Callable[[int, Sequence[Rollout]], Sequence[ScoreCard]],
        signal: Callable[[Task, ScoreCard], float | None],
        success: Callable[[Task, Sequence[ScoreCard]], float | None],
        sampler: TaskSampler,
        max_error_rate: float,
        note: Callable[[str], None],
        max_draws: int = 0,
        is_ending: Callable[[], bool] = lambda: False,
    ) -> None:
        self._sample = sample
        self._score = score
        self._signal = signal
        self._success = success
        self._sampler = sampler
        self._max_error_rate = max_error_rate
        self._note = note
        self._max_draws = max_draws
        self._is_ending = is_ending
        self._samplers: dict[int, TaskSampler] = {}

    def begin(self, step: int) -> None:
        """Keeps the sampler as it is now, in the learner's thread, for what the step may need."""
        self._samplers[step] = copy.deepcopy(self._sampler)

    def __call__(
        self,
        step: int,
        indices: Sequence[int],
        *,
        on_group: OnGroup,
        caller: CallersThread,
        places: Collection[int] | None = None,
    ) -> None:
        """As `SampleGroups`; a step is sampled whole, so ``places`` are all or none of it.

        Raises RlgymError where ``max_draws`` draws did not fill the step, and where too much of all
        that it has sampled so far failed; StepInterruptedError where the run is to end before the
        step is full.
        """
        assert places is None or len(places) == len(indices), "groups are offered together"
        sampler = self._samplers.pop(step, None) or copy.deepcopy(self._sampler)
        account = SamplingAccount(wanted=len(indices))
        kept: list[_Scored] = []
        dropped: list[_Scored] = []
        tasks, tried = list(indices), set(indices)
        while True:
            found = self._sample_and_score(
                step, tasks, earlier=[*kept, *dropped], draw=account.num_rounds, caller=caller
            )
            carries = [self._carries_signal(one) for one in found]
            with_signal = list(itertools.compress(found, carries))
            dropped += [one for one, is_kept in zip(found, carries, strict=True) if not is_kept]
            kept += with_signal
            account = account.after(num_sampled=len(found), num_kept=len(with_signal))
            if not account.num_missing:
                break
            if self._is_ending():
                raise StepInterruptedError
            if account.num_rounds == self._max_draws:
                raise RlgymError(
                    f"step {step}: only {account.num_kept} of {account.num_sampled} prompts have "
                    f"responses of different reward, and {account.wanted} are wanted; raise "
                    f"--algorithm.filter_groups.max_num_gen_batches {self._max_draws} or "
                    "--rollout.n, or take other tasks"
                )
            if account.num_rounds % _SAYS_EVERY == 0:
                self._note(
                    f"step {step}: still sampling after {account.num_rounds} rounds: "
                    f"{account.num_kept} of {account.num_sampled} prompts have responses of "
                    f"different reward, and {account.wanted} are wanted"
                )
            tasks = further_tasks(
                sampler,
                step,
                draw=account.num_rounds,
                batch_size=len(indices),
                num_tasks=min(account.next_draw, len(indices)),
                tried=tried,
            )
            tried.update(tasks)
        surplus = kept[len(indices) :]
        for place, one in enumerate(kept[: len(indices)]):
            on_group(
                place,
                one.group,
                index=one.index,
                greedy=one.greedy,
                cards=one.cards,
                left_out=self._left_out(dropped, surplus, account) if place == 0 else None,
                more=place < len(indices) - 1,
            )

    def _sample_and_score(
        self,
        step: int,
        tasks: Sequence[int],
        *,
        earlier: Sequence[_Scored],
        draw: int,
        caller: CallersThread,
    ) -> list[_Scored]:
        """The groups of one draw; failures count over the step so far, for a draw may be small."""
        groups: dict[int, tuple[RolloutGroup, Rollout | None]] = {}

        def take(
            place: int,
            group: RolloutGroup,
            *,
            index: int | None = None,
            greedy: Rollout | None = None,
            **beside: object,
        ) -> None:
            groups[place] = group, greedy

        self._sample(step, tasks, on_group=take, caller=caller, draw=draw)
        ordered = [groups[place] for place in sorted(groups)]
        rollouts = list(chain.from_iterable(group.rollouts for group, _ in ordered))
        before = list(chain.from_iterable(one.group.rollouts for one in earlier))
        check_failures([*before, *rollouts], step=step, max_error_rate=self._max_error_rate)
        scored = self._score(step, rollouts)
        check_scores([*chain.from_iterable(one.cards for one in earlier), *scored], step=step)
        cards = iter(scored)
        return [
            _Scored(
                index=index,
                group=group,
                greedy=greedy,
                cards=tuple(next(cards) for _ in group.rollouts),
            )
            for index, (group, greedy) in zip(tasks, ordered, strict=True)
        ]

    def _carries_signal(self, one: _Scored) -> bool:
        return carries_signal([self._signal(one.group.task, card) for card in one.cards])

    def _left_out(
        self, dropped: Sequence[_Scored], surplus: Sequence[_Scored], account: SamplingAccount
    ) -> LeftOut:
        """Counted in groups under verl's names, which say samples."""
        unused = [*dropped, *surplus]
        return LeftOut(
            indices=tuple(one.index for one in unused),
            successes=tuple(self._success(one.group.task, one.cards) for one in unused),
            metrics={
                "training/filter_groups/evicted_samples": float(len(dropped)),
                "training/filter_groups/discarded_surplus_samples": float(len(surplus)),
                "training/filter_groups/num_gen_batches": float(account.num_rounds),
            },
        )


def check_signal(config: FilterGroupsConfig, rewards: RewardsConfig, accuracy: Accuracy) -> None:
    """Raises ConfigError where ``metric`` is of no card."""
    if config.metric == "reward" or config.metric in rewards.components:
        return
    if config.metric == "acc" and (accuracy.name or any(accuracy.by_env.values())):
        return
    known = ["reward", "acc", *rewards.components]
    what = "no reward says right or wrong" if config.metric == "acc" else "there is no such reward"
    raise ConfigError(
        f"--algorithm.filter_groups.metric {config.metric}: {what}"
        f"{did_you_mean(config.metric, known)} (known: {', '.join(known)})"
    )


def signal_of(metric: str, accuracy: Accuracy) -> Callable[[Task, ScoreCard], float | None]:
    """What ``algorithm.filter_groups.metric`` reads off a card; None of one without a reward.

    ``reward`` is the composed one, ``acc`` the raw score of what says right or wrong, any other
    name the raw score of that component.
    """

    def signal(task: Task, card: ScoreCard) -> float | None:
        if metric == "reward" or card.reward is None:
            return card.reward
        name = accuracy.component(task) if metric == "acc" else metric
        component = card.components.get(name) if name is not None else None
        return None if component is None else component.raw

    return signal
