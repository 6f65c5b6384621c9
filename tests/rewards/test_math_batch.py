"""Many verdicts at once: batches, loops, threads, processes of every kind, dying workers."""

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from rlgym_llm_rewards.math import Policy, verify, verify_async, verify_many
from rlgym_llm_rewards.math.proof import sandbox

from rlgym_llm.errors import UserError

PLAIN = [
    ("#### 72", "72", "correct"),
    ("#### 73", "72", "wrong"),
    ("I do not know.", "72", "no_answer"),
    (r"\boxed{5 or 6}", "5", "ambiguous"),
    (r"\boxed{\frac{x^2-1}{x-1}}", "x+1", "correct"),
    (r"\boxed{(1,2]}", "1<x<2", "wrong"),
    ("#### 5", "", "bad_gold"),
]
PROVED = [
    (r"\boxed{x^{\log_x 5}}", "5", "correct"),
    (r"\boxed{(\sqrt{x}+1)^{30}}", r"(x+2\sqrt{x}+1)^{15}", "correct"),
    (r"\boxed{(1+\sqrt{2})^{30}}", r"(3+2\sqrt{2})^{15}", "correct"),
    (r"\boxed{e^{\ln x+1}}", "ex", "correct"),
]
"""What only the sandbox decides, and quickly."""
MIXED = [*PLAIN, *PROVED, (r"\boxed{\log_4(x^2+1)}", r"\frac{1}{3}\log_2(x^2+1)", "wrong")]


def hard(number):
    """Equal, and more than sympy proves within its deadline."""
    return (
        rf"\boxed{{10^{{{number}}}(\arcsin x+\arccos x)}}",
        rf"\frac{{10^{{{number}}}\pi}}{{2}}",
    )


def statuses(verdicts):
    return [verdict.status.value for verdict in verdicts]


def test_some_of_these_are_proved_in_the_sandbox():
    # A slow machine leaves the word to the probe, which sympy was asked about in vain.
    assert {verify(*case[:2]).rule for case in PROVED} <= {"symbolic", "probe"}


# -- batches -------------------------------------------------------------------------------------


def test_a_batch_in_order():
    completions, golds, expected = zip(*MIXED * 3, strict=True)
    assert statuses(verify_many(completions, golds)) == list(expected)
    assert verify_many(completions, golds) == [verify(c, g) for c, g, _ in MIXED * 3]


def test_a_batch_of_nothing():
    assert verify_many([], []) == []


def test_a_batch_has_prompts_and_a_policy():
    prompt = "Is it 40 + 2 = 42 or 41? Say which of these two it is."
    texts = [f"{prompt} I cannot say.", "It is 42."]
    golds = ["41", "42"]
    assert statuses(verify_many(texts, golds, prompts=[prompt, None])) == ["no_answer", "correct"]
    assert statuses(verify_many(texts, golds, policy="strict")) == ["no_answer"] * 2
    reduced = verify_many([r"\boxed{2/4}"], ["1/2"], policy=Policy(form="reduced"))
    assert statuses(reduced) == ["wrong"]


@pytest.mark.parametrize(
    ("golds", "prompts"), [(["1"], None), (["1"] * 3, None), (["1"] * 2, ["?"]), ([], None)]
)
def test_a_batch_of_unequal_lengths(golds, prompts):
    with pytest.raises(UserError, match="2 completions"):
        verify_many(["#### 1", "#### 2"], golds, prompts=prompts)


# -- loops ---------------------------------------------------------------------------------------


