"""The runner: token bookkeeping, budgets, seeds, and failures that stay where they happened."""

import copy
import time
from dataclasses import replace

import gymnasium
import pytest

from rlgym_llm.env import TextEnv, TurnOutcome
from rlgym_llm.env_pool import EnvPool
from rlgym_llm.errors import GeneratorError, UserError
from rlgym_llm.generate import GenerateRequest, SamplingParams
from rlgym_llm.rollout import (
    EpisodeSpec,
    group_specs,
    room_for_turn,
    run_episodes,
    run_groups,
    stable_seed,
)
from rlgym_llm.scripted_generator import ScriptedGenerator
from rlgym_llm.tasks import ListTasks
from rlgym_llm.types import FinishReason, Message, RolloutStatus, Task

TASKS = ListTasks(Task(prompt=f"q{i}", answer=str(i), id=f"t{i}") for i in range(4))
PARAMS = SamplingParams(max_new_tokens=16)


class Echo(TextEnv):
    """Answers every turn until the policy says stop; fails where it is told to."""

    built = 0

    def __init__(self, **options):
        type(self).built += 1
        super().__init__(**{"tasks": TASKS, "max_turns": 5, **options})

    def advance(self, action):
        if action.text == "break":
            raise KeyError("no such tool")
        if action.text == "hang":
            raise TimeoutError("tool took over 5 s")
        if action.text == "stop":
            return TurnOutcome(terminated=True)
        reply = Message(role="user", content=f"you said {action.text}")
        return TurnOutcome(reply=(reply,), env_reward=0.5)


class Single(TextEnv):
    def __init__(self, **options):
        super().__init__(tasks=TASKS, **options)


class RecordingGenerator(ScriptedGenerator):
    """Keeps the requests of every batch."""

    def __init__(self, script):
        super().__init__(script)
        self.batches = []

    def generate(self, requests):
        self.batches.append(list(requests))
        return super().generate(requests)


def by_prompt(**lines):
    """A script that looks up the line for the prompt (its first two characters) and the turn."""

    def script(context):
        turn = context.count("user: ")
        return lines[context[:2]][turn]

    return script


def run(script, *, tasks=TASKS, make_env=Echo, params=PARAMS, **limits):
    generator = script if isinstance(script, ScriptedGenerator) else RecordingGenerator(script)
    specs = group_specs(list(tasks), group_size=1, seed=0)
    rollouts = run_episodes(specs, make_env=make_env, generator=generator, params=params, **limits)
    return rollouts, generator


def test_ids_are_appended_and_never_encoded_again():
    (rollout,), generator = run(["ab", "stop"], tasks=[TASKS[0]])
    first, second = rollout.turns
    assert first.new_prompt_token_ids == tuple(map(ord, "q0"))
    assert first.completion.token_ids == (*map(ord, "ab"), 0)
    assert first.env_reward == 0.5
    assert second.new_prompt_token_ids == tuple(map(ord, "user: you said ab\n"))
    assert second.completion.text == "stop"
    assert second.reply == ()
    requests = [batch[0] for batch in generator.batches]
    # The whole context of turn 2: prompt, the sampled ids with their end token, the reply.
    assert requests[1].prompt_token_ids == (
        first.new_prompt_token_ids + first.completion.token_ids + second.new_prompt_token_ids
    )
    assert requests[0].seed == rollout.seed
    assert requests[1].seed == stable_seed(rollout.seed, 1)
    assert (rollout.terminated, rollout.truncated, rollout.status) == (True, False, "ok")


def test_all_active_episodes_go_as_one_batch_and_come_back_in_order():
    script = by_prompt(
        q0=["a", "b", "stop"], q1=["stop"], q2=["a", "stop"], q3=["a", "b", "c", "stop"]
    )
    rollouts, generator = run(script)
    assert [len(batch) for batch in generator.batches] == [4, 3, 2, 1]
    assert [rollout.num_turns for rollout in rollouts] == [3, 1, 2, 4]
    assert [rollout.task.id for rollout in rollouts] == ["t0", "t1", "t2", "t3"]


