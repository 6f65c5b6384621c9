"""Dynamic sampling: what is kept, what is drawn in the place of the rest, and when it ends."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

import pytest
from rlgym_llm_trainers.training.buffer import BufferState, LeftOut
from rlgym_llm_trainers.training.collector import Collector, CollectorState
from rlgym_llm_trainers.training.interrupt import StepInterruptedError
from rlgym_llm_trainers.training.run_rewards import Accuracy
from rlgym_llm_trainers.training.signal_filter import SignalFilter, check_signal, signal_of
from rlgym_llm_trainers.training.task_order import EpochOrder, further_tasks

from rlgym_llm.config_samples import FilterGroupsConfig
from rlgym_llm.curriculum import ShareSampler, SuccessCurriculum
from rlgym_llm.episodes.callers_thread import CallersThread
from rlgym_llm.errors import ConfigError, RlgymError
from rlgym_llm.reward_config import read_rewards
from rlgym_llm.scores import CardStatus, Component, ScoreCard, ScoreStatus
from rlgym_llm.types import Rollout, RolloutGroup, RolloutStatus, Task

SIBLINGS = 2


class World:
    """Samples two siblings a task; a task is worth (0, 1) where it carries signal, else (1, 1)."""

    def __init__(self, group_of: Callable[..., RolloutGroup], has_signal: Callable[[int], bool]):
        self.group_of = group_of
        self.has_signal = has_signal
        self.drawn: list[tuple[int, int, tuple[int, ...]]] = []
        self.scored: list[tuple[int, list[str]]] = []

    def sample(self, step, indices, *, on_group, caller, draw) -> None:
        self.drawn.append((step, draw, tuple(indices)))
        for place in reversed(range(len(indices))):  # the last one is done first
            name = f"{step}/{draw}/{indices[place]}"
            on_group(place, self.group_of(0, 0, name=name), index=indices[place])

    def score(self, step: int, rollouts: Sequence[Rollout]) -> list[ScoreCard]:
        self.scored.append((step, [rollout.id for rollout in rollouts]))
        return [
            card(r.id, float(r.sample_index if self.has_signal(task_of(r)) else 1))
            for r in rollouts
        ]


def task_of(rollout: Rollout) -> int:
    return int(rollout.group_id.rpartition("/")[2])


def card(rollout_id: str, reward: float | None) -> ScoreCard:
    status = CardStatus.SCORED if reward is not None else CardStatus.MASKED
    return ScoreCard(rollout_id=rollout_id, reward=reward, status=status, components={})


def success(task: Task, cards: Sequence[ScoreCard]) -> float:
    return sum(one.reward or 0.0 for one in cards) / len(cards)


def filter_of(
    world: World,
    *,
    num_tasks: int = 12,
    max_draws: int = 0,
    note: Callable[[str], None] = lambda text: None,
    is_ending: Callable[[], bool] = lambda: False,
) -> SignalFilter:
    return SignalFilter(
        sample=world.sample,
        score=world.score,
        signal=signal_of("reward", Accuracy()),
        success=success,
        sampler=EpochOrder(num_tasks, seed=0, shuffle=False),
        max_error_rate=0.25,
        note=note,
        max_draws=max_draws,
        is_ending=is_ending,
    )


def offered(
    signal: SignalFilter, step: int, indices: Sequence[int]
) -> tuple[list[tuple[int, int, str]], LeftOut]:
    """(place, task and id of each group, what was left out)."""
    found: list[tuple[int, int, str]] = []
    beside: list[LeftOut] = []

    def on_group(place, group, *, index, greedy, cards, left_out, more) -> None:
        assert [one.rollout_id for one in cards] == [one.id for one in group.rollouts]
        assert more == (place < len(indices) - 1)  # all of a step are offered at once
        found.append((place, index, group.group_id))
        beside.extend([left_out] if left_out is not None else [])

    signal(step, indices, on_group=on_group, caller=CallersThread())
    [left_out] = beside
    return found, left_out


def test_groups_without_signal_are_replaced_until_the_step_is_full(group_of) -> None:
    world = World(group_of, lambda task: task in (1, 4, 5, 6))
    # Step 1 draws 0 1 2 3, of which 1 is kept; 3 are missing at a share of 1/4, so the whole next
    # batch is drawn: step 1 + 1000003 of three an epoch, place 1, tasks 4 5 6 7.
    found, left_out = offered(filter_of(world), 1, [0, 1, 2, 3])
    assert found == [
        (0, 1, "1/0/1"),
        (1, 4, "1/1/4"),
        (2, 5, "1/1/5"),
        (3, 6, "1/1/6"),
    ]
    assert world.drawn == [(1, 0, (0, 1, 2, 3)), (1, 1, (4, 5, 6, 7))]
    assert left_out.indices == (0, 2, 3, 7)
    assert left_out.successes == (1.0,) * 4
    assert left_out.metrics == {
        "training/filter_groups/evicted_samples": 4,
        "training/filter_groups/discarded_surplus_samples": 0,
        "training/filter_groups/num_gen_batches": 2,
    }


def test_what_is_too_many_is_left_out_too(group_of) -> None:
    world = World(group_of, lambda task: task not in (0, 1, 2))
    # 1 of 4 kept: 4 more are drawn for the 3 that are missing, and all 4 carry signal.
    found, left_out = offered(filter_of(world), 1, [0, 1, 2, 3])
    assert [index for _, index, _ in found] == [3, 4, 5, 6]
    assert left_out.indices == (0, 1, 2, 7)
    assert left_out.successes == (1.0, 1.0, 1.0, 0.5)
    assert left_out.metrics["training/filter_groups/discarded_surplus_samples"] == 1


def test_a_full_step_draws_once_and_each_rollout_is_scored_once(group_of) -> None:
    world = World(group_of, lambda task: True)
    assert len(offered(filter_of(world), 1, [0, 1])[0]) == 2
    assert len(world.drawn) == 1
    assert world.scored == [(1, ["1/0/0-0", "1/0/0-1", "1/0/1-0", "1/0/1-1"])]


def test_the_bound_on_draws_ends_the_run_with_one_line(group_of) -> None:
    world = World(group_of, lambda task: task == 7)
    with pytest.raises(RlgymError, match="step 3: only 1 of 6 prompts have responses") as error:
        offered(filter_of(world, max_draws=3), 3, [0, 1])
    assert "\n" not in str(error.value)
    assert "max_num_gen_batches 3" in str(error.value)
    assert [draw for _, draw, _ in world.drawn] == [0, 1, 2]


def test_a_run_that_is_to_end_draws_no_further(group_of) -> None:
    world = World(group_of, lambda task: task < 4)
    signal = filter_of(world, is_ending=lambda: True)
    assert len(offered(signal, 1, [0, 1, 2, 3])[0]) == 4  # what is full goes on to the learner
    with pytest.raises(StepInterruptedError):
        offered(signal, 2, [4, 5, 6, 7])
    assert world.drawn == [(1, 0, (0, 1, 2, 3)), (2, 0, (4, 5, 6, 7))]


def test_without_a_bound_it_goes_on_for_as_long_as_it_takes(group_of) -> None:
    calls = itertools.count()
    # Siblings of the 9th and 12th group that is looked at differ, whatever its task.
    world = World(group_of, lambda task: next(calls) // SIBLINGS in (8, 11))
    assert len(offered(filter_of(world, num_tasks=4), 1, [0, 1])[0]) == 2
    assert len(world.drawn) >= 6


def test_the_same_seed_samples_the_same(group_of) -> None:
    runs = []
    for _ in range(2):
        world = World(group_of, lambda task: task % 3 == 0)
        runs.append((offered(filter_of(world), 2, [4, 5, 6, 7]), world.drawn))
    assert runs[0] == runs[1]


def test_a_curriculum_draws_as_it_was_when_the_step_began(group_of) -> None:
    def sampler() -> ShareSampler:
        return ShareSampler(
            ["easy"] * 8 + ["hard"] * 8,
            shares={"easy": 1.0, "hard": 1.0},
            curriculum=SuccessCurriculum(floor=0.001),
            seed=3,
        )

    drawn = []
    for observes, begins in ((False, True), (True, True), (True, False)):
        world = World(group_of, lambda task: False)
        live = sampler()
        signal = SignalFilter(
            sample=world.sample,
            score=world.score,
            signal=signal_of("reward", Accuracy()),
            success=success,
            sampler=live,
            max_error_rate=0.25,
            note=lambda text: None,
            max_draws=3,
        )
        if begins:
            signal.begin(1)
        if observes:  # as the learner's thread does while the step is sampled
            live.observe(1, list(range(8)), [1.0] * 8)
        with pytest.raises(RlgymError):
            offered(signal, 1, [0, 9])
        drawn.append(world.drawn)
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize(("max_staleness", "stale"), [(0, "wait"), (1, "wait"), (1, "drop")])
def test_through_the_collector_every_batch_is_full(group_of, max_staleness, stale) -> None:
    world = World(group_of, lambda task: task % 2 == 1)
    order = EpochOrder(12, seed=0, shuffle=False)
    signal = filter_of(world)
    collector = Collector(
        draw=lambda step: order.draw(step, 4),
        sample=signal,
        batch_size=4,
        total_steps=3,
        max_staleness=max_staleness,
        stale=stale,
    )
    with closing(collector):
        for step in (1, 2, 3):
            found = collector.collect(step, version=0)
            assert len(found.groups) == 4
            assert all(index % 2 == 1 for index in found.indices)
            assert [g.group_id.rpartition("/")[2] for g in found.groups] == [
                str(index) for index in found.indices
            ]
            assert found.cards is not None
            assert [one.rollout_id for one in found.cards] == [one.id for one in found.rollouts]
            if stale == "wait":
                [left_out] = found.left_out
                # Half of each draw: 2 of 4 kept, 4 more drawn for the 2 missing, 2 of them kept.
                assert left_out.metrics["training/filter_groups/evicted_samples"] == 4


def test_further_tasks_come_again_only_where_a_draw_holds_no_other() -> None:
    order = EpochOrder(4, seed=0, shuffle=False)

    def further(draw: int, tried: set[int]) -> list[int]:
        return further_tasks(order, 1, draw=draw, batch_size=2, num_tasks=2, tried=tried)

    assert further(1, {0, 1}) == [2, 3]
    assert further(1, {0, 1, 2}) == [3]
    assert further(1, {0, 1, 2, 3}) == [2, 3]
    assert further(2, {0, 1, 2, 3}) == [0, 1]


def scored(**raws: float | None) -> Mapping[str, Component]:
    return {
        name: Component(
            raw=raw,
            weight=1.0,
            transformed=raw,
            contribution=raw,
            status=ScoreStatus.OK if raw is not None else ScoreStatus.NOT_APPLICABLE,
        )
        for name, raw in raws.items()
    }


def test_what_tells_siblings_apart_can_be_a_component() -> None:
    one = ScoreCard(
        rollout_id="a",
        reward=1.2,
        status=CardStatus.SCORED,
        components=scored(math=1.0, format=None),
    )
    task, accuracy = Task(prompt="?"), Accuracy(name="math")
    found = {name: signal_of(name, accuracy)(task, one) for name in ("reward", "acc", "format")}
    assert found == {"reward": 1.2, "acc": 1.0, "format": None}
    assert signal_of("acc", accuracy)(task, card("b", None)) is None


@pytest.mark.parametrize(
    ("metric", "says"),
    [("mth", "mth: there is no such reward; did you mean 'math'"), ("acc", "no reward says right")],
)
def test_an_unknown_metric_is_refused(metric: str, says: str) -> None:
    rewards = read_rewards({"components": {"math": {}}})
    check_signal(FilterGroupsConfig(enable=True, metric="math"), rewards, Accuracy())
    with pytest.raises(ConfigError, match=says):
        check_signal(FilterGroupsConfig(enable=True, metric=metric), rewards, Accuracy())


def test_a_step_that_was_under_way_is_sampled_whole_after_a_resume(group_of) -> None:
    world = World(group_of, lambda task: task % 2 == 1)
    collector = Collector(
        draw=lambda step: [0, 0, 0, 0], sample=filter_of(world), batch_size=4, total_steps=1
    )
    under_way = BufferState(missing={1: frozenset(range(4))})
    with closing(collector):
        collector.load(CollectorState(num_begun=1, buffer=under_way, indices={1: (0, 1, 2, 3)}))
        found = collector.collect(1, version=0)
    assert world.drawn[0] == (1, 0, (0, 1, 2, 3))
    assert found.indices == (1, 3, 5, 7)
    assert collector.state().buffer == BufferState(num_taken=4)


class Frail(World):
    """A world in which the episodes of some tasks fail, and their rollouts have no reward."""

    def __init__(self, group_of, has_signal, fails: Callable[[int], bool]):
        super().__init__(group_of, has_signal)
        self.fails = fails

    def sample(self, step, indices, *, on_group, caller, draw) -> None:
        def offer(place: int, group: RolloutGroup, **beside: object) -> None:
            if self.fails(indices[place]):
                broken = [
                    replace(r, status=RolloutStatus.ENVIRONMENT_ERROR, error="down")
                    for r in group.rollouts
                ]
                group = replace(group, rollouts=tuple(broken))
            on_group(place, group, **beside)

        super().sample(step, indices, on_group=offer, caller=caller, draw=draw)

    def score(self, step: int, rollouts: Sequence[Rollout]) -> list[ScoreCard]:
        cards = super().score(step, rollouts)
        return [
            one if rollout.status is RolloutStatus.OK else card(rollout.id, None)
            for one, rollout in zip(cards, rollouts, strict=True)
        ]


def test_failed_episodes_count_over_the_step_so_far_not_over_one_small_draw(group_of) -> None:
    # Of tasks 0 to 3, three carry signal; the one draw for what is missing, 4 and 5 (2 of them at
    # a share of 3/4), has one of two fail: half of that draw, a sixth of the step. 5 fills it.
    world = Frail(group_of, lambda task: task != 0, lambda task: task == 4)
    found, _ = offered(filter_of(world), 1, [0, 1, 2, 3])
    assert world.drawn == [(1, 0, (0, 1, 2, 3)), (1, 1, (4, 5))]
    assert [index for _, index, _ in found] == [1, 2, 3, 5]


def test_too_many_failed_episodes_end_a_step_at_a_later_draw(group_of) -> None:
    # One of 4 prompts is borne; with 4 and 5 it is 3 of 6.
    world = Frail(group_of, lambda task: task in (1, 2, 3), lambda task: task in (0, 4, 5))
    with pytest.raises(RlgymError, match="step 1: 6 of 12 episodes failed, more than"):
        offered(filter_of(world), 1, [0, 1, 2, 3])


def test_a_step_that_samples_on_and_on_says_so(group_of) -> None:
    said: list[str] = []
    world = World(group_of, lambda task: task == 7)
    with pytest.raises(RlgymError):
        offered(filter_of(world, max_draws=6, note=said.append), 3, [0, 1])
    assert said == [
        "step 3: still sampling after 5 rounds: 1 of 10 prompts have responses of different reward,"
        " and 2 are wanted"
    ]
