import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import closing

import pytest
from rlgym_llm_trainers.training.collector import Collector

from rlgym_llm.episodes.callers_thread import CallersThread
from rlgym_llm.errors import RlgymError
from rlgym_llm.types import RolloutGroup

WAIT_S = 20.0


class Sampler:
    """Samples groups of the version that is current when a step begins, in whatever thread."""

    def __init__(self, group_of: Callable[..., RolloutGroup]) -> None:
        self.group_of = group_of
        self.version = 0
        self.begun: list[int] = []
        self.threads: list[str] = []
        self.may_end = threading.Event()
        self.may_end.set()
        self.changed = threading.Condition()

    def __call__(
        self,
        step: int,
        indices: Sequence[int],
        *,
        on_group: Callable[[int, RolloutGroup], None],
        caller: CallersThread,
        places: Collection[int] | None = None,
    ) -> None:
        version = self.version
        with self.changed:
            self.begun.append(step)
            self.threads.append(threading.current_thread().name)
            self.changed.notify_all()
        assert self.may_end.wait(WAIT_S)
        for place in reversed(range(len(indices)) if places is None else sorted(places)):
            on_group(place, self.group_of(version, version, name=f"{step}.{place}"))

    def wait_for(self, num_begun: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.begun) >= num_begun, WAIT_S)


@pytest.fixture
def sampler(group_of) -> Sampler:
    return Sampler(group_of)


def collector_of(sampler: Sampler, **options) -> Collector:
    defaults = {"batch_size": 2, "total_steps": 4}
    return Collector(
        draw=lambda step: [10 * step, 10 * step + 1], sample=sampler, **{**defaults, **options}
    )


def test_without_staleness_each_step_is_sampled_when_asked_for_and_in_this_thread(sampler) -> None:
    with closing(collector_of(sampler)) as collector:
        for step in (1, 2):
            found = collector.collect(step, version=sampler.version)
            assert sampler.begun == list(range(1, step + 1))
            assert found.indices == (10 * step, 10 * step + 1)
            assert [group.group_id for group in found.groups] == [f"{step}.0", f"{step}.1"]
            assert found.metrics == {}
            assert len(found.rollouts) == 4
            sampler.version += 1
    assert set(sampler.threads) == {threading.current_thread().name}


def test_the_tasks_of_steps_that_are_complete_are_forgotten(sampler) -> None:
    with closing(collector_of(sampler)) as collector:
        for step in (1, 2, 3):
            collector.collect(step, version=0)
            assert not collector._indices


@pytest.mark.parametrize("ahead", [1, 2])
def test_sampling_runs_ahead_by_the_staleness_and_no_further(sampler, ahead: int) -> None:
    with closing(collector_of(sampler, max_staleness=ahead)) as collector:
        for step in (1, 2, 3, 4):
            found = collector.collect(step, version=sampler.version)
            sampler.wait_for(min(4, step + ahead))
            assert sorted(sampler.begun) == list(range(1, min(4, step + ahead) + 1))
            assert {group.group_id for group in found.groups} == {f"{step}.0", f"{step}.1"}
            assert found.metrics["fully_async/current_param_version"] == step - 1
            assert found.metrics["fully_async/count/dropped_stale_groups"] == 0
            sampler.version += 1
    assert threading.current_thread().name not in sampler.threads


def test_what_was_sampled_ahead_is_counted_as_stale(sampler) -> None:
    with closing(collector_of(sampler, max_staleness=1, total_steps=2)) as collector:
        first = collector.collect(1, version=0)
        sampler.wait_for(2)
        second = collector.collect(2, version=1)
    assert first.metrics["fully_async/count/stale_samples_processed"] == 0
    assert second.metrics["fully_async/count/stale_samples_processed"] == 4
    assert second.metrics["fully_async/partial/partial_ratio"] == 0
    assert 0 <= second.metrics["fully_async/trainer/idle_ratio"] <= 1
    assert 0 <= second.metrics["fully_async/rollouter/idle_ratio"] <= 1


def test_drop_throws_away_what_ran_too_far_ahead(sampler) -> None:
    with closing(collector_of(sampler, max_staleness=1, stale="drop", total_steps=9)) as collector:
        collector.collect(1, version=0)
        sampler.wait_for(4)  # 1 and three more: all of version 0
        sampler.version = 2
        found = collector.collect(2, version=2)
    assert {group.rollouts[0].min_policy_version for group in found.groups} == {2}
    assert found.metrics["fully_async/count/dropped_stale_groups"] > 0


def test_what_was_dropped_is_sampled_anew_so_that_every_step_has_its_groups(sampler) -> None:
    with closing(collector_of(sampler, max_staleness=1, stale="drop", total_steps=6)) as collector:
        collector.collect(1, version=0)
        sampler.wait_for(4)
        for step in range(2, 7):
            sampler.version = step + 1  # two ahead: whatever was sampled before is too old
            found = collector.collect(step, version=sampler.version)
            assert len(found.groups) == 2
            assert all(g.rollouts[0].min_policy_version >= step for g in found.groups)
    assert len(sampler.begun) > 6


def test_a_step_of_which_all_is_too_old_ends_the_run(sampler) -> None:
    with (
        closing(collector_of(sampler)) as collector,
        pytest.raises(RlgymError, match="max_staleness 0"),
    ):
        collector.collect(1, version=5)


@pytest.mark.parametrize("max_staleness", [0, 1])
def test_what_sampling_raises_is_raised(max_staleness: int) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RlgymError("the engine is gone")

    collector = Collector(
        draw=lambda step: [step],
        sample=broken,
        batch_size=1,
        total_steps=3,
        max_staleness=max_staleness,
    )
    with closing(collector), pytest.raises(RlgymError, match="the engine is gone"):
        collector.collect(1, version=0)


def test_close_cancels_what_is_under_way(group_of) -> None:
    ended = threading.Event()

    def endless(
        step: int,
        indices: Sequence[int],
        *,
        on_group: Callable[[int, RolloutGroup], None],
        caller: CallersThread,
        places: Collection[int] | None = None,
    ) -> None:
        import asyncio

        if step == 1:
            on_group(0, group_of(0, name="1.0"))
            return
        try:
            caller.run(asyncio.sleep(WAIT_S))
        finally:
            ended.set()

    collector = Collector(
        draw=lambda step: [step], sample=endless, batch_size=1, total_steps=2, max_staleness=1
    )
    collector.collect(1, version=0)
    collector.close()
    assert ended.wait(WAIT_S / 2)
    collector.close()
