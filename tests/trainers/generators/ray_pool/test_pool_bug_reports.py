"""Public bug reports on pools of actors, as cases: see tests/trainers/test_bug_reports.py."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from rlgym_llm.episodes.runner import EpisodeRunner
from rlgym_llm.errors import GeneratorError
from rlgym_llm.generate import SamplingParams
from rlgym_llm.multi_turn import MultiTurnEnv
from rlgym_llm.rollout import group_specs
from rlgym_llm.scripted_generator import ScriptedGenerator
from rlgym_llm.tasks import ListTasks
from rlgym_llm.types import RolloutStatus, Task

pytestmark = pytest.mark.data


class OverPool:
    """An `AsyncGenerator` of characters that samples through a pool."""

    def __init__(self, pool):
        self.pool = pool
        self.policy_version = pool.policy_version
        self.encode_prompt = ScriptedGenerator(["x"]).encode_prompt
        self.encode_reply = ScriptedGenerator(["x"]).encode_reply

    async def sample(self, request):
        return await asyncio.wrap_future(self.pool.submit(request))

    async def aclose(self):
        pass


class Once(MultiTurnEnv[None]):
    """One turn, whatever is said."""

    def respond(self, state, action):
        return "done"


def rollouts(pool, prompts):
    """One episode for each prompt, through the runner of a run."""
    tasks = [Task(prompt=prompt, answer="x", id=prompt) for prompt in prompts]

    async def run():
        runner = EpisodeRunner(
            make_env=lambda: Once(tasks=ListTasks(tasks), max_turns=1),
            generator=OverPool(pool),
            params=SamplingParams(max_new_tokens=8),
        )
        try:
            return await runner.run_all(group_specs(tasks, group_size=1, seed=0))
        finally:
            await runner.aclose()

    return asyncio.run(run())


def test_a_broken_actor_is_evicted_and_the_healthy_one_does_the_work(world, say, bug_report):
    case = bug_report("rollout-dead_actor_reused_forever")
    given, right = case["input"], case["right"]["values"]
    pool = world.pool(
        num_actors=len(given["actors"]), max_restarts=0, max_in_flight=given["tasks"], evict_after=3
    )

    def act(actor, request):
        if given["actors"][actor.place] == "always_fails":
            raise RuntimeError("broken")
        return world.hold(actor, request)

    world.acts["sample"] = act
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(rollouts, pool, [f"t{i}" for i in range(given["tasks"])])
        for call in world.next_helds(right["results"]):  # the broken one is idle all the while
            call.says()
        found = running.result(timeout=20)
    assert [one.status for one in found] == [RolloutStatus.OK] * right["results"]
    assert {one.turns[0].completion.sampled_by for one in found} == {"actor-0"}
    broken = world.actor("actor-1")
    assert broken.is_killed
    assert len(broken.events) == 1 + 3  # its weights, and k requests
    assert pool.metrics()["rollout/actors_lost"] == right["evicted"]


def test_the_run_fails_only_when_no_actor_is_left_and_names_the_first_cause(world, say, bug_report):
    given = bug_report("rollout-dead_actor_reused_forever")["input"]
    pool = world.pool(num_actors=1, max_restarts=1, max_retries=99, evict_after=3)

    def act(actor, request):
        raise RuntimeError(f"broken {actor.name}")

    world.acts["sample"] = act
    found = rollouts(pool, [f"t{i}" for i in range(given["tasks"])])
    assert {one.status for one in found} == {RolloutStatus.GENERATOR_ERROR}
    first = "no generator process is left: actor-0 failed 3 times in a row: RuntimeError: broken"
    assert all(first in one.error for one in found)


def test_one_failing_request_leaves_the_others_alone(world, say, bug_report):
    case = bug_report("rollout-one_exception_loses_the_rest")
    given, right = case["input"], case["right"]["values"]
    for retryable in given["retryable"]:
        pool = world.pool(num_actors=2, max_retries=2, evict_after=99)
        tried = []

        def act(actor, request, retryable=retryable, tried=tried):
            if request.prompt_token_ids[-1] in map(ord, map(str, given["fails"])):
                tried.append(actor.name)
                raise GeneratorError("answered 503") if retryable else ValueError("too long")

        world.acts["sample"] = act
        found = rollouts(pool, [f"t{i}" for i in range(given["tasks"])])
        ok = [one for one in found if one.status is RolloutStatus.OK]
        failed = [one for one in found if one.status is RolloutStatus.GENERATOR_ERROR]
        assert (len(ok), len(failed)) == (right["ok"], right["failed"])
        assert ("answered 503" if retryable else "too long") in failed[0].error
        assert len(tried) == (3 if retryable else 1)


def test_a_retryable_failure_that_passes_is_no_failure(world, say, bug_report):
    given = bug_report("rollout-one_exception_loses_the_rest")["input"]
    pool = world.pool(num_actors=1)
    world.acts["sample"] = say.fail_for("actor-0", say.gone())  # its replacement samples
    found = rollouts(pool, [f"t{i}" for i in range(given["tasks"])])
    assert [one.status for one in found] == [RolloutStatus.OK] * given["tasks"]


def test_a_result_says_task_actor_and_version_itself(world, say, bug_report):
    case = bug_report("rollout-map_order_by_actor_type")
    given = case["input"]
    pool = world.pool(num_actors=len(given["actors"]), max_in_flight=1, version=5)
    world.acts["sample"] = world.hold
    futures = [pool.submit(say.request(*map(ord, task))) for task in given["tasks"]]
    first, second = world.next_helds(2)
    second.says()  # the second actor is quicker, so the third task is its own
    third = world.next_held()
    third.says()
    first.says()
    fields = {
        "task_id": [one.token_ids for one in say.results(futures)],
        "actor_id": [one.sampled_by for one in say.results(futures)],
        "weight_version": [one.version_spans[0][2] for one in say.results(futures)],
    }
    assert sorted(fields) == sorted(case["right"]["values"]["has_fields"])
    assert fields["task_id"] == [tuple(map(ord, task)) for task in given["tasks"]]
    assert fields["actor_id"] == ["actor-0", "actor-1", "actor-1"]
    assert fields["weight_version"] == [5, 5, 5]