def test_two_thousand_at_once_of_which_some_are_hostile():
    rows = []
    for number in range(2000):
        if number % 100 == 99:
            rows.append((*hard(13 + number // 100), None))
        elif number % 50 == 25:  # a quick proof
            rows.append((rf"\boxed{{e^{{\ln x+{number}}}}}", rf"e^{{{number}}}x", "correct"))
        else:
            status = "wrong" if number % 2 else "correct"
            rows.append((f"#### {number}", f"{number - number % 2}", status))

    async def main():
        return await asyncio.gather(*(verify_async(c, g) for c, g, _ in rows))

    verdicts = asyncio.run(main())
    judged = [(row, v) for row, v in zip(rows, verdicts, strict=True) if row[2] is not None]
    assert len(judged) == 1980
    assert [(row, verdict) for row, verdict in judged if verdict.status != row[2]] == []
    assert {v.status.value for v in verdicts[99::100]} <= {"correct", "timeout"}


def test_the_loop_goes_on_during_a_proof():
    async def main():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                await asyncio.sleep(0.005)
                ticks += 1

        ticker = asyncio.create_task(tick())
        verdict = await verify_async(*hard(60))
        ticker.cancel()
        return verdict.status, ticks

    status, ticks = asyncio.run(main())
    assert status in ("correct", "timeout")
    assert ticks >= 10


def test_one_loop_after_the_other():
    for number in range(3):
        verdict = asyncio.run(
            verify_async(rf"\boxed{{e^{{\ln x+{number}+7}}}}", f"e^{{{number + 7}}}x")
        )
        assert verdict.is_correct
    assert asyncio.run(verify_async("#### 1", "1", policy="strict", prompt="?")).is_correct


# -- threads -------------------------------------------------------------------------------------


def test_sixteen_threads():
    rows = [
        (rf"\boxed{{e^{{\ln x+{n}}}{'' if n % 3 else '+1'}}}", f"e^{{{n}}}x")
        for n in range(100, 140)
    ] + [(c, g) for c, g, _ in MIXED]
    found = [None] * 16

    def work(index):
        found[index] = [verify(*row) for row in rows[index:] + rows[:index]]

    threads = [threading.Thread(target=work, args=(index,)) for index in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = [verify(*row) for row in rows]
    assert statuses(expected[:40]) == ["correct" if n % 3 else "wrong" for n in range(100, 140)]
    for index, verdicts in enumerate(found):
        assert verdicts == expected[index:] + expected[:index]


# -- a dying worker ------------------------------------------------------------------------------


def test_a_dying_worker_costs_one_verdict():
    sandbox().warm()
    pool = sandbox()._pool
    pids = [worker._process.pid for worker in pool._workers]
    free = len(pool._slots)
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(verify, *hard(200))
        while len(pool._slots) == free and not waiting.done():
            time.sleep(0.005)
        time.sleep(0.05)  # of the 0.35 seconds that sympy has
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        verdict = waiting.result()
    assert verdict.status == "timeout"
    assert "killed" in (verdict.reason or "")
    # Nothing of it stays: neither with the next nor with the same one.
    for completion, gold, status in MIXED:
        assert verify(completion, gold).status == status
    assert verify(r"\boxed{e^{\ln x+77}}", "e^{77}x").is_correct
    assert verify(*hard(200)).is_correct


def test_workers_that_die_while_idle():
    sandbox().warm()
    for worker in list(sandbox()._pool._workers):
        os.kill(worker._process.pid, signal.SIGKILL)
        worker._process.wait()
    assert verify(r"\boxed{e^{\ln x+88}}", "e^{88}x").is_correct


# -- processes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_processes(method):
    """The workers of a pool are daemonic, and each starts a sandbox of its own."""
    with multiprocessing.get_context(method).Pool(2) as pool:
        rows = [case[:2] for case in MIXED]
        assert statuses(pool.starmap(verify, rows, chunksize=6)) == [case[2] for case in MIXED]


FORKED = r"""
import multiprocessing
from rlgym_llm_rewards.math import verify
row = (r"\boxed{e^{\ln x+1}}", "ex")
proved = ("symbolic", "probe")  # a slow machine leaves the word to the probe
assert verify(*row).rule in proved  # the parent's workers run
with multiprocessing.get_context("fork").Pool(2) as pool:
    other = (r"\boxed{e^{\ln x+2}}", "e^2x")
    assert all(v.rule in proved for v in pool.starmap(verify, [row, other] * 3))
assert verify(r"\boxed{e^{\ln x+3}}", "e^3x").rule in proved  # and still do
print("done")
"""
NO_GUARD = r"""
from rlgym_llm_rewards.math import verify, verify_many
print(verify(r"\boxed{e^{\ln x+1}}", "ex").status, len(verify_many(["#### 1"] * 3, ["1"] * 3)))
"""
FORKED_ASYNC = r"""
import asyncio, multiprocessing
from rlgym_llm_rewards.math import verify_async
row = (r"\boxed{e^{\ln x+1}}", "ex")
assert asyncio.run(verify_async(*row)).is_correct  # the parent's threads run
def work(number):
    other = (rf"\boxed{{e^{{\ln x+{number}}}}}", f"e^{number}x")
    return asyncio.run(verify_async(*other)).is_correct
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert all(pool.map(work, [2, 3, 4]))
print("done")
"""
IN_AN_ENV = r"""
import gymnasium
from gymnasium.vector import AsyncVectorEnv

class Judge(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Discrete(4)
    def reset(self, *, seed=None, options=None):
        return 0, {}
    def step(self, action):
        from rlgym_llm_rewards.math import verify
        reward = verify(rf"\boxed{{e^{{\ln x+{action}}}}}", "e^{2}x").is_correct
        return 0, float(reward), True, False, {}

if __name__ == "__main__":
    env = AsyncVectorEnv([Judge] * 2, context="spawn")
    env.reset()
    print(env.step([2, 3])[1].tolist())
    env.close()
"""


@pytest.mark.parametrize(
    ("program", "out"),
    [(FORKED, "done"), (FORKED_ASYNC, "done"), (NO_GUARD, "correct 3"), (IN_AN_ENV, "[1.0, 0.0]")],
)
def test_a_program(program, out, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(program)
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=120)
    assert (done.stdout.strip(), done.stderr) == (out, "")
