"""The sandbox wherever Python runs: threads, loops, forks, scripts, Ray; and however it ends."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.vector import AsyncVectorEnv

from rlgym_llm.sandbox import OutcomeStatus, Sandbox

HERE = Path(__file__).parent
TARGET = "sandbox_targets:act"
OK, ERROR, TIMEOUT, DIED = OutcomeStatus
START = f"""
import os, sys, time
from rlgym_llm.sandbox import Sandbox
sandbox = Sandbox({TARGET!r}, deadline_s=60)
"""


@pytest.fixture(autouse=True)
def _targets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))


def is_alive(pid: int) -> bool:
    """Whether it runs; a zombie does not."""
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat")
        return not stat.exists() or stat.read_text().rpartition(") ")[2][0] not in "ZX"
    except (ProcessLookupError, FileNotFoundError):
        return False


def wait_for(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.01)
    return False


def start(
    program: str, *, stdin: str | None = None, path: str = str(HERE), **options: Any
) -> subprocess.Popen[str]:
    """Start a Python program that treats every warning as an error."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", *(["-"] if stdin else ["-c", textwrap.dedent(program)])],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )
    if stdin:
        assert process.stdin is not None
        process.stdin.write(stdin)
        process.stdin.close()
        process.stdin = None
    return process


def output_of(process: subprocess.Popen[str]) -> str:
    """What it printed, once it has ended well and in silence on stderr."""
    out, err = process.communicate(timeout=60)
    assert (err, process.returncode) == ("", 0)
    return out


# Threads and loops.


def test_fifty_threads() -> None:
    with Sandbox(TARGET, num_workers=3) as sandbox:
        wrong: list[Any] = []

        def call(first: int) -> None:
            for number in range(first, first + 20):
                if (outcome := sandbox.call(["echo", number])).value != number:
                    wrong.append(outcome)

        threads = [threading.Thread(target=call, args=(20 * i,)) for i in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert len(sandbox._pool._workers) <= 3


def test_two_thousand_calls_from_a_loop_of_which_some_hang() -> None:
    async def main() -> None:
        before = threading.active_count()
        most = 0
        orders = [["spin", n] if n % 100 == 7 else ["echo", n] for n in range(2000)]

        async def watch() -> None:
            nonlocal most
            while True:
                most = max(most, threading.active_count() - before)
                await asyncio.sleep(0.01)

        watcher = asyncio.create_task(watch())
        outcomes = await asyncio.gather(*map(sandbox.acall, orders))
        watcher.cancel()
        assert 1 <= most <= 2
        for number, outcome in enumerate(outcomes):
            if number % 100 == 7:
                assert outcome.status is TIMEOUT
            else:
                assert (outcome.status, outcome.value) == (OK, number)

    with Sandbox(TARGET, num_workers=2, deadline_s=0.6) as sandbox:
        asyncio.run(main())


def test_a_loop_goes_on_during_a_call() -> None:
    async def main() -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticker = asyncio.create_task(tick())
        assert (await sandbox.acall(["sleep", 0.6])).status is OK
        ticker.cancel()
        assert ticks >= 10
        assert sandbox.call(["echo", 3]).value == 3  # and a plain call works inside a loop

    with Sandbox(TARGET) as sandbox:
        asyncio.run(main())


def test_loops_in_several_threads_share_a_sandbox() -> None:
    wrong: list[int] = []

    async def main(first: int) -> None:
        outcomes = await asyncio.gather(
            *(sandbox.acall(["echo", n]) for n in range(first, first + 100))
        )
        wrong.extend(n for n, o in enumerate(outcomes, first) if o.value != n)

    with Sandbox(TARGET, num_workers=2) as sandbox:
        threads = [
            threading.Thread(target=lambda n=n: asyncio.run(main(100 * n))) for n in range(5)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_a_cancelled_call_that_waits_never_runs() -> None:
    async def main() -> None:
        slow = asyncio.create_task(sandbox.acall(["sleep", 0.3]))
        waiting = [asyncio.create_task(sandbox.acall(["exit", 1])) for _ in range(20)]
        await asyncio.sleep(0.05)
        for task in waiting:
            task.cancel()
        assert (await slow).status is OK
        assert (await sandbox.acall(["pid", None])).value == pid
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sandbox.acall(["sleep", 0.4]), 0.1)
        assert (await sandbox.acall(["echo", 5])).value == 5

    with Sandbox(TARGET) as sandbox:
        pid = sandbox.call(["pid", None]).value
        asyncio.run(main())


def test_closing_answers_the_calls_of_a_loop() -> None:
    async def main() -> list[Any]:
        tasks = [asyncio.create_task(sandbox.acall(["spin", None])) for _ in range(5)]
        await asyncio.sleep(0.5)
        sandbox.close()
        return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)

    sandbox = Sandbox(TARGET, deadline_s=60)
    first, *rest = asyncio.run(main())
    assert (first.status, first.error) == (DIED, "the sandbox was closed")
    assert [str(error) for error in rest] == ["the sandbox was closed: make a new one"] * 4


