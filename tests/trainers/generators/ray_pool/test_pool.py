"""Processes that die, hang, fail or never start: nothing is lost, nothing is doubled."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest

from rlgym_llm.errors import GeneratorError, UserError, WeightSyncError


def test_the_turns_of_a_dead_process_are_sampled_elsewhere_once_and_it_is_replaced(world, say):
    pool = world.pool(num_actors=2, version=4)
    world.acts["sample"] = world.hold
    futures = [pool.submit(say.request(i)) for i in range(8)]
    calls = world.next_helds(8)
    world.acts.clear()
    dead = [call for call in calls if call.actor.name == "actor-0"]
    dead[0].fails(say.gone())  # the others never answer: one sign of death is enough
    for call in calls:
        if call not in dead:
            call.says()
    found = say.results(futures)
    assert [one.token_ids for one in found] == [(i,) for i in range(8)]
    assert world.actor("actor-0").is_killed
    assert sum(world.samples().values()) == 8 + len(dead)
    metrics = pool.metrics()
    assert metrics["rollout/actor_restarts"] == metrics["rollout/actors_lost"] == 1
    assert metrics["rollout/retried_turns"] == len(dead) == 4


def test_a_replacement_loads_the_current_weights_before_its_first_request(world, say):
    pool = world.pool(num_actors=1, version=0)
    pool.load(say.weights(1))
    world.acts["sample"] = say.fail_for("actor-0", say.gone())
    (found,) = say.results([pool.submit(say.request(5))])
    assert found.sampled_by == "actor-1"
    assert found.version_spans == ((0, 1, 1),)
    assert world.actor("actor-1").events == [("load", 1), ("sample", (5,))]


def test_an_answer_that_comes_after_the_process_was_given_up_is_dropped(world, say):
    pool = world.pool(num_actors=1, generate_timeout_s=0.05)
    world.acts["sample"] = world.hold_only("actor-0")
    future = pool.submit(say.request(5))
    late = world.next_held()
    (found,) = say.results([future])
    assert found.sampled_by == "actor-1"
    assert world.actor("actor-0").is_killed
    late.answer.cancel()
    assert future.result() is found


def test_a_turn_that_hangs_everywhere_fails_and_says_so(world, say):
    pool = world.pool(num_actors=2, generate_timeout_s=0.05, max_retries=1)
    world.acts["sample"] = world.hold
    with pytest.raises(GeneratorError, match=r"actor-\d did not sample a turn within 0.05 s"):
        pool.submit(say.request(5)).result(timeout=20)


def test_when_no_process_is_left_all_fail_with_the_first_cause(world, say):
    pool = world.pool(num_actors=2, max_restarts=0, max_retries=9)
    reasons = iter(["the first reason", "the second"])

    def die(actor, request):
        raise type(say.gone())(f"{actor.name} is gone: {next(reasons)}")

    world.acts["sample"] = die
    futures = [pool.submit(say.request(i)) for i in range(10)]
    for future in futures:
        with pytest.raises(GeneratorError, match=r"no generator process is left: .*first reason"):
            future.result(timeout=20)
    with pytest.raises(GeneratorError, match="first reason"):  # at once, from now on
        pool.submit(say.request(99)).result(timeout=20)
    with pytest.raises(WeightSyncError, match="first reason"):
        pool.load(say.weights(1))


def test_replacements_in_a_row_without_a_success_are_counted_per_place(world, say):
    pool = world.pool(num_actors=1, max_restarts=2, max_retries=9)

    def die(actor, request):
        if len(world.actors) != 2:  # the second process samples, which begins the count anew
            raise say.gone(actor.name)

    world.acts["sample"] = die
    assert say.results([pool.submit(say.request(0))])[0].sampled_by == "actor-1"
    world.acts["sample"] = say.fail_for("actor-1", say.gone("actor-1"))
    assert say.results([pool.submit(say.request(0))])[0].sampled_by == "actor-2"

    def die_always(actor, request):
        raise say.gone(actor.name)

    world.acts["sample"] = die_always
    with pytest.raises(GeneratorError, match="no generator process is left: actor-2 is gone"):
        pool.submit(say.request(0)).result(timeout=20)
    assert len(world.actors) == 5  # actor-2 and two replacements after it


def test_the_only_process_is_replaced_before_a_request_has_used_up_its_tries(world, say):
    pool = world.pool(num_actors=1)
    world.acts["sample"] = say.fail_for("actor-0", GeneratorError("out of memory"))
    (found,) = say.results([pool.submit(say.request(1))])
    assert found.sampled_by == "actor-1"
    assert pool.metrics()["rollout/retried_turns"] == 2


def test_a_mistake_of_the_users_is_raised_as_it_is_and_not_tried_again(world, say):
    def refuse(actor, what):
        raise UserError("--model nowhere: no such folder")

    world.acts["ready"] = refuse
    pool = world.pool(num_actors=2, version=None)
    with pytest.raises(UserError, match="no such folder"):
        pool.load(say.weights(0))
    assert len(world.actors) == 2


def test_a_process_that_does_not_start_is_replaced_until_that_is_hopeless(world, say):
    world.acts["ready"] = world.hold_only("actor-0")
    pool = world.pool(num_actors=1, start_timeout_s=0.05)
    assert say.results([pool.submit(say.request(1))])[0].sampled_by == "actor-1"
    assert world.actor("actor-0").is_killed

    world.acts["ready"] = world.hold
    pool = world.pool(num_actors=1, version=None, start_timeout_s=0.02, max_restarts=2)
    with pytest.raises(WeightSyncError, match=r"actor-0 was not ready within 0.02 s"):
        pool.load(say.weights(0))


def test_one_that_cannot_even_be_made_ends_its_place(world, say):
    def make(name, place):
        raise UserError("no Ray")

    world.make = make
    pool = world.pool(num_actors=2, version=None)
    with pytest.raises(UserError, match="no Ray"):
        pool.load(say.weights(0))


def test_nothing_is_sampled_before_the_first_weights(world, say):
    pool = world.pool(version=None)
    assert pool.policy_version is None
    with pytest.raises(GeneratorError, match="no weights yet: sync comes first"):
        pool.submit(say.request(1)).result(timeout=20)
    pool.load(say.weights(17))
    assert pool.policy_version == 17
    assert say.results([pool.submit(say.request(1))])[0].version_spans == ((0, 1, 17),)


def test_the_first_sync_waits_for_all_processes(world, say):
    world.acts["ready"] = lambda actor, what: None if actor.place else world.hold(actor, what)
    world.acts["load"] = world.hold
    pool = world.pool(version=None)
    loading = in_thread(pool.load, say.weights(0))
    world.next_held().answer.set_result(None)  # ready, at last
    calls = world.next_helds(2)
    assert {call.actor.name for call in calls} == {"actor-0", "actor-1"}
    for call in calls:
        call.answer.set_result(None)
    loading.result(timeout=20)


def test_all_have_the_new_weights_before_anyone_samples_from_them(world, say):
    pool = world.pool(num_actors=2)
    world.acts["load"] = world.hold
    loading = in_thread(pool.load, say.weights(1))
    calls = world.next_helds(2)  # side by side
    calls[0].answer.set_result(None)
    future = pool.submit(say.request(1))
    assert pool.policy_version == 0
    assert not world.samples()
    calls[1].answer.set_result(None)
    loading.result(timeout=20)
    assert pool.policy_version == 1
    assert say.results([future])[0].version_spans == ((0, 1, 1),)


def test_one_that_does_not_take_the_weights_is_replaced_and_the_rest_go_on(world, say):
    pool = world.pool(num_actors=2)
    world.acts["load"] = say.fail_for("actor-0", WeightSyncError("the file is torn"))
    pool.load(say.weights(1))
    assert pool.policy_version == 1
    assert world.actor("actor-0").is_killed
    found = say.results([pool.submit(say.request(i)) for i in range(20)])
    assert {one.version_spans for one in found} == {((0, 1, 1),)}
    assert pool.metrics()["rollout/actor_restarts"] == 1


def test_one_that_hangs_in_a_sync_is_replaced_at_the_deadline(world, say):
    pool = world.pool(num_actors=2, sync_timeout_s=0.05)
    world.acts["load"] = world.hold_only("actor-1")
    pool.load(say.weights(1))
    assert pool.policy_version == 1
    assert [actor.is_killed for actor in world.actors[:2]] == [False, True]


def test_where_nobody_takes_them_the_old_weights_stay_in_service(world, say):
    pool = world.pool(num_actors=2, version=3)

    def refuse(actor, what):
        raise WeightSyncError("the file is torn")

    world.acts["load"] = refuse
    with pytest.raises(WeightSyncError, match=r"no generator took .* version 4: the file is torn"):
        pool.load(say.weights(4))
    assert pool.policy_version == 3
    found = say.results([pool.submit(say.request(i)) for i in range(4)])
    assert {one.version_spans for one in found} == {((0, 1, 3),)}
    assert not any(actor.is_killed for actor in world.actors)
    world.acts.clear()
    pool.load(say.weights(4))  # and the next sync is not in the way of the one that failed
    assert pool.policy_version == 4


def test_a_canary_that_disagrees_ends_the_sync_with_the_old_weights_in_service(world, say):
    pool = world.pool(num_actors=2, version=3)
    world.acts["score"] = lambda actor, what: [[0.5]] if actor.name == "actor-1" else None

    def check(name, scores):
        if scores != [[4.0]]:
            raise WeightSyncError(f"generator {name} does not sample from the learner's weights")

    with pytest.raises(WeightSyncError, match="generator actor-1 does not sample from"):
        pool.load(say.weights(4, check=check))
    assert pool.policy_version == 3
    found = say.results([pool.submit(say.request(i)) for i in range(4)])
    assert {one.version_spans for one in found} == {((0, 1, 3),)}  # of replacements
    assert [actor.is_killed for actor in world.actors[:2]] == [True, True]


def test_a_replacement_is_checked_by_the_same_canary(world, say):
    checked = []
    pool = world.pool(num_actors=1, version=None)
    pool.load(say.weights(0, check=lambda name, scores: checked.append((name, scores))))
    world.acts["sample"] = say.fail_for("actor-0", say.gone())
    say.results([pool.submit(say.request(1))])
    assert checked == [("actor-0", [[0.0]]), ("actor-1", [[0.0]])]


def test_a_replacement_whose_version_is_outdated_meanwhile_takes_the_newer_one(world, say):
    pool = world.pool(num_actors=2, version=0)
    world.acts["load"] = world.hold_only("actor-2")
    world.acts["sample"] = say.fail_for("actor-0", say.gone())
    pool.submit(say.request(1)).result(timeout=20)
    old = world.next_held()  # actor-2, on version 0
    pool.load(say.weights(1))
    old.fails(WeightSyncError("v0: no such weight file; its version was given up"))
    new = world.next_held()
    assert new.what == ("v1", 1)
    world.acts.clear()
    new.answer.set_result(None)
    world.acts["sample"] = world.hold_only("actor-1")
    futures = say.submit_at_once(pool, [say.request(i) for i in range(8)])
    calls = world.next_helds(4)  # all that actor-1 takes; the rest are actor-2's
    for call in calls:
        call.says()
    found = say.results(futures)
    assert {(one.sampled_by, one.version_spans) for one in found} >= {("actor-2", ((0, 1, 1),))}
    assert world.actor("actor-2").events[:2] == [("load", 0), ("load", 1)]
    assert pool.metrics()["rollout/actor_restarts"] == 1


def test_a_replacement_that_comes_up_in_a_sync_waits_for_its_outcome(world, say):
    pool = world.pool(num_actors=2, version=0)
    world.acts["ready"] = world.hold_only("actor-2")
    world.acts["sample"] = say.fail_for("actor-0", say.gone())
    pool.submit(say.request(1)).result(timeout=20)
    replacement = world.next_held()
    world.acts["load"] = world.hold_only("actor-1")
    loading = in_thread(pool.load, say.weights(1))
    syncing = world.next_held()
    replacement.answer.set_result(None)
    for _ in range(3):
        pool.metrics()  # the pool's loop has gone round since
    syncing.answer.set_result(None)
    loading.result(timeout=20)
    world.acts["sample"] = world.hold
    futures = [pool.submit(say.request(i)) for i in range(8)]
    for call in world.next_helds(8):
        call.says()
    assert {one.version_spans for one in say.results(futures)} == {((0, 1, 1),)}
    assert world.actor("actor-2").events[0] == ("load", 1)


def test_a_replacement_that_took_the_old_weights_during_a_sync_takes_the_new_ones_too(world, say):
    pool = world.pool(num_actors=2, version=0)
    world.acts["sample"] = say.fail_for("actor-1", say.gone("actor-1"))
    world.acts["load"] = world.hold
    say.results(say.submit_at_once(pool, [say.request(i) for i in range(2)]))
    old = world.next_held()
    assert (old.actor.name, old.what) == ("actor-2", ("v0", 0))
    loading = in_thread(pool.load, say.weights(1))
    syncing = world.next_held()
    assert (syncing.actor.name, syncing.what) == ("actor-0", ("v1", 1))
    old.answer.set_result(None)  # while the others are still at it
    for _ in range(3):
        pool.metrics()  # the pool's loop has gone round since
    syncing.answer.set_result(None)
    loading.result(timeout=20)
    new = world.next_held()
    assert (new.actor.name, new.what) == ("actor-2", ("v1", 1))
    new.answer.set_result(None)
    found = say.results([pool.submit(say.request(i)) for i in range(12)])
    assert {one.version_spans for one in found} == {((0, 1, 1),)}


@pytest.mark.parametrize("num_actors", [1, 2])
def test_where_all_die_before_a_sync_their_replacements_take_it(world, say, num_actors):
    pool = world.pool(num_actors=num_actors, version=3)

    def die_once(actor, what):
        if actor.name in {f"actor-{i}" for i in range(num_actors)}:
            raise say.gone(actor.name)

    world.acts["load"] = die_once
    pool.load(say.weights(4))
    assert pool.policy_version == 4
    found = say.results([pool.submit(say.request(i)) for i in range(4)])
    assert {one.version_spans for one in found} == {((0, 1, 4),)}
    assert all(actor.is_killed for actor in world.actors[:num_actors])


def test_a_sync_in_which_every_replacement_dies_too_ends_with_the_first_cause(world, say):
    pool = world.pool(num_actors=1, version=3, max_restarts=2)

    def die(actor, what):
        raise say.gone(actor.name)

    world.acts["load"] = die
    with pytest.raises(WeightSyncError, match=r"no generator process is left: actor-0 is gone"):
        pool.load(say.weights(4))
    assert len(world.actors) == 3


def test_a_closed_pool_fails_what_waits_and_ends_the_processes(world, say):
    pool = world.pool(num_actors=2, max_in_flight=1)
    world.acts["sample"] = world.hold
    futures = [pool.submit(say.request(i)) for i in range(5)]
    world.next_helds(2)
    pool.close()
    pool.close()
    for future in [*futures, pool.submit(say.request(9))]:
        with pytest.raises(GeneratorError, match="clos"):
            future.result(timeout=20)
    assert all(actor.is_killed for actor in world.actors)
    assert len(world.actors) == 2


def test_closing_ends_a_sync_that_hangs(world, say):
    pool = world.pool(num_actors=1)
    world.acts["load"] = world.hold
    loading = in_thread(pool.load, say.weights(1))
    world.next_held()
    pool.close()
    assert loading.exception(timeout=20) is not None


def test_idle_time_is_that_of_places_with_nothing_in_flight(world, say, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("rlgym_llm_trainers.generators.busy_time.time.monotonic", lambda: now[0])
    pool = world.pool(num_actors=2)
    world.acts["sample"] = world.hold
    futures = [pool.submit(say.request(i)) for i in range(2)]
    first, second = world.next_helds(2)
    now[0] += 6  # both work
    first.says()
    futures[0].result(timeout=20)
    now[0] += 2  # one works
    assert pool.metrics()["fully_async/rollouter/idle_ratio"] == pytest.approx(2 / 16)
    now[0] += 4  # one works still
    second.says()
    futures[1].result(timeout=20)
    now[0] += 4  # none
    assert pool.metrics()["fully_async/rollouter/idle_ratio"] == pytest.approx(12 / 16)


def in_thread(function, *arguments):
    """The call's future; the thread ends with the call."""
    future = Future()

    def run():
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
