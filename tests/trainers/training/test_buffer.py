import threading
from collections.abc import Callable

import pytest
from rlgym_llm_trainers.training.buffer import GroupBuffer, Offer, is_fresh, staleness

from rlgym_llm.types import RolloutGroup, Task


@pytest.fixture
def offer(group_of) -> Callable[..., Offer]:
    def make(step: int, place: int, *versions: int) -> Offer:
        group = group_of(*versions, name=f"{step}.{place}")
        return Offer(step=step, place=place, index=10 * step + place, group=group)

    return make


def names(offers: list[Offer]) -> list[str]:
    return [one.group.group_id for one in offers]


@pytest.mark.data
def test_time_in_the_queue_counts_as_staleness(bug_report, group_of) -> None:
    case = bug_report("async-queue_time_not_counted")
    given, right = case["input"], case["right"]["values"]
    group = group_of(given["generated_with_version"], given["trainer_about_to_use_version"])
    version = given["trainer_about_to_use_version"]
    assert staleness(group, version) == right["lag"]
    assert is_fresh(group, version, given["max_lag"]) is right["accept"]
    assert is_fresh(group, version, right["lag"])
    buffer = GroupBuffer(max_staleness=given["max_lag"], stale="wait")
    buffer.put(Offer(step=7, place=0, index=0, group=group))
    assert buffer.take(1, step=7, version=version) == []  # whole: the fresh sibling goes too
    assert buffer.num_dropped == 1


def test_a_group_without_versions_is_fresh() -> None:
    silent = RolloutGroup(group_id="g", task=Task(prompt="?"), rollouts=())
    assert staleness(silent, 9) == 0


def test_wait_hands_out_a_step_in_the_order_of_its_tasks(offer) -> None:
    buffer = GroupBuffer(max_staleness=1, stale="wait")
    for one in (offer(2, 0, 0), offer(1, 1, 0), offer(2, 1, 0), offer(1, 0, 0)):
        buffer.put(one)
    assert names(buffer.take(2, step=1, version=0)) == ["1.0", "1.1"]
    assert names(buffer.take(2, step=2, version=1)) == ["2.0", "2.1"]
    assert buffer.num_dropped == 0


def test_wait_waits_for_the_whole_step(offer) -> None:
    buffer = GroupBuffer(max_staleness=0, stale="wait")
    buffer.put(offer(1, 1, 0))
    taken: list[Offer] = []
    thread = threading.Thread(target=lambda: taken.extend(buffer.take(2, step=1, version=0)))
    thread.start()
    thread.join(0.05)
    assert thread.is_alive()
    assert not taken
    buffer.put(offer(1, 0, 0))
    thread.join(10)
    assert names(taken) == ["1.0", "1.1"]


def test_drop_hands_out_what_is_there_and_throws_away_what_is_old(offer) -> None:
    buffer = GroupBuffer(max_staleness=1, stale="drop")
    for one in (offer(3, 0, 1), offer(1, 0, 0), offer(2, 1, 1), offer(2, 0, 1)):
        buffer.put(one)
    assert names(buffer.take(2, step=2, version=2)) == ["2.1", "2.0"]
    assert (buffer.num_taken, buffer.num_dropped) == (2, 1)
    assert buffer.take(1, step=3, version=3) is None  # the last one was too old: others are needed
    assert buffer.num_dropped == 2
    buffer.put(offer(4, 0, 3))
    assert names(buffer.take(1, step=3, version=3)) == ["4.0"]


def test_a_failure_reaches_whoever_waits_or_asks_later() -> None:
    buffer = GroupBuffer(max_staleness=0, stale="wait")
    raised: list[BaseException] = []

    def ask() -> None:
        try:
            buffer.take(1, step=1, version=0)
        except OSError as error:
            raised.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    buffer.fail(OSError("no more"))
    buffer.fail(ValueError("a consequence"))
    thread.join(10)
    ask()
    assert [str(error) for error in raised] == ["no more", "no more"]
