"""The crew: calls in threads, deadlines that are kept, and threads where they help."""

import asyncio
import threading

import pytest

from rlgym_llm.episodes import threads
from rlgym_llm.episodes.threads import Crew, CrewSpentError
from rlgym_llm.errors import RlgymError


def crew_run(work, *, num_threads=32):
    async def main():
        crew = Crew(num_threads)
        try:
            return await work(crew)
        finally:
            crew.stop()

    return asyncio.run(main())


def test_a_call_gives_what_it_returns_or_raises_in_another_thread():
    async def work(crew):
        here, there = threading.get_ident(), await crew.do(threading.get_ident)
        with pytest.raises(KeyError, match="gone"):
            await crew.do(lambda: {}["gone"])
        return here != there, await crew.do(lambda: 7)

    assert crew_run(work) == (True, 7)


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError(), StopIteration()])
def test_no_call_can_end_the_loop(error):
    def fail():
        raise error

    async def work(crew):
        with pytest.raises(RlgymError, match=type(error).__name__):
            await crew.do(fail)
        return await crew.do(lambda: "alive")

    assert crew_run(work) == "alive"


def test_a_late_call_is_given_up_and_its_thread_replaced():
    let_go = threading.Event()

    async def work(crew):
        def hang(call):
            with call.within(0.02):
                let_go.wait()

        late = asyncio.create_task(crew.call(hang))
        others = [asyncio.create_task(crew.do(lambda: "done")) for _ in range(5)]
        with pytest.raises(TimeoutError, match=r"no answer within 0.02 s; its thread was given up"):
            await late
        return await asyncio.gather(*others)

    assert crew_run(work, num_threads=1) == ["done"] * 5
    let_go.set()


def test_only_what_is_done_under_the_deadline_can_miss_it():
    async def work(crew):
        paused = threading.Event()

        def careful(call):
            with call.within(0.01):
                pass
            paused.wait(0.1)  # such as a tokenizer behind the environment
            return "kept"

        return await crew.call(careful)

    assert crew_run(work) == "kept"


def test_calls_that_wait_for_each_other_get_threads():
    barrier = threading.Barrier(8)

    async def work(crew):
        return await asyncio.gather(*(crew.do(lambda: barrier.wait(60)) for _ in range(8)))

    assert sorted(crew_run(work)) == list(range(8))


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

    async def work(crew):
        await asyncio.gather(*(crew.do(count) for _ in range(24)))

    crew_run(work, num_threads=3)
    assert most <= 3


def test_a_crew_that_hangs_altogether_says_so(monkeypatch):
    monkeypatch.setattr(threads, "MOST_HUNG", 2)
    let_go = threading.Event()

    async def work(crew):
        def hang(call):
            with call.within(0.01):
                let_go.wait()

        for _ in range(2):
            with pytest.raises(TimeoutError):
                await crew.call(hang)
        with pytest.raises(CrewSpentError, match="2 calls hang in threads, which nothing can stop"):
            await crew.do(lambda: None)
        let_go.set()
        while crew._num_hung:  # they come back, and so does the crew
            await asyncio.sleep(0.001)
        return await crew.do(lambda: "well")

    assert crew_run(work) == "well"


def test_a_cancelled_call_is_nobodys():
    let_go = threading.Event()

    async def work(crew):
        task = asyncio.create_task(crew.do(let_go.wait))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        let_go.set()
        return await crew.do(lambda: "next")

    assert crew_run(work, num_threads=1) == "next"
