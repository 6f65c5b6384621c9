"""Public bug reports about scoring, each with the right value."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for the worker processes too
import scorer_targets as targets

from rlgym_llm.layouts.conversations import reply_text
from rlgym_llm.rewards import RewardContext, build_reward, reward
from rlgym_llm.scorers.scorer import make_scorer
from rlgym_llm.scores import ScoreStatus
from rlgym_llm.types import Completion, Rollout, Task, Turn

pytestmark = pytest.mark.data

CTX = RewardContext()


def rows(*texts: str, answer: str = "7") -> list[Rollout]:
    task = Task(prompt="2 + 5 = ?", answer=answer)
    return [
        Rollout(
            id=f"r{index}",
            task=task,
            group_id="g",
            sample_index=index,
            seed=0,
            turns=(Turn(new_prompt_token_ids=(), completion=Completion(text=text)),),
        )
        for index, text in enumerate(texts)
    ]


def test_blocking_scorer_stalls_loop(bug_report):
    """A scorer that blocks keeps to its threads: the loop beats on, results come in order."""
    case = bug_report("reward-blocking_scorer_stalls_loop")
    num, workers = case["input"]["samples"], case["input"]["workers"]
    # Each call waits for the others of its round: as many do run side by side as there are workers.
    together = threading.Barrier(workers, timeout=60)
    gate = threading.Event()

    @reward("blocking", backend="thread", concurrency=workers, range=(0, num))
    def blocking(completion: str) -> float:
        together.wait()
        gate.wait(60)
        return float(completion)

    scorer = make_scorer(build_reward(blocking))
    scorer.setup(CTX)

    async def collect() -> list[float | None]:
        task = asyncio.create_task(
            asyncio.to_thread(scorer.submit(rows(*map(str, range(num))), CTX, name="b"))
        )
        for _ in range(10):  # heartbeats while every thread blocks
            await asyncio.sleep(0.01)
        assert not task.done()
        gate.set()
        return [score.value for score in await task]

    assert asyncio.run(collect()) == [float(n) for n in range(num)]
    scorer.close()


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_sigalrm_off_main_thread(bug_report, monkeypatch, backend):
    """Deadlines are kept from any thread and without SIGALRM; a hang is a timeout."""
    case = bug_report("reward-sigalrm_off_main_thread")
    monkeypatch.delattr("signal.SIGALRM")
    scorer = make_scorer(targets.Boxed(), backend=backend, timeout_s=0.5, concurrency=2)
    found = []

    def work() -> None:
        scorer.setup(CTX)
        texts = case["input"]["completion"], "hang"
        found.extend(scorer.submit(rows(*texts, answer=case["input"]["gold"]), CTX, name="b")())
        scorer.close()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found[0].value == case["right"]["values"]["score"]
    assert (found[1].value, found[1].status) == (None, ScoreStatus.TIMEOUT)
    assert "'b' on rollout 'r1': over its deadline of 0.5 s" in found[1].error


def test_completion_type_changes(bug_report):
    """A completion is text for every reward, whichever form the row had."""
    case = bug_report("reward-completion_type_changes")
    seen = []

    @reward("tagged")
    def tagged(completion: str, answer: str) -> bool:
        seen.append(type(completion))
        return completion == f"<answer>{answer}</answer>"

    texts = [reply_text(form) for form in case["input"]["completion_forms"]]
    scorer = make_scorer(build_reward(tagged))
    scores = [score.value for score in scorer.submit(rows(*texts), CTX, name="tagged")()]
    assert scores == case["right"]["values"]["scores"]
    assert seen == [str, str]
