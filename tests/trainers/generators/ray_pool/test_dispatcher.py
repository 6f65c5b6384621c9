"""Requests to processes: by identity, to the one with room, and again elsewhere."""

from __future__ import annotations

import pytest

from rlgym_llm.errors import GeneratorError


def test_results_belong_to_their_requests_in_whatever_order_they_come(world, say):
    pool = world.pool(num_actors=2)
    world.acts["sample"] = world.hold
    asked = [say.request(1), say.request(2), say.request(1), say.request(3)]  # two are equal
    futures = [pool.submit(request) for request in asked]
    for call in reversed(world.next_helds(4)):
        call.says()
    found = say.results(futures)
    assert [one.token_ids for one in found] == [(1,), (2,), (1,), (3,)]
    assert {one.sampled_by for one in found} == {"actor-0", "actor-1"}
    assert all(one.version_spans == ((0, 1, 0),) for one in found)
    assert world.samples() == {(1,): 2, (2,): 1, (3,): 1}


def test_no_process_ever_has_more_than_its_share_and_the_one_with_most_room_is_next(world, say):
    pool = world.pool(num_actors=2, max_in_flight=3)
    world.acts["sample"] = world.hold
    futures = [pool.submit(say.request(i)) for i in range(12)]
    first = world.next_helds(6)
    assert [call.actor.name for call in first] == ["actor-0", "actor-1"] * 3
    assert world.held.empty()
    for _ in range(6):
        first.pop(0).says()
        first.append(world.next_held())
    for call in first:
        call.says()
    assert [one.token_ids for one in say.results(futures)] == [(i,) for i in range(12)]
    assert [actor.most_in_flight for actor in world.actors] == [3, 3]


def test_a_quick_process_takes_what_a_slow_one_has_no_room_for(world, say):
    pool = world.pool(num_actors=2, max_in_flight=2)
    world.acts["sample"] = world.hold_only("actor-0")
    futures = say.submit_at_once(pool, [say.request(i) for i in range(10)])
    slow = world.next_helds(2)
    quick = [
        future
        for i, future in enumerate(futures)
        if (i,) not in {c.what.prompt_token_ids for c in slow}
    ]
    assert {one.sampled_by for one in say.results(quick)} == {"actor-1"}
    for call in slow:
        call.says()
    assert {one.token_ids for one in say.results(futures)} == {(i,) for i in range(10)}


def test_a_request_that_was_cancelled_while_it_waited_is_never_sampled(world, say):
    pool = world.pool(num_actors=1, max_in_flight=1)
    world.acts["sample"] = world.hold
    first, second, third = (pool.submit(say.request(i)) for i in range(3))
    call = world.next_held()
    assert second.cancel()
    call.says()
    world.next_held().says()
    assert say.results([first, third])[1].token_ids == (2,)
    assert world.samples() == {(0,): 1, (2,): 1}


def test_what_was_cancelled_in_flight_leaves_room_when_it_is_done(world, say):
    pool = world.pool(num_actors=1, max_in_flight=1)
    world.acts["sample"] = world.hold
    first = pool.submit(say.request(1))
    call = world.next_held()
    assert first.cancel()
    second = pool.submit(say.request(2))
    call.says()
    world.next_held().says()
    assert say.results([second])[0].token_ids == (2,)


def test_a_failure_is_tried_again_elsewhere_and_nothing_else_is_touched(world, say):
    pool = world.pool(num_actors=2, evict_after=10)
    world.acts["sample"] = say.fail_for("actor-0", GeneratorError("out of memory"))
    found = say.results([pool.submit(say.request(i)) for i in range(4)])
    assert [one.token_ids for one in found] == [(i,) for i in range(4)]
    assert {one.sampled_by for one in found} == {"actor-1"}
    failed = [event[1] for event in world.actor("actor-0").events if event[0] == "sample"]
    assert len(failed) == len(set(failed)) > 0
    assert world.samples() == {(i,): 1 + ((i,) in failed) for i in range(4)}
    assert pool.metrics()["rollout/retried_turns"] == len(failed)
    assert not world.actor("actor-0").is_killed


def test_a_request_that_fails_everywhere_fails_after_its_retries_and_names_the_first(world, say):
    pool = world.pool(num_actors=2, max_retries=2, evict_after=10)
    reasons = iter(["first reason", "second", "third"])

    def fail(actor, request):
        raise RuntimeError(next(reasons))

    world.acts["sample"] = fail
    future = pool.submit(say.request(7))
    with pytest.raises(GeneratorError, match=r"3 attempts .*; the first: RuntimeError: first re"):
        future.result(timeout=20)
    names = [a.name for a in world.actors for event in a.events if event[0] == "sample"]
    assert sorted(set(names)) == ["actor-0", "actor-1"]  # elsewhere, before the same again
    assert len(names) == 3


@pytest.mark.parametrize("marked", [False, True])
def test_what_no_process_can_sample_is_not_tried_again(world, say, marked):
    pool = world.pool(num_actors=2)
    error = GeneratorError("the prompt is empty") if marked else ValueError("the prompt is empty")
    error.is_final = marked

    def fail(actor, request):
        raise error

    world.acts["sample"] = fail
    with pytest.raises(GeneratorError, match=r"cannot be sampled: .*the prompt is empty") as raised:
        pool.submit(say.request(7)).result(timeout=20)
    assert raised.value.__cause__ is error
    assert world.samples() == {(7,): 1}


def test_a_worker_that_answers_nonsense_fails_its_request(world, say):
    pool = world.pool(num_actors=1, max_retries=0)
    world.acts["sample"] = lambda actor, request: "no completion"
    with pytest.raises(GeneratorError, match="not sampled in 1 attempts"):
        pool.submit(say.request(7)).result(timeout=20)