def test_a_worker_outlives_the_thread_that_started_it() -> None:
    with Sandbox(TARGET) as sandbox:
        pids: list[int] = []
        thread = threading.Thread(target=lambda: pids.append(sandbox.call(["pid", None]).value))
        thread.start()
        thread.join()
        time.sleep(0.2)
        assert sandbox.call(["pid", None]).value == pids[0]


# Other processes.


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_daemonic_process_has_workers_of_its_own(method: str) -> None:
    call_in_child = importlib.import_module("sandbox_targets").call_in_child

    context = multiprocessing.get_context(method)
    with Sandbox(TARGET, deadline_s=0.5) as sandbox:
        pid = sandbox.call(["pid", None]).value
        ours, theirs = context.Pipe()
        child = context.Process(  # type: ignore[attr-defined]
            target=call_in_child, args=(sandbox, theirs), daemon=True
        )
        child.start()
        theirs.close()
        assert ours.poll(60)
        child_pid, values, status = ours.recv()
        child.join(20)
        assert values == [*range(20), None, "last"]
        assert status == "timeout"
        assert sandbox.call(["pid", None]).value == pid != child_pid
        assert wait_for(lambda: not is_alive(child_pid))
        ours.close()
        child.close()


class Grader(gymnasium.Env[Any, Any]):
    """An environment whose reward comes from a sandbox."""

    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(5)

    def __init__(self) -> None:
        self.sandbox = Sandbox(TARGET, deadline_s=0.5)

    def reset(self, **_: Any) -> tuple[int, dict[str, Any]]:
        return 0, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        order = ["spin", None] if action == 4 else ["echo", float(action)]
        return 0, self.sandbox.call(order).value or -1.0, False, False, {}

    def close(self) -> None:
        self.sandbox.close()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_in_the_processes_of_an_async_vector_env() -> None:
    # multiprocessing forbids a daemonic process to have children of its own; subprocess does not.
    envs = AsyncVectorEnv([Grader, Grader])
    try:
        envs.reset()
        assert envs.step([1, 2])[1].tolist() == [1.0, 2.0]
        assert envs.step([4, 3])[1].tolist() == [-1.0, 3.0]
        assert envs.step([2, 1])[1].tolist() == [2.0, 1.0]
    finally:
        envs.close()


def test_forks_amid_the_calls_of_other_threads() -> None:
    # A fork copies locks that other threads hold at that moment; the child must not wait for them.
    program = START + textwrap.dedent(
        """
        import threading
        stop = False
        def work():
            while not stop:
                assert sandbox.call(["echo", 1]).value == 1
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        children = []
        for number in range(8):
            time.sleep(0.03)
            if (pid := os.fork()) == 0:
                os._exit(17 if sandbox.call(["echo", number]).value == number else 1)
            children.append(pid)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
        stop = True
        for thread in threads:
            thread.join()
        sandbox.close()
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            print(codes == [17] * 8, "no zombie")
        """
    )
    assert output_of(start(program)) == "True no zombie\n"


