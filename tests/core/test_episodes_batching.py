"""Which requests make a batch: everyone who is expected, in order, whatever the threads do."""

import asyncio
import threading

import pytest

from rlgym_llm.env import TextEnv, TurnOutcome
from rlgym_llm.episodes.batching import Batching, BatchingGenerator
from rlgym_llm.errors import GeneratorError, UserError
from rlgym_llm.generate import GenerateRequest, SamplingParams
from rlgym_llm.rollout import REPEATABLE, group_specs, run_episodes
from rlgym_llm.scripted_generator import ScriptedGenerator
from rlgym_llm.tasks import ListTasks
from rlgym_llm.types import Message, Task

PARAMS = SamplingParams(max_new_tokens=16)
TASKS = ListTasks(Task(prompt=f"q{i}", id=f"t{i}") for i in range(6))


class Chat(TextEnv):
    """Three turns; ``before_step`` may hold an episode up."""

    before_step = staticmethod(lambda env: None)

    def __init__(self):
        super().__init__(tasks=TASKS, max_turns=3)

    def advance(self, action):
        self.before_step(self)
        return TurnOutcome(reply=(Message(role="user", content="go on"),))


class Recording(ScriptedGenerator):
    """Keeps the prompts' first two characters, batch by batch."""

    def __init__(self, fails=()):
        super().__init__(lambda context: context[:2])
        self.batches = []
        self.fails = fails
        self.threads = set()

    def generate(self, requests):
        self.threads.add(threading.current_thread())
        number = len(self.batches)
        self.batches.append(["".join(map(chr, r.prompt_token_ids[:2])) for r in requests])
        if number in self.fails:
            raise GeneratorError("engine died")
        return super().generate(requests)


def run(generator, batching=REPEATABLE, *, make_env=Chat, **limits):
    specs = group_specs(list(TASKS), group_size=1, seed=0)
    return run_episodes(
        specs, make_env=make_env, generator=generator, params=PARAMS, batching=batching, **limits
    )


ALL = [f"q{i}" for i in range(6)]


def test_everyone_goes_together_in_order_and_in_the_callers_thread():
    generator = Recording()
    run(generator)
    assert generator.batches == [ALL] * 3
    assert generator.threads == {threading.current_thread()}


def test_a_round_that_is_too_large_is_split_in_order():
    generator = Recording()
    run(generator, Batching(max_size=4, linger_s=1.0))
    assert generator.batches == [ALL[:4], ALL[4:]] * 3


def test_order_does_not_depend_on_how_long_environments_take():
    pause = threading.Event()

    class Uneven(Chat):
        @staticmethod
        def before_step(env):
            pause.wait(0.03 if env.task.id in ("t0", "t3") else 0.0)

    for _ in range(2):
        generator = Recording()
        run(generator, make_env=Uneven)
        assert generator.batches == [ALL] * 3


def test_who_hangs_holds_the_others_up_once_and_then_no_more():
    let_go = threading.Event()

    class Hangs(Chat):
        @staticmethod
        def before_step(env):
            if env.task.id == "t2":
                let_go.wait()

    generator = Recording()
    try:
        rollouts = run(generator, Batching(linger_s=0.1), make_env=Hangs, step_timeout_s=1.0)
    finally:
        let_go.set()
    others = [name for name in ALL if name != "q2"]
    assert generator.batches == [ALL, others, others]
    assert [str(rollout.status) for rollout in rollouts] == [
        *("ok", "ok", "timeout", "ok", "ok", "ok")
    ]
    assert rollouts[2].error == (
        "Hangs.step: TimeoutError: no answer within 1 s; its thread was given up"
    )
    assert rollouts[2].num_turns == 1, "what was sampled is kept"


def test_a_batch_that_fails_fails_its_own_episodes():
    generator = Recording(fails=(2,))  # the second round's first batch
    rollouts = run(generator, Batching(max_size=3, linger_s=1.0))
    failed = [str(rollout.status) for rollout in rollouts]
    assert failed == ["generator_error"] * 3 + ["ok"] * 3
    assert [rollout.num_turns for rollout in rollouts] == [1, 1, 1, 3, 3, 3]
    assert generator.batches == [ALL[:3], ALL[3:], ALL[:3], ALL[3:], ALL[3:]]


def test_several_batches_fly_at_a_time_in_threads_of_their_own():
    barrier = threading.Barrier(2)

    class Pair(Recording):
        def generate(self, requests):
            barrier.wait(60)  # passes only where two batches are sampled at once
            return super().generate(requests)

    generator = Pair()
    run(generator, Batching(max_size=3, linger_s=1.0, max_in_flight=2))
    assert sorted(map(tuple, generator.batches)) == sorted(
        map(tuple, [ALL[:3], ALL[3:]] * 3),
    )
    assert threading.current_thread() not in generator.threads


def test_a_request_that_is_cancelled_is_not_sampled_and_not_waited_for():
    asked = []

    async def call(work):
        return work()

    class Counting(ScriptedGenerator):
        def generate(self, requests):
            asked.extend(request.seed for request in requests)
            return super().generate(requests)

    def request(seed):
        return GenerateRequest(prompt_token_ids=(1,), params=PARAMS, seed=seed)

    async def main():
        batches = BatchingGenerator(Counting(["x"]), Batching(linger_s=60), call)

        async def one(seed, begin):
            with batches.slot() as sample:
                await begin.wait()
                return (await sample(request(seed))).text

        now, later = asyncio.Event(), asyncio.Event()
        tasks = [asyncio.create_task(one(seed, now if seed < 2 else later)) for seed in range(3)]
        await asyncio.sleep(0)  # they take their seats
        now.set()
        await asyncio.sleep(0.01)
        tasks[0].cancel()
        later.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, *others = asyncio.run(main())
    assert isinstance(first, asyncio.CancelledError)
    assert others == ["x", "x"]
    assert asked == [1, 2]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_size": 0}, "max_size must be at least 1 or None, got 0"),
        ({"max_in_flight": -1}, "max_in_flight must be at least 1 or None, got -1"),
        ({"linger_s": float("nan")}, "linger_s must be 0 or more, got nan"),
    ],
)
def test_settings_that_make_no_sense(options, says):
    with pytest.raises(UserError, match=says):
        Batching(**options)