@pytest.mark.data
def test_one_failing_episode_loses_no_other(bug_report):
    case = bug_report("rollout-one_exception_loses_the_rest")
    (failing,) = case["input"]["fails"]
    lines = {f"q{i}": ["a", "break" if i == failing else "stop"] for i in range(4)}
    rollouts, _ = run(by_prompt(**lines))
    statuses = [rollout.status for rollout in rollouts]
    right = case["right"]["values"]
    assert statuses.count(RolloutStatus.OK) == right["ok"]
    assert statuses.count(RolloutStatus.ENVIRONMENT_ERROR) == right["failed"]
    failed = rollouts[failing]
    assert failed.status is RolloutStatus.ENVIRONMENT_ERROR
    assert failed.error == "Echo.step: KeyError: 'no such tool'"
    assert [turn.completion.text for turn in failed.turns] == ["a", "break"], "samples are kept"
    assert not failed.terminated
    assert not failed.truncated


def test_failures_are_attributed():
    class FailsAtReset(Echo):
        def reset(self, *, seed=None, options=None):
            if options["task"].id == "t1":
                raise RuntimeError("no database")
            return super().reset(seed=seed, options=options)

    rollouts, _ = run(["stop"], make_env=FailsAtReset)
    assert rollouts[1].status is RolloutStatus.ENVIRONMENT_ERROR
    assert rollouts[1].error == "FailsAtReset.reset: RuntimeError: no database"
    assert rollouts[1].turns == ()
    rollouts, _ = run(["hang"])
    assert {rollout.status for rollout in rollouts} == {RolloutStatus.TIMEOUT}
    assert rollouts[0].error == "Echo.step: TimeoutError: tool took over 5 s"


def test_a_failing_generator_fails_its_batch_only():
    class Flaky(RecordingGenerator):
        def generate(self, requests):
            if len(self.batches) == 1:
                self.batches.append(requests)
                raise GeneratorError("engine died")
            return super().generate(requests)

    rollouts, _ = run(Flaky(by_prompt(q0=["stop"], q1=["a"], q2=["a"], q3=["stop"])))
    assert [rollout.status.value for rollout in rollouts] == [
        *("ok", "generator_error", "generator_error", "ok")
    ]
    assert rollouts[1].error == "Flaky.generate: GeneratorError: engine died"
    assert rollouts[1].num_turns == 1


def test_a_generator_that_breaks_its_contract_is_named():
    class Short(ScriptedGenerator):
        def generate(self, requests):
            return super().generate(requests)[:1]

    rollouts, _ = run(Short(["stop"]))
    assert rollouts[0].error == "Short.generate: GeneratorError: 1 completions for 4 requests"

    class NoTemplate(ScriptedGenerator):
        def encode_prompt(self, prompt):
            if prompt == "q2":
                raise ValueError("no chat template")
            return super().encode_prompt(prompt)

    rollouts, _ = run(NoTemplate(["stop"]))
    assert [rollout.status.value for rollout in rollouts] == ["ok", "ok", "generator_error", "ok"]
    assert rollouts[2].error == "NoTemplate.encode: ValueError: no chat template"

    class Bug(ScriptedGenerator):
        def generate(self, requests):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(Bug(["stop"]))


@pytest.mark.data
def test_an_overflowing_observation_truncates_without_a_request(bug_report):
    case = bug_report("rollout-observation_overflows_context")
    given, right = case["input"], case["right"]["values"]
    room = room_for_turn(
        400,
        num_sampled=100,
        num_context=given["prompt_len_after_obs"],
        max_context_tokens=given["max_model_len"],
    )
    assert room == right["remaining"]
    # "q0" + "ab" + end are 5 ids, the reply has 18: 23 of 20 are used before turn 2.
    (rollout,), generator = run(["ab"], tasks=[TASKS[0]], max_context_tokens=20)
    assert len(generator.batches) == 1
    assert rollout.truncated is right["truncated"]
    assert not rollout.terminated
    assert rollout.status is RolloutStatus.OK
    assert rollout.turns[0].reply[0].content == "you said ab"


