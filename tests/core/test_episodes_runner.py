"""EpisodeRunner: nobody waits for anybody, budgets end episodes, failures stay where they are."""

import asyncio
import threading

import pytest

from rlgym_llm.drift import extends
from rlgym_llm.env import TextEnv, TurnOutcome
from rlgym_llm.env_pool import EnvPool
from rlgym_llm.episodes.runner import EpisodeRunner
from rlgym_llm.errors import GeneratorError, RlgymError, ToolError, UserError
from rlgym_llm.failures import FAILURES, failure_of
from rlgym_llm.generate import AsyncGenerator, Generator, SamplingParams
from rlgym_llm.rollout import group_specs, run_episodes
from rlgym_llm.scores import CardStatus, ScoreCard
from rlgym_llm.scripted_generator import ScriptedGenerator
from rlgym_llm.tasks import ListTasks
from rlgym_llm.types import Message, Rollout, RolloutStatus, Task

PARAMS = SamplingParams(max_new_tokens=16)


class Chat(TextEnv):
    """Answers as often as its turns allow; ``acts`` says what else happens, by task id."""

    acts = {}  # noqa: RUF012

    def __init__(self, *, num_tasks=4, max_turns=3):
        tasks = ListTasks(Task(prompt=f"q{i}", id=f"t{i}") for i in range(num_tasks))
        super().__init__(tasks=tasks, max_turns=max_turns)

    def advance(self, action):
        if self.task.id in self.acts:
            self.acts[self.task.id]()
        return TurnOutcome(reply=(Message(role="user", content="go on"),))


def specs_of(make_env, *, group_size=1):
    return group_specs(list(make_env().tasks), group_size=group_size, seed=0)


def collect(make_env=Chat, generator=None, *, specs=None, batching=None, **limits):
    """All rollouts by task id, through `EpisodeRunner.stream`; in order of completion."""

    async def main():
        runner = EpisodeRunner(
            make_env=make_env,
            generator=generator or ScriptedGenerator(["hi"]),
            params=PARAMS,
            batching=batching,
            **limits,
        )
        try:
            return [one async for one in runner.stream(specs or specs_of(make_env))]
        finally:
            await runner.aclose()
            await runner.aclose()

    return {rollout.task.id: rollout for rollout in asyncio.run(main())}


def acting(**acts):
    return type("Acting", (Chat,), {"acts": acts})


def fail_with(error):
    def fail():
        raise error

    return fail


def test_the_scripted_generator_is_both_kinds():
    generator = ScriptedGenerator(["hi"])
    assert isinstance(generator, Generator)
    assert isinstance(generator, AsyncGenerator)


def test_many_episodes_of_a_generator_that_takes_its_time():
    rollouts = collect(
        lambda: Chat(num_tasks=200), ScriptedGenerator(["hi"], latency_s=0.05), num_threads=4
    )
    assert len(rollouts) == 200
    assert {rollout.num_turns for rollout in rollouts.values()} == {3}
    assert {str(rollout.status) for rollout in rollouts.values()} == {"ok"}


def test_a_hanging_environment_costs_only_itself():
    let_go = threading.Event()
    make_env = acting(t1=let_go.wait)
    try:
        rollouts = collect(make_env, step_timeout_s=0.3)
    finally:
        let_go.set()
    assert list(rollouts)[-1] == "t1", "the others were not held up"
    assert [str(rollouts[f"t{i}"].status) for i in range(4)] == ["ok", "timeout", "ok", "ok"]
    assert rollouts["t1"].error == (
        "Acting.step: TimeoutError: no answer within 0.3 s; its thread was given up"
    )
    assert rollouts["t0"].num_turns == 3


@pytest.mark.parametrize(
    ("error", "status", "cause"),
    [
        (KeyError("x"), RolloutStatus.ENVIRONMENT_ERROR, "environment"),
        (SystemExit(2), RolloutStatus.ENVIRONMENT_ERROR, "environment"),
        (ToolError("no sandbox"), RolloutStatus.TOOL_ERROR, "tool"),
        (TimeoutError("database"), RolloutStatus.TIMEOUT, "timeout"),
    ],
)
def test_what_a_step_raises_is_attributed(error, status, cause):
    pool = EnvPool(acting(t2=fail_with(error)))
    rollouts = collect(pool, specs=specs_of(Chat))
    assert rollouts["t2"].status is status
    assert failure_of(rollouts["t2"]) == cause
    assert type(error).__name__ in rollouts["t2"].error
    assert rollouts["t2"].error.startswith("Acting.step: ")
    assert rollouts["t2"].num_turns == 1, "what was sampled is kept"
    assert [failure_of(rollouts[f"t{i}"]) for i in (0, 1, 3)] == [None] * 3
    assert len(pool._idle) == 3, "the one that failed is dropped"
    pool.close()


def test_a_generator_fails_one_episode_or_breaks_its_contract():
    class Flaky(ScriptedGenerator):
        async def sample(self, request):
            if request.prompt_token_ids[:2] == tuple(map(ord, "q1")):
                raise GeneratorError("engine died")
            return await super().sample(request)

    rollouts = collect(generator=Flaky(["hi"]))
    assert failure_of(rollouts["t1"]) == "generator"
    assert rollouts["t1"].error == "Flaky.sample: GeneratorError: engine died"
    assert failure_of(rollouts["t0"]) is None

    class Bug(ScriptedGenerator):
        async def sample(self, request):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        collect(generator=Bug(["hi"]))


def test_a_failed_reward_is_a_failure_of_the_card():
    task = Task(prompt="?")
    rollout = Rollout(id="r", task=task, group_id="g", sample_index=0, seed=0, turns=())

    def card(status):
        return ScoreCard(
            rollout_id="r", reward=None, status=status, components={}, error="judge died"
        )

    assert failure_of(rollout, card(CardStatus.FAILED_REWARD)) == "reward"
    assert failure_of(rollout, card(CardStatus.MASKED)) is None
    assert "reward" in FAILURES