def test_a_forked_child_neither_ends_nor_keeps_the_workers_of_its_parent() -> None:
    program = START + textwrap.dedent(
        """
        worker = sandbox.call(["pid", None]).value
        if (child := os.fork()) == 0:
            sys.exit()  # runs what is to run at exit
        os.waitpid(child, 0)
        same = sandbox.call(["pid", None]).value == worker
        if (child := os.fork()) == 0:
            time.sleep(30)
            os._exit(0)
        print(same, worker, child, flush=True)
        time.sleep(30)
        """
    )
    process = start(program)
    assert process.stdout is not None
    same, worker, child = process.stdout.readline().split()
    assert same == "True"
    process.kill()
    assert wait_for(lambda: not is_alive(int(worker)))
    assert is_alive(int(child))
    os.kill(int(child), signal.SIGKILL)
    process.communicate()


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")
def test_in_a_ray_worker(tmp_path: Path) -> None:
    script = tmp_path / "with_ray.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import ray
            from rlgym_llm.sandbox import Sandbox

            @ray.remote
            def grade(sandbox):
                orders = [["echo", 1], ["spin", None], ["echo", 2], ["exit", 3], ["echo", 4]]
                return [outcome.value for outcome in sandbox.map(orders)]

            @ray.remote
            class Grader:
                def __init__(self):
                    self.sandbox = Sandbox({TARGET!r}, deadline_s=0.5)
                async def grade(self, order):
                    return (await self.sandbox.acall(order)).value

            # "local", or it joins whatever cluster another run has left its address of.
            ray.init(
                address="local", num_cpus=2, include_dashboard=False, log_to_driver=False
            )
            print(ray.get(grade.remote(Sandbox({TARGET!r}, num_workers=2, deadline_s=0.5))))
            grader = Grader.remote()
            orders = [["spin", n] if n == 50 else ["echo", n] for n in range(100)]
            values = ray.get([grader.grade.remote(order) for order in orders])
            print(values == [None if n == 50 else n for n in range(100)])
            ray.shutdown()
            """
        )
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(HERE), "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["[1, None, 2, None, 4]", "True"]


# Scripts, consoles, and how they end.

CALLS = START + textwrap.dedent(
    """
    import asyncio
    print(sandbox.call(["echo", 1]).value, [o.value for o in sandbox.map([["echo", 2]] * 3)])
    async def main():
        print((await sandbox.acall(["echo", 3])).value, sandbox.call(["echo", 4]).value)
    asyncio.run(main())
    print(sandbox.call(["pid", None]).value)
    """
)


def assert_calls_were_right(out: str) -> None:
    first, second, pid = out.splitlines()
    assert (first, second) == ("1 [2, 2, 2]", "3 4")
    assert wait_for(lambda: not is_alive(int(pid)))


def test_a_script_without_a_main_guard(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(CALLS)
    (tmp_path / "elsewhere").mkdir()
    for name in ("json", "random", "struct"):
        (tmp_path / "elsewhere" / f"{name}.py").write_text("raise RuntimeError('shadowed')")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=tmp_path / "elsewhere",
        env={**os.environ, "PYTHONPATH": str(HERE)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stderr, done.returncode) == ("", 0)
    assert_calls_were_right(done.stdout)


def test_a_script_from_stdin_and_from_the_command_line() -> None:
    assert_calls_were_right(output_of(start("", stdin=CALLS)))
    assert_calls_were_right(output_of(start(CALLS)))


def test_a_console_inside_a_running_loop() -> None:
    program = START + textwrap.dedent(
        """
        import asyncio, ast, code, inspect
        async def main():  # as `python -m asyncio` and notebooks do: await on the top level
            namespace = {"sandbox": sandbox}
            console = code.InteractiveInterpreter(namespace)
            console.compile.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            for line in ("a = sandbox.call(['echo', 1])", "b = await sandbox.acall(['echo', 2])"):
                result = eval(console.compile(line), namespace)
                if inspect.isawaitable(result):
                    await result
            print(namespace["a"].value, namespace["b"].value)
        asyncio.run(main())
        """
    )
    assert output_of(start(program)) == "1 2\n"


def test_a_program_without_standard_streams(tmp_path: Path) -> None:
    note = tmp_path / "note"
    program = f"""