@pytest.mark.data
def test_the_budget_is_the_rollouts_and_not_the_turns(bug_report):
    case = bug_report("rollout-budget_per_rollout")
    given = case["input"]
    room = room_for_turn(
        given["max_tokens_per_turn"],
        num_sampled=sum(given["used"]),
        num_context=sum(given["used"]),
        max_rollout_tokens=given["max_tokens_per_rollout"],
    )
    assert room == case["right"]["values"]["next_max_tokens"]
    # Two turns of 3 tokens ("ab" and the end) leave 2 of 8; the third is cut there.
    (rollout,), generator = run(["ab"], tasks=[TASKS[0]], max_rollout_tokens=8)
    assert [batch[0].params.max_new_tokens for batch in generator.batches] == [8, 5, 2]
    assert rollout.num_tokens == 8
    assert rollout.turns[2].completion.finish_reason is FinishReason.LENGTH
    assert (rollout.terminated, rollout.truncated) == (False, True)


@pytest.mark.data
def test_a_finished_episode_is_not_asked_whether_another_turn_fits(bug_report):
    case = bug_report("rollout-overflow_check_on_finished_episode")["input"]
    (rollout,), _ = run(["stop"], tasks=[TASKS[0]], max_rollout_tokens=5, max_context_tokens=7)
    # "q0" + "stop" + end fill the context to the last token; the episode is done all the same.
    assert rollout.terminated is case["done"]
    assert not rollout.truncated


def test_a_prompt_that_is_too_long_truncates_without_a_request():
    tasks = [Task(prompt="q0"), Task(prompt="q0 and more")]
    rollouts, generator = run(["stop"], tasks=tasks, max_prompt_tokens=3)
    assert [len(batch) for batch in generator.batches] == [1]
    assert [rollout.truncated for rollout in rollouts] == [False, True]
    assert rollouts[1].turns == ()
    assert rollouts[1].status is RolloutStatus.OK


def test_a_scripted_line_ends_with_a_stop_string():
    generator = ScriptedGenerator(["<answer>5</answer> and so on", "no end"])
    params = SamplingParams(max_new_tokens=64, stop=("so", "</answer>"))
    request = GenerateRequest(prompt_token_ids=(1,), params=params, seed=0)
    stopped, whole = generator.generate([request, request])
    assert stopped.text == "<answer>5</answer>"
    assert stopped.num_tokens == len(stopped.text) == stopped.token_char_ends[-1]
    assert stopped.finish_reason is FinishReason.STOP
    assert (whole.text, whole.token_ids[-1]) == ("no end", ScriptedGenerator.END_TOKEN_ID)
    [free] = ScriptedGenerator(["a b"]).generate([replace(request, params=PARAMS)])
    assert free.text == "a b"


def test_the_runner_may_allow_fewer_turns_than_the_environment():
    (rollout,), _ = run(["a"], tasks=[TASKS[0]], max_turns=2)
    assert (rollout.num_turns, rollout.truncated, rollout.terminated) == (2, True, False)
    (rollout,), _ = run(["a"], tasks=[TASKS[0]])
    assert (rollout.num_turns, rollout.truncated, rollout.terminated) == (5, True, False)


def test_groups_hold_siblings_with_seeds_of_their_own():
    tasks = [TASKS[0], TASKS[1], TASKS[0]]
    groups = run_groups(
        tasks,
        group_size=2,
        seed=7,
        make_env=Single,
        generator=ScriptedGenerator(["x"]),
        params=PARAMS,
    )
    assert [group.task.id for group in groups] == ["t0", "t1", "t0"]
    assert len({group.group_id for group in groups}) == 3
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    assert [rollout.sample_index for rollout in rollouts] == [0, 1] * 3
    assert len({rollout.seed for rollout in rollouts}) == 6
    assert len({rollout.id for rollout in rollouts}) == 6
    assert rollouts[1].seed == stable_seed(7, "t0", 0, 1)
    assert rollouts[4].seed == stable_seed(7, "t0", 1, 0)


