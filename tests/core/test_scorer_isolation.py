"""Rewards that hang, crash and eat memory harm their own rollouts."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for the worker processes too
import scorer_targets as targets

from rlgym_llm.errors import RewardError, UserError
from rlgym_llm.rewards import Reward, RewardContext, build_reward, reward
from rlgym_llm.scorers import async_scorer as scorer_async
from rlgym_llm.scorers import thread_scorer as scorer_thread
from rlgym_llm.scorers.scorer import Scorer, make_scorer
from rlgym_llm.scores import Score, ScoreStatus
from rlgym_llm.types import Completion, Rollout, Task, Turn

CTX = RewardContext()
OK, ERROR, TIMEOUT = ScoreStatus.OK, ScoreStatus.ERROR, ScoreStatus.TIMEOUT


def rows(*texts: str, info: Any = None) -> list[Rollout]:
    task = Task(prompt="2 + 3 = ?", answer="5", info=info or {})
    return [
        Rollout(
            id=f"r{index}",
            task=task,
            group_id=f"g{index // 2}",
            sample_index=index,
            seed=0,
            turns=(Turn(new_prompt_token_ids=(1,), completion=Completion(text=text)),),
        )
        for index, text in enumerate(texts)
    ]


@pytest.fixture
def scoring() -> Iterator[Callable[..., Callable[..., list[Score]]]]:
    """Makes a function from texts to scores; what it uses is closed at the end."""
    made: list[Scorer] = []

    def make(built: Reward, **settings: Any) -> Callable[..., list[Score]]:
        scorer = make_scorer(built, **settings)
        scorer.setup(CTX)
        made.append(scorer)
        return lambda *texts, **given: scorer.submit(rows(*texts, **given), CTX, name="x")()

    yield make
    for scorer in made:
        scorer.close()


def values(scores: Sequence[Score]) -> list[float | None]:
    return [score.value for score in scores]


HOSTILE = {
    "die": (ERROR, "its process died (the worker left with exit code 3)"),
    "kill": (ERROR, "its process died (the worker was killed by signal 9 (SIGKILL))"),
    "eat": (ERROR, "its process died (over its memory limit of 1024 MiB)"),
    "hang": (TIMEOUT, "s; its process was killed"),
    "interrupt": (ERROR, "KeyboardInterrupt"),
    "group": (ERROR, "BaseExceptionGroup: two (1 sub-exception)"),
}


class TestProcess:
    @pytest.mark.parametrize("cls", [targets.Obedient, targets.Batched])
    def test_hostile_rows_harm_themselves_alone(self, scoring, cls):
        # Among quick ones, so that they share requests with them.
        texts = ["x" * (n % 7 + 1) for n in range(200)]
        for place, text in zip(range(20, 200, 30), HOSTILE, strict=True):
            texts[place] = text
        seconds = 0.5 if cls is targets.Obedient else 0.25  # of a batch, for each of its rollouts
        score = scoring(cls(), backend="process", timeout_s=seconds, memory_mb=1024, concurrency=2)
        for text, found in zip(texts, score(*texts), strict=True):
            if text not in HOSTILE:
                assert (found.value, found.status) == (len(text), OK)
                continue
            status, error = HOSTILE[text]
            assert (found.value, found.status) == (None, status)
            assert error in (found.error or "")
            assert (found.error or "").startswith("reward 'x' on rollout 'r")

    def test_a_group_goes_as_a_whole_and_alone(self, scoring):
        score = scoring(targets.Siblings(), backend="process", concurrency=1)
        found = score("a", "aaa", "die", "a", "aa", "aa")
        assert values(found) == [0.25, 0.75, None, None, 0.5, 0.5]
        assert "'r3': its process died" in (found[3].error or "")

    def test_memory_that_grows_bit_by_bit(self, scoring):
        score = scoring(targets.Obedient(), backend="process", memory_mb=512, timeout_s=60)
        found = score("a", "eat slowly", "bb")
        assert values(found) == [1.0, None, 2.0]
        assert "over its memory limit of 512 MiB" in (found[1].error or "")

    def test_the_deadline_is_that_of_each_rollout(self, scoring):
        # One worker, and many calls a request: together they take far more than the deadline.
        score = scoring(targets.Obedient(), backend="process", timeout_s=1.0, concurrency=1)
        found = score(*["x"] * 100, *["nap"] * 60)
        assert [s.status for s in found] == [OK] * 100 + [ScoreStatus.NOT_APPLICABLE] * 60

    def test_a_batch_that_is_slow_in_all_is_none_that_hangs(self, scoring):
        score = scoring(targets.Batched(), backend="process", timeout_s=0.5, concurrency=1)
        assert {s.status for s in score(*["nap"] * 16)} == {ScoreStatus.NOT_APPLICABLE}

    def test_batches_are_of_the_same_size_whatever_the_load(self, scoring, tmp_path):
        log = tmp_path / "log"
        score = scoring(targets.Batched(log=str(log)), backend="process", concurrency=2)
        score(*["x"] * 40)
        sizes = [line.rpartition(" ")[0] for line in log.read_text().splitlines() if "of" in line]
        assert sorted(sizes) == ["batch of 16", "batch of 16", "batch of 8"]

    def test_workers_stay(self, scoring):
        score = scoring(targets.Obedient(), backend="process", concurrency=1)
        first, second = score("pid", "raise", "pid"), score("pid")
        pids = {first[0].value, first[2].value, second[0].value}
        assert len(pids) == 1
        assert os.getpid() not in pids

    def test_columns_arrive_as_they_are(self, scoring):
        built = build_reward(targets.typed)
        score = scoring(built, backend="process", concurrency=1)
        for level in ((1, 2), {1}, np.float32(0.5), {3: None}, b"x"):
            [found] = score("abc", info={"level": level})
            assert found.info["level"] == repr(level)

    def test_a_column_that_cannot_be_sent_harms_its_row(self, scoring):
        score = scoring(build_reward(targets.counted), concurrency=1)
        [found] = score("abc", info={"level": lambda: 1})
        assert "cannot be sent to another process: " in (found.error or "")
        assert values(score("abc")) == [3.0]

    def test_closing_lets_the_reward_close(self, tmp_path):
        log = tmp_path / "log"
        scorer = make_scorer(targets.Obedient(log=str(log), refuses="close"), backend="process")
        scorer.setup(CTX)
        scorer.close()  # what it raises is nobody's: the process ends
        assert [line.split()[0] for line in log.read_text().splitlines()] == ["setup", "close"]

    def test_after_close_what_was_submitted_raises(self):
        scorer = make_scorer(targets.Obedient(), backend="process", concurrency=1)
        scorer.setup(CTX)
        pending = scorer.submit(rows("hang", "a"), CTX, name="x")
        scorer.close()
        with pytest.raises(UserError, match="closed"):
            pending()


class TestThread:
    def test_an_overrun_is_cut_off_and_the_others_are_scored(self, scoring):
        score = scoring(targets.Obedient(), backend="thread", timeout_s=0.3, concurrency=2)
        found = score("a", "hang", "hang", "hang", "bb", "raise", "ccc")
        assert values(found) == [1.0, None, None, None, 2.0, None, 3.0]
        assert [s.status for s in found[1:4]] == [TIMEOUT] * 3
        assert found[1].error == (
            "reward 'x' on rollout 'r1': over its deadline of 0.3 s; its thread was given up"
        )

    def test_a_batch_is_taken_apart_to_find_who_hangs(self, scoring):
        score = scoring(targets.Batched(), backend="thread", timeout_s=0.4, concurrency=2)
        found = score("a", "hang", "bb")
        assert values(found) == [1.0, None, 2.0]
        assert found[1].status is TIMEOUT

    def test_hung_calls_of_others_block_no_thread(self):
        scorer = make_scorer(targets.Obedient(), backend="thread", timeout_s=0.3, concurrency=1)
        forgotten = scorer.submit(rows("hang"), CTX, name="x")
        assert values(scorer.submit(rows("a"), CTX, name="x")()) == [1.0]
        assert values(forgotten()) == [None]
        scorer.close()

    def test_too_many_hung_threads_are_an_error_that_says_so(self, scoring, monkeypatch):
        monkeypatch.setattr(scorer_thread, "MOST_HUNG", 3)
        score = scoring(targets.Obedient(), backend="thread", timeout_s=0.4, concurrency=2)
        found = score(*["hang"] * 5, *["a"] * 20)
        assert [s.status for s in found].count(TIMEOUT) in (3, 4)
        assert values(found)[-1] is None
        assert "3 calls of this reward hang in threads" in (found[-1].error or "")
        assert "declare backend 'process'" in (found[-1].error or "")

    def test_threads_come_back_when_what_hung_has_ended(self, scoring, monkeypatch):
        monkeypatch.setattr(scorer_thread, "MOST_HUNG", 1)
        gate = threading.Event()
        built = build_reward(reward("x")(lambda completion: gate.wait(60) or True))
        score = scoring(built, backend="thread", timeout_s=0.4, concurrency=1)
        assert values(score("a", "b")) == [None, None]
        gate.set()
        for _ in range(500):
            if values(score("a")) == [1.0]:
                break
            time.sleep(0.01)
        assert values(score("a", "b")) == [1.0, 1.0]

    def test_calls_run_side_by_side_up_to_the_declared_number(self, scoring):
        meeting = threading.Barrier(3, timeout=30)
        built = build_reward(reward("x", concurrency=3)(lambda completion: meeting.wait() >= 0))
        assert values(scoring(built, backend="thread")(*"abcdef")) == [1.0] * 6
        threads = scoring(targets.Obedient(), backend="thread", concurrency=2)(*["thread"] * 50)
        assert len({s.value for s in threads}) <= 2

    def test_an_interrupt_reaches_the_one_who_waits(self, scoring):
        score = scoring(targets.Obedient(), backend="thread", concurrency=1)
        with pytest.raises(KeyboardInterrupt):
            score("a", "interrupt", "b")
        assert values(score("a")) == [1.0]

    def test_after_close_what_was_submitted_raises(self):
        gate = threading.Event()
        built = build_reward(reward("x")(lambda completion: gate.wait(60)))
        scorer = make_scorer(built, backend="thread", concurrency=1)
        pending = scorer.submit(rows("a", "b"), CTX, name="x")
        threading.Timer(0.1, gate.set).start()
        scorer.close()
        with pytest.raises(UserError, match="'x' was closed while it scored"):
            pending()

    def test_a_forked_child_has_threads_of_its_own(self, scoring):
        score = scoring(targets.Obedient(), backend="thread", timeout_s=30)
        assert values(score("a")) == [1.0]
        assert in_child(lambda: values(score("a", "bb")) == [1.0, 2.0])


class TestAsync:
    def test_rows_fail_alone(self, scoring):
        score = scoring(targets.Awaiting(), backend="async", timeout_s=0.5)
        found = score("a", "wait", "cancel", "raise", "exit", "nan", "none", "steps", "bb")
        assert values(found) == [1.0, None, None, None, None, None, None, 1.0, 2.0]
        assert found[1].status is TIMEOUT
        assert "over its deadline of 0.5 s; it was cancelled" in (found[1].error or "")
        assert "CancelledError" in (found[2].error or "")
        assert "ValueError: told so" in (found[3].error or "")
        assert "SystemExit: 1" in (found[4].error or "")

    def test_slots_are_shared_and_the_deadline_starts_with_the_slot(self):
        built = targets.Awaiting()
        scorer = make_scorer(built, backend="async", timeout_s=1.0, concurrency=3)
        pending = [scorer.submit(rows(*["a"] * 100), CTX, name="x") for _ in range(2)]
        assert [values(wait()) for wait in pending] == [[1.0] * 100] * 2
        assert built.most_running == 3
        scorer.close()

    def test_one_loop_of_its_own_from_setup_to_close(self):
        built = targets.Awaiting()
        scorer = make_scorer(built, backend="async")
        scorer.setup(CTX)
        scorer.submit(rows("a"), CTX, name="x")()
        scorer.close()
        assert built.loops[0] is built.loops[1]
        assert built.loops[0].is_closed()

    def test_functions_may_be_async(self, scoring):
        scorer = make_scorer(build_reward(targets.judged))
        ctx = RewardContext(components={"other": (0.5, None)})
        assert values(scorer.submit(rows("5", "5"), ctx, name="x")()) == [1.5, 1.0]
        scorer.close()

    def test_setup_and_close_may_be_async(self):
        seen = []

        class Client(targets.Awaiting):
            async def setup(self, ctx):
                seen.append("setup")

            async def close(self):
                seen.append("close")

        scorer = make_scorer(Client(), backend="async")
        scorer.setup(CTX)
        assert values(scorer.submit(rows("a"), CTX, name="x")()) == [1.0]
        scorer.close()
        assert seen == ["setup", "close"]

    def test_failing_setup_and_close_name_the_reward(self):
        class Broken(targets.Awaiting):
            def __init__(self, fails):
                self.fails = fails

            def setup(self, ctx):
                if self.fails == "setup":
                    raise OSError("no server")

            async def close(self):
                raise OSError("closed badly")

        with pytest.raises(RewardError) as error:
            make_scorer(Broken("setup"), backend="async", name="b").setup(CTX)
        assert str(error.value) == "reward 'b' failed in setup: OSError: no server"
        scorer = make_scorer(Broken("close"), backend="async", name="b")
        scorer.setup(CTX)
        with pytest.raises(RewardError) as error:
            scorer.close()
        assert str(error.value) == "reward 'b' failed in close: OSError: closed badly"

    def test_closing_waits_for_no_loop_that_hangs(self, monkeypatch):
        monkeypatch.setattr(scorer_async, "_CLOSE_S", 0.2)
        hangs, gate = threading.Event(), threading.Event()

        class Blocking(targets.Awaiting):
            async def ascore(self, rollout, ctx):
                hangs.set()
                return gate.wait(60)

        scorer = make_scorer(Blocking(), backend="async", name="a")
        scorer.submit(rows("a"), CTX, name="a")
        assert hangs.wait(60)
        with pytest.raises(RewardError, match=r"'a' did not close within 0.2 s"):
            scorer.close()
        gate.set()

    @pytest.mark.parametrize("text", ["hang", "refuse"])
    def test_what_blocks_the_loop_is_left_behind(self, scoring, monkeypatch, text):
        monkeypatch.setattr(scorer_async, "_GRACE_S", 0.3)
        score = scoring(targets.Awaiting(), backend="async", timeout_s=0.6, concurrency=2)
        found = score("a", text, *["bb"] * 8)
        assert values(found) == [1.0, None, *[2.0] * 8]
        assert found[1].status is TIMEOUT
        assert "it blocks the event loop" in (found[1].error or "")

    def test_another_submission_is_carried_over(self, monkeypatch):
        monkeypatch.setattr(scorer_async, "_GRACE_S", 0.3)
        scorer = make_scorer(targets.Awaiting(), backend="async", timeout_s=0.6, concurrency=1)
        hangs = scorer.submit(rows("hang"), CTX, name="x")
        other = scorer.submit(rows("a", "bb"), CTX, name="x")
        assert values(hangs()) == [None]
        assert values(other()) == [1.0, 2.0]
        scorer.close()

    def test_an_interrupt_reaches_the_one_who_waits(self, scoring):
        score = scoring(targets.Awaiting(), backend="async")
        with pytest.raises(KeyboardInterrupt):
            score("a", "interrupt", "b")
        assert values(score("a")) == [1.0]

    def test_after_close_what_was_submitted_raises(self):
        scorer = make_scorer(targets.Awaiting(), backend="async")
        pending = scorer.submit(rows("wait"), CTX, name="x")
        scorer.close()
        with pytest.raises(UserError, match="'x' was closed while it scored"):
            pending()

    def test_a_forked_child_has_a_loop_of_its_own(self, scoring):
        score = scoring(targets.Awaiting(), backend="async", timeout_s=30)
        assert values(score("a")) == [1.0]
        assert in_child(lambda: values(score("a", "bb")) == [1.0, 2.0])


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def in_child(work: Callable[[], bool]) -> bool:
    """Whether the work is true in a forked child; it has a minute."""
    pid = os.fork()
    if pid == 0:
        is_true = False
        try:
            is_true = work()
        finally:
            os._exit(0 if is_true else 1)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.01)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return False


def test_time_is_told_and_reaches_the_score(scoring):
    for backend in ("inline", "thread", "process"):
        [found] = scoring(targets.Obedient(), backend=backend)("nap")
        assert found.seconds >= 0.05