def test_every_status_but_ok_has_a_cause():
    causes = set()
    for status in RolloutStatus:
        error = None if status is RolloutStatus.OK else "it failed"
        rollout = Rollout(
            id="r",
            task=Task(prompt="?"),
            group_id="g",
            sample_index=0,
            seed=0,
            turns=(),
            status=status,
            error=error,
        )
        causes.add(failure_of(rollout))
    assert causes == {None, *FAILURES} - {"reward"}


def test_seconds_and_tokens_of_a_turn_are_budgets():
    rollouts = collect(max_turn_tokens=2)  # "hi" and its end are 3
    assert {rollout.num_tokens for rollout in rollouts.values()} == {2}
    assert {(r.truncated, r.terminated, str(r.status)) for r in rollouts.values()} == {
        (True, False, "ok")
    }
    slow = ScriptedGenerator(["hi"], latency_s=0.05)
    rollouts = collect(generator=slow, max_seconds=0.01)
    assert {(r.num_turns, r.truncated, str(r.status)) for r in rollouts.values()} == {
        (1, True, "ok")
    }


def test_a_limit_that_does_not_exist_is_named():
    with pytest.raises(UserError, match=r"unknown limit 'max_turn'; did you mean 'max_turns'\?"):
        collect(max_turn=2)
    with pytest.raises(UserError, match="step_timeout_s must be above 0 or None, got 0"):
        collect(step_timeout_s=0)


def test_an_asynchronous_environment_stays_on_the_loop():
    class Async(Chat):
        threads = set()  # noqa: RUF012

        async def areset(self, *, seed=None, options=None):
            self.threads.add(threading.get_ident())
            await asyncio.sleep(0)
            return self.reset(seed=seed, options=options)

        async def astep(self, action):
            self.threads.add(threading.get_ident())
            await asyncio.sleep(30 if self.task.id == "t1" else 0)
            return self.step(action)

    rollouts = collect(Async, step_timeout_s=0.2)
    assert Async.threads == {threading.get_ident()}
    assert rollouts["t1"].error == "Async.step: TimeoutError: no answer within 0.2 s"
    assert [str(rollouts[f"t{i}"].status) for i in range(4)] == ["ok", "timeout", "ok", "ok"]
    assert rollouts["t0"].turns[1].new_prompt_token_ids == tuple(map(ord, "user: go on\n"))


def test_siblings_share_the_encoding_of_their_prompt_and_tools_go_with_it():
    class Counting(ScriptedGenerator):
        calls = []  # noqa: RUF012

        def encode_prompt(self, prompt, tools=()):
            self.calls.append((prompt, tuple(tools)))
            return super().encode_prompt(prompt)

    tools = ({"name": "add"},)
    make_env = type("Tooled", (Chat,), {"tools": tools})
    collect(make_env, Counting(["hi"]), specs=specs_of(make_env, group_size=5))
    assert sorted(Counting.calls) == [(f"q{i}", tools) for i in range(4)]


def test_two_runs_are_equal_and_every_context_extends_the_last():
    class Seeded(ScriptedGenerator):
        """Says what its seed and context say, and keeps the contexts."""

        def __init__(self):
            super().__init__(["unused"])
            self.contexts = []

        def generate(self, requests):
            self.contexts += [request.prompt_token_ids for request in requests]
            lines = [f"{(r.seed + len(r.prompt_token_ids)) % 997}" for r in requests]
            return ScriptedGenerator(lines).generate(requests)

    def run():
        generator = Seeded()
        specs = specs_of(Chat, group_size=3)
        rollouts = run_episodes(specs, make_env=Chat, generator=generator, params=PARAMS)
        return rollouts, generator.contexts

    (rollouts, contexts), again = run(), run()
    assert (rollouts, contexts) == again
    assert len({rollout.turns[0].completion.text for rollout in rollouts}) > 1
    for rollout in rollouts:
        whole = ()
        for turn in rollout.turns:
            whole += turn.new_prompt_token_ids
            assert whole in contexts
            whole += turn.completion.token_ids
            assert extends(turn.new_prompt_token_ids, whole) == (turn is rollout.turns[0])


def test_an_interrupt_in_the_generator_reaches_the_caller():
    class Interrupted(ScriptedGenerator):
        def generate(self, requests):
            raise KeyboardInterrupt

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        run_episodes(specs_of(Chat), make_env=Chat, generator=Interrupted(["x"]), params=PARAMS)
    for thread in threading.enumerate():
        if thread.name.startswith("rlgym-e"):
            thread.join(10)
    assert threading.active_count() <= before


def test_a_generator_that_runs_dry_ends_the_run():
    class Dry(ScriptedGenerator):
        def generate(self, requests):
            return [next(iter(()))]

    with pytest.raises(RlgymError, match="StopIteration"):
        run_episodes(specs_of(Chat), make_env=Chat, generator=Dry(["x"]), params=PARAMS)


def test_a_caller_may_have_a_loop_of_its_own():
    async def notebook():
        return run_episodes(
            specs_of(Chat), make_env=Chat, generator=ScriptedGenerator(["x"]), params=PARAMS
        )

    assert [rollout.num_turns for rollout in asyncio.run(notebook())] == [3] * 4


def test_what_making_an_environment_raises_comes_out():
    def broken():
        raise UserError("no such data")

    with pytest.raises(UserError, match="no such data"):
        run_episodes(
            specs_of(Chat), make_env=broken, generator=ScriptedGenerator(["x"]), params=PARAMS
        )
