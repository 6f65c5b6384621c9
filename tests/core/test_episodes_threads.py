"""The threads: calls in threads, deadlines that are kept, and threads where they help."""

import asyncio
import threading

import pytest

from rlgym_llm.episodes import threads
from rlgym_llm.episodes.threads import DeadlineThreads, TooManyHungError
from rlgym_llm.errors import RlgymError


def run_in_threads(work, *, num_threads=32):
    async def main():
        threads = DeadlineThreads(num_threads)
        try:
            return await work(threads)
        finally:
            threads.stop()

    return asyncio.run(main())


def test_a_call_gives_what_it_returns_or_raises_in_another_thread():
    async def work(threads):
        here, there = threading.get_ident(), await threads.do(threading.get_ident)
        with pytest.raises(KeyError, match="gone"):
            await threads.do(lambda: {}["gone"])
        return here != there, await threads.do(lambda: 7)

    assert run_in_threads(work) == (True, 7)


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError(), StopIteration()])
def test_no_call_can_end_the_loop(error):
    def fail():
        raise error

    async def work(threads):
        with pytest.raises(RlgymError, match=type(error).__name__):
            await threads.do(fail)
        return await threads.do(lambda: "alive")

    assert run_in_threads(work) == "alive"


def test_a_late_call_is_given_up_and_its_thread_replaced():
    let_go = threading.Event()

    async def work(threads):
        def hang(call):
            with call.within(0.02):
                let_go.wait()

        late = asyncio.create_task(threads.call(hang))
        others = [asyncio.create_task(threads.do(lambda: "done")) for _ in range(5)]
        with pytest.raises(TimeoutError, match=r"no answer within 0.02 s; its thread was given up"):
            await late
        return await asyncio.gather(*others)

    assert run_in_threads(work, num_threads=1) == ["done"] * 5
    let_go.set()


def test_only_what_is_done_under_the_deadline_can_miss_it():
    async def work(threads):
        paused = threading.Event()

        def careful(call):
            with call.within(0.01):
                pass
            paused.wait(0.1)  # such as a tokenizer behind the environment
            return "kept"

        return await threads.call(careful)

    assert run_in_threads(work) == "kept"


def test_calls_that_wait_for_each_other_get_threads():
    barrier = threading.Barrier(8)

    async def work(threads):
        return await asyncio.gather(*(threads.do(lambda: barrier.wait(60)) for _ in range(8)))

    assert sorted(run_in_threads(work)) == list(range(8))


def test_there_are_never_more_threads_than_allowed():
    running, most, lock = 0, 0, threading.Lock()

    def count():
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        threading.Event().wait(0.01)
        with lock:
            running -= 1

    async def work(threads):
        await asyncio.gather(*(threads.do(count) for _ in range(24)))

    run_in_threads(work, num_threads=3)
    assert most <= 3


def test_threads_that_all_hang_say_so(monkeypatch):
    monkeypatch.setattr(threads, "MOST_HUNG", 2)
    let_go = threading.Event()

    async def work(threads):
        def hang(call):
            with call.within(0.01):
                let_go.wait()

        for _ in range(2):
            with pytest.raises(TimeoutError):
                await threads.call(hang)
        with pytest.raises(
            TooManyHungError, match="2 calls hang in threads, which nothing can stop"
        ):
            await threads.do(lambda: None)
        let_go.set()
        while threads._num_hung:  # they come back, and so do the threads
            await asyncio.sleep(0.001)
        return await threads.do(lambda: "well")

    assert run_in_threads(work) == "well"


def test_a_cancelled_call_is_nobodys():
    let_go = threading.Event()

    async def work(threads):
        task = asyncio.create_task(threads.do(let_go.wait))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        let_go.set()
        return await threads.do(lambda: "next")

    assert run_in_threads(work, num_threads=1) == "next"