import os
os.closerange(0, 3)
{START}
values = [outcome.value for outcome in sandbox.map([["echo", 1], ["print", 2], ["echo", 3]])]
with open({str(note)!r}, "w") as file:
    file.write(str(values))
"""
    process = start(program)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert note.read_text() == "[1, None, 3]"


@pytest.mark.parametrize("ending", ["", "sandbox.close()", "sandbox.close(); del sandbox"])
def test_an_interpreter_ends_without_a_word(ending: str) -> None:
    program = START + "print(sandbox.call(['pid', None]).value)\n" + ending
    pid = int(output_of(start(program)))
    assert wait_for(lambda: not is_alive(pid))


@pytest.mark.parametrize(
    "work",
    [
        "threading.Thread(target=sandbox.call, args=(['spin', None],), daemon=True).start()",
        "asyncio.run(asyncio.wait_for(many(1), 0.2))",
        "asyncio.run(asyncio.wait_for(many(50), 0.2))",
    ],
)
def test_an_interpreter_does_not_wait_for_calls_under_way(work: str) -> None:
    program = f"""
import asyncio, contextlib, threading
{START}
async def many(count):
    await asyncio.gather(*map(sandbox.acall, [['spin', None]] * count))
pid = sandbox.call(['pid', None]).value
with contextlib.suppress(TimeoutError):
    {work}
time.sleep(0.3)
print(pid, time.time())
"""
    pid, ended = output_of(start(program)).split()
    assert time.time() - float(ended) < 20  # the deadline is 60 s
    assert wait_for(lambda: not is_alive(int(pid)))


@pytest.mark.parametrize("verb", ["spin", "hold_interpreter", "echo"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_worker_goes_when_its_parent_does(verb: str, number: int) -> None:
    program = START + textwrap.dedent(
        f"""
        worker = sandbox.call(["pid", None]).value
        child = sandbox.call(["start_child", None]).value
        print(worker, child, flush=True)
        sandbox.call([{verb!r}, None])
        time.sleep(30)
        """
    )
    process = start(program, start_new_session=True)
    assert process.stdout is not None
    worker, child = map(int, process.stdout.readline().split())
    time.sleep(0.3)
    assert is_alive(worker)
    os.killpg(process.pid, number)  # Ctrl-C reaches the whole group of the parent
    _, err = process.communicate(timeout=20)
    assert process.returncode == -number
    assert wait_for(lambda: not is_alive(worker), 3)
    if number == signal.SIGINT:
        assert err.count("Traceback") == 1
        assert "ignored" not in err
        assert err.endswith("KeyboardInterrupt\n")
    if sys.platform == "linux":  # what the function has started goes too
        assert wait_for(lambda: not is_alive(child), 3)
    elif is_alive(child):
        os.kill(child, signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere all other tests go this way")
def test_a_worker_goes_where_the_kernel_sends_no_signal(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import fcntl; del fcntl.F_SETSIG")
    program = START + textwrap.dedent(
        f"""
        sys.path.remove({str(tmp_path)!r})
        print(sandbox.call(["pid", None]).value, flush=True)
        sandbox.call(["spin", None])
        """
    )
    process = start(program, path=f"{tmp_path}{os.pathsep}{HERE}")
    assert process.stdout is not None
    worker = int(process.stdout.readline())
    time.sleep(0.2)
    assert is_alive(worker)
    process.kill()
    process.communicate()
    assert wait_for(lambda: not is_alive(worker), 3)