def test_some_places_are_played_as_they_would_be_among_all():
    def play(**some):
        return run_groups(
            [TASKS[0], TASKS[1], TASKS[0]],
            group_size=2,
            seed=7,
            make_env=Single,
            generator=ScriptedGenerator(["x"]),
            params=PARAMS,
            **some,
        )

    told = []
    found = play(places={2, 1}, on_group=lambda place, group: told.append((place, group.group_id)))
    everything = play()
    ids = [[(r.id, r.seed, r.group_id) for r in group.rollouts] for group in everything]
    assert [[(r.id, r.seed, r.group_id) for r in group.rollouts] for group in found] == ids[1:]
    assert sorted(told) == [(place, everything[place].group_id) for place in (1, 2)]


def test_seeds_depend_on_the_task_and_not_on_its_neighbours():
    def seeds(tasks, seed):
        specs = group_specs(tasks, group_size=3, seed=seed)
        return {(spec.task.id, spec.sample_index): spec.seed for spec in specs}

    assert seeds([TASKS[0], TASKS[1]], 1) == seeds([TASKS[1], TASKS[0]], 1)
    assert not set(seeds([TASKS[0]], 1).values()) & set(seeds([TASKS[0]], 2).values())
    # Fixed for all time, or stored runs could not be repeated: SHA-256 of '[1, "a"]', 53 bits.
    assert stable_seed(1, "a") == 2619341862358752
    with pytest.raises(UserError, match="group_size=0"):
        group_specs([TASKS[0]], group_size=0, seed=1)


def test_environments_are_reused_and_failed_ones_dropped():
    Echo.built = 0
    pool = EnvPool(Echo)
    run(["stop"], make_env=pool)
    idle = list(pool._idle)
    run(["stop"], make_env=pool)
    assert Echo.built == 1
    assert {id(env) for env in pool._idle} == {id(env) for env in idle}
    assert all(env.tasks is TASKS for env in idle), "copies share the tasks"
    assert all(env.defer_scoring for env in idle), "no judge is called twice"
    run(["stop"], make_env=pool, tasks=TASKS)
    run(["break"], make_env=pool, tasks=[TASKS[0]])
    assert len(pool._idle) == 3
    pool.close()
    pool.close()


@pytest.mark.data
def test_a_broken_environment_is_not_given_work_again(bug_report):
    case = bug_report("rollout-dead_actor_reused_forever")["input"]

    class BreaksForGood(Echo):
        is_broken = False

        def advance(self, action):
            self.is_broken = self.is_broken or action.text == "break"
            if self.is_broken:
                raise RuntimeError("gone")
            return super().advance(action)

    pool = EnvPool(BreaksForGood)
    run(["break"], make_env=pool, tasks=[TASKS[0]])
    results = [run(["stop"], make_env=pool, tasks=[TASKS[0]])[0][0] for _ in range(case["tasks"])]
    assert [rollout.status.value for rollout in results] == ["ok"] * case["tasks"]


def test_wrapped_environments_run_too():
    def make():
        return gymnasium.wrappers.OrderEnforcing(Echo())

    (rollout,), _ = run(["a", "stop"], tasks=[TASKS[0]], make_env=make)
    assert rollout.num_turns == 2


def test_specs_are_plain_data():
    spec = EpisodeSpec(id="r", task=TASKS[0], group_id="g", sample_index=0, seed=1)
    assert copy.deepcopy(spec) == spec


@pytest.mark.slow
def test_our_own_share_of_256_episodes_is_small():
    pool = EnvPool(Single)
    generator = ScriptedGenerator(["#### 5"])
    specs = group_specs(list(TASKS), group_size=64, seed=0)
    done = generator.generate([])
    times = []
    for _ in range(5):
        start = time.perf_counter()
        done = run_episodes(specs, make_env=pool, generator=generator, params=PARAMS)
        times.append(time.perf_counter() - start)
    assert len(done) == 256
    assert min(times) < 0.06, f"256 episodes took {min(times):.3f} s"
