from __future__ import annotations

import gc
import math
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlgym_llm.errors import ConfigError, PluginError, UserError
from rlgym_llm.sandbox import Outcome, OutcomeStatus, Sandbox

TARGET = "sandbox_targets:act"
OK, ERROR, TIMEOUT, DIED = OutcomeStatus


@pytest.fixture(autouse=True)
def _targets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(TARGET) as sandbox:
        yield sandbox


def is_alive(pid: int) -> bool:
    """Whether it runs; a zombie does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    try:
        return not stat.exists() or stat.read_text().rpartition(") ")[2][0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for(condition: Any, seconds: float = 10.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.01)
    return False


def assert_serves(sandbox: Sandbox) -> None:
    for number in range(3):
        assert sandbox.call(["echo", number]).value == number


# One call.


def test_a_call_returns_the_value_and_the_time_it_took(sandbox: Sandbox) -> None:
    outcome = sandbox.call(["sum", [1, 2, 3.5]])
    assert (outcome.status, outcome.value, outcome.error) == (OK, 6.5, None)
    assert 0.2 <= sandbox.call(["sleep", 0.2]).seconds < 1.0
    assert isinstance(outcome, Outcome)
    assert outcome.status == "ok"


def test_the_worker_is_another_process_that_stays(sandbox: Sandbox) -> None:
    pids = {sandbox.call(["pid", None]).value for _ in range(5)}
    assert len(pids) == 1
    assert os.getpid() not in pids


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
SHARED: list[Sandbox] = []


@pytest.fixture(scope="module", autouse=True)
def _shared() -> Iterator[None]:
    sys.path.insert(0, str(Path(__file__).parent))
    SHARED.append(Sandbox(TARGET))
    SHARED[0].warm()
    sys.path.remove(str(Path(__file__).parent))
    yield
    SHARED.pop().close()


@given(JSON)
def test_every_json_value_goes_both_ways(value: Any) -> None:
    outcome = SHARED[0].call(["echo", value])
    assert outcome.value == value
    assert outcome.error is None


def test_non_finite_floats_and_lone_surrogates_go_both_ways(sandbox: Sandbox) -> None:
    value = sandbox.call(["echo", [math.nan, math.inf, -math.inf, "\ud800\n\0"]]).value
    assert math.isnan(value[0])
    assert value[1:] == [math.inf, -math.inf, "\ud800\n\0"]
    assert sandbox.call(["number", "-inf"]).value == -math.inf


def test_megabytes_go_both_ways(sandbox: Sandbox) -> None:
    text = "ü" * 1_000_000  # six bytes each as JSON
    assert sandbox.call(["echo", text]).value == text
    assert sandbox.call(["long", 1_000_000]).value == text
    assert_serves(sandbox)


@pytest.mark.parametrize("argument", [{1, 2}, object(), b"x", [1j], {(1, 2): 3}])
def test_an_argument_that_json_cannot_carry(sandbox: Sandbox, argument: Any) -> None:
    with pytest.raises(TypeError, match="sandbox: JSON cannot carry the argument"):
        sandbox.call(argument)
    with pytest.raises(TypeError, match="sandbox: JSON cannot carry the argument"):
        sandbox.map([1, argument])


def test_an_argument_that_holds_itself(sandbox: Sandbox) -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(TypeError, match="Circular reference"):
        sandbox.call(loop)


@pytest.mark.parametrize(
    ("order", "cause"),
    [
        (["set", None], "TypeError: Object of type set is not JSON serializable"),
        (["nest", 100_000], "RecursionError: maximum recursion depth exceeded"),
        (["sum", ["x"]], "TypeError: unsupported operand type(s) for +: 'int' and 'str'"),
        (["call_exit", 3], "SystemExit: 3"),
        (["raise_unspeakable", None], "UnspeakableError: (its message cannot be read)"),
        (["raise_lines", None], "ValueError: one two" + "x" * 493),
        (["kill", signal.SIGINT], "KeyboardInterrupt"),
        (["nothing", None], "KeyError: 'nothing'"),
    ],
)
def test_what_the_function_raises_is_data(sandbox: Sandbox, order: Any, cause: str) -> None:
    pid = sandbox.call(["pid", None]).value
    outcome = sandbox.call(order)
    assert (outcome.status, outcome.value) == (ERROR, None)
    assert outcome.error is not None
    assert outcome.error.startswith(cause)
    assert "\n" not in outcome.error
    assert sandbox.call(["pid", None]).value == pid


# The deadline.


def test_the_deadline_does_not_run_while_a_call_waits() -> None:
    with Sandbox(TARGET, deadline_s=0.5) as sandbox:
        outcomes: list[Outcome] = []
        threads = [
            threading.Thread(target=lambda: outcomes.append(sandbox.call(["sleep", 0.02])))
            for _ in range(200)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [outcome.status for outcome in outcomes] == [OK] * 200


def test_the_deadline_does_not_run_while_a_worker_starts(tmp_path: Path) -> None:
    (tmp_path / "slow_start.py").write_text("import time; time.sleep(1.2); act = abs")
    sys.path.insert(0, str(tmp_path))
    try:
        with Sandbox("slow_start:act", deadline_s=0.5) as sandbox:
            assert sandbox.call(-3).value == 3
    finally:
        sys.path.remove(str(tmp_path))


def test_the_deadline_runs_from_when_the_work_starts() -> None:
    with Sandbox(TARGET, deadline_s=1.0) as sandbox:
        pid = sandbox.call(["pid", None]).value
        os.kill(pid, signal.SIGSTOP)  # a worker that the system gives no turn
        threading.Timer(1.5, os.kill, (pid, signal.SIGCONT)).start()
        assert sandbox.call(["sleep", 0.3]).status is OK
        os.kill(pid, signal.SIGSTOP)
        threading.Timer(1.5, os.kill, (pid, signal.SIGCONT)).start()
        outcome = sandbox.call(["spin", None])
        assert outcome.status is TIMEOUT
        assert 1.0 <= outcome.seconds < 2.4


def test_a_worker_that_never_takes_the_call() -> None:
    with Sandbox(TARGET, deadline_s=0.2, start_deadline_s=5) as sandbox:
        sandbox.warm()
        pid = sandbox.call(["pid", None]).value
        os.kill(pid, signal.SIGSTOP)
        outcome = sandbox.call(["echo", 1])
        assert (outcome.status, outcome.error) == (TIMEOUT, "did not take the call")
        assert_serves(sandbox)


@pytest.mark.parametrize("verb", ["spin", "hold_interpreter"])
def test_an_overrun_costs_its_own_call(verb: str) -> None:
    with Sandbox(TARGET, deadline_s=0.5) as sandbox:
        pid = sandbox.call(["pid", None]).value
        outcome = sandbox.call([verb, None])
        assert (outcome.status, outcome.value) == (TIMEOUT, None)
        assert outcome.error == "over its deadline of 0.5 s"
        assert 0.5 <= outcome.seconds < 5
        assert not is_alive(pid)
        assert_serves(sandbox)


def test_an_answer_just_too_late_reaches_no_one_else() -> None:
    with Sandbox(TARGET, deadline_s=0.25, num_workers=2) as sandbox:
        for number in range(15):  # around the deadline, on either side of it
            sandbox.call(["sleep", 0.248 + number % 5 / 1000])
            assert sandbox.call(["echo", number]).value == number


def test_a_flooded_pipe_is_under_the_deadline_too(sandbox: Sandbox) -> None:
    outcome = sandbox.call(["flood", None])
    # Which pipe it fills first is chance; one that it writes its answer to is read until too long.
    assert (outcome.status, outcome.error) in (
        (TIMEOUT, "over its deadline of 1 s"),
        (DIED, "its answer is longer than 64 MiB"),
    )
    assert_serves(sandbox)


def test_an_answer_has_a_longest_length() -> None:
    with Sandbox(TARGET, deadline_s=20) as sandbox:
        outcome = sandbox.call(["long", 12_000_000])  # six bytes each as JSON
        assert (outcome.status, outcome.error) == (DIED, "its answer is longer than 64 MiB")
        assert_serves(sandbox)


def test_what_the_function_started_goes_with_it(tmp_path: Path) -> None:
    with Sandbox(TARGET, deadline_s=1.5) as sandbox:
        note = tmp_path / "pid"
        assert sandbox.call(["start_child_and_spin", str(note)]).status is TIMEOUT
        assert wait_for(lambda: not is_alive(int(note.read_text())))
        pid = sandbox.call(["start_child", None]).value
        assert is_alive(pid)
    assert wait_for(lambda: not is_alive(pid))


# Dying workers.


@pytest.mark.parametrize(
    ("order", "cause"),
    [
        (["exit", 0], "the worker left with exit code 0"),
        (["exit", 3], "the worker left with exit code 3"),
        (["kill", signal.SIGKILL], "the worker was killed by signal 9 (SIGKILL)"),
        (["kill", signal.SIGTERM], "the worker was killed by signal 15 (SIGTERM)"),
        (["segfault", None], "the worker was killed by signal 11 (SIGSEGV)"),
        (["eat", 2000], "over its memory limit of 512 MiB"),
        (["close_pipes", None], "the worker was killed by signal 9 (SIGKILL)"),
        (["write_everywhere", None], "it wrote into its answers"),
    ],
)
def test_a_death_costs_its_own_call(sandbox: Sandbox, order: Any, cause: str) -> None:
    pid = sandbox.call(["pid", None]).value
    outcome = sandbox.call(order)
    assert (outcome.status, outcome.value, outcome.error) == (DIED, None, cause)
    assert not is_alive(pid)
    assert_serves(sandbox)


def test_a_death_is_told_though_a_child_keeps_the_pipe_open() -> None:
    with Sandbox(TARGET, deadline_s=0.5) as sandbox:
        outcome = sandbox.call(["fork_and_die", None])
        assert (outcome.status, outcome.error) == (DIED, "the worker left with exit code 7")
        assert_serves(sandbox)


def test_a_forked_copy_of_the_worker_answers_nothing(sandbox: Sandbox) -> None:
    assert sandbox.call(["fork_and_return", None]).value == "parent"
    assert_serves(sandbox)


def test_a_worker_killed_while_idle_costs_nothing(sandbox: Sandbox) -> None:
    for _ in range(3):
        pid = sandbox.call(["pid", None]).value
        os.kill(pid, signal.SIGKILL)
        assert wait_for(lambda pid=pid: not is_alive(pid))
        assert_serves(sandbox)


def test_a_worker_that_writes_while_idle_is_replaced(sandbox: Sandbox) -> None:
    assert sandbox.call(["write_later", 0.2]).value == "written later"
    time.sleep(0.6)
    assert_serves(sandbox)


def test_a_worker_is_replaced_after_so_many_calls() -> None:
    with Sandbox(TARGET, max_calls=3, deadline_s=60) as sandbox:
        pids = [sandbox.call(["pid", None]).value for _ in range(9)]
    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [3, 3, 3]


def test_within_the_memory_limit() -> None:
    with Sandbox(TARGET, deadline_s=60) as sandbox:
        assert sandbox.call(["eat", 200]).value == 200 << 20
    with Sandbox(TARGET, deadline_s=60, memory_mb=None) as unlimited:
        assert unlimited.call(["eat", 600]).value == 600 << 20


def test_sympy_fits_the_memory_limit() -> None:
    with Sandbox("sympy:factorint", deadline_s=20, start_deadline_s=120) as sandbox:
        assert sandbox.call(360).error is None


# What the worker has of its parent.


def test_printing_does_not_disturb(sandbox: Sandbox, capfd: pytest.CaptureFixture[str]) -> None:
    with Sandbox(TARGET) as sandbox:  # started under capfd, whose stderr it inherits
        assert sandbox.call(["print", '0 ["ok", 0, "printed"]']).value is None
        assert sandbox.call(["write", '1 ["ok", 0, "written"]\n']).value == 23
        assert sandbox.call(["read", None]).value == ""
        assert_serves(sandbox)
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err == '0 ["ok", 0, "printed"]\n1 ["ok", 0, "written"]\n'


def test_a_worker_is_bounded_and_alone(sandbox: Sandbox) -> None:
    limit = [512 << 20, 512 << 20]
    assert sandbox.call(["limits", None]).value == [limit, True]
    assert sandbox.call(["environ", "OMP_NUM_THREADS"]).value == "1"
    assert sandbox.call(["environ", "OPENBLAS_NUM_THREADS"]).value == "1"


def test_a_file_in_the_current_folder_shadows_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "random", "fractions", "types"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('shadowed')")
    (tmp_path / "own.py").write_text("import fractions, random\nact = abs")
    monkeypatch.chdir(tmp_path)
    with Sandbox(TARGET) as sandbox:
        assert sandbox.call(["echo", 1]).value == 1
        assert str(tmp_path) not in str(sandbox.call(["module", "json"]).value)
    monkeypatch.setattr(sys, "path", ["", *sys.path])  # as in a notebook: the folder is last
    with Sandbox("own:act", deadline_s=60) as sandbox:
        assert sandbox.call(-1).value == 1
    with Sandbox("random:seed", deadline_s=60) as sandbox:
        assert sandbox.call(1).error is None


# Targets that are none.


@pytest.mark.parametrize("target", ["", "os", "os:", ":x", "__main__:f"])
def test_a_target_that_names_nothing(target: str) -> None:
    with pytest.raises(PluginError, match="give 'module:function'"):
        Sandbox(target)


@pytest.mark.parametrize(
    ("target", "cause"),
    [
        ("no_such_module:f", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("os:nothing", "AttributeError: module 'os' has no attribute 'nothing'"),
        ("sandbox_targets:NOT_CALLABLE", "TypeError: a int is no function"),
        ("sandbox_exits:f", "SystemExit: 4"),
    ],
)
def test_a_target_that_cannot_be_imported(
    target: str, cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sandbox_exits.py").write_text("raise SystemExit(4)")
    monkeypatch.syspath_prepend(str(tmp_path))
    with Sandbox(target, num_workers=2) as sandbox:
        for _ in range(2):
            with pytest.raises(PluginError) as caught:
                sandbox.call(1)
            assert str(caught.value) == f"sandbox: cannot import {target!r}: {cause}"
        with pytest.raises(PluginError):
            sandbox.warm()


def test_a_target_that_kills_or_stalls_its_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deadly.py").write_text("import os; os._exit(5)")
    (tmp_path / "stalling.py").write_text("while True: pass")
    (tmp_path / "greedy.py").write_text("x = bytearray(1 << 30)")
    monkeypatch.syspath_prepend(str(tmp_path))
    for module, cause in {
        "deadly": "the worker left with exit code 5",
        "stalling": "not ready within 2 s",
        "greedy": "over its memory limit of 512 MiB",
    }.items():
        with Sandbox(f"{module}:f", start_deadline_s=2) as sandbox:
            for _ in range(2):
                with pytest.raises(PluginError, match=cause):
                    sandbox.call(1)


def test_a_target_that_stops_importing_costs_calls_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "fickle.py"
    module.write_text("import os\nact = os._exit")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    with Sandbox("fickle:act", deadline_s=60) as sandbox:
        sandbox.warm()
        module.write_text("raise ImportError('gone')")
        assert sandbox.call(1).error == "the worker left with exit code 1"
        for _ in range(2):
            outcome = sandbox.call(1)
            assert outcome.status is DIED
            assert outcome.error == "no worker for 'fickle:act' started: ImportError: gone"
        module.write_text("act = abs")
        sandbox.call(1)  # in the worker that had started meanwhile
        assert sandbox.call(-1).value == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"num_workers": 0},
        {"max_calls": 0},
        {"memory_mb": 0},
        {"deadline_s": 0},
        {"deadline_s": math.inf},
        {"start_deadline_s": math.nan},
    ],
)
def test_settings_out_of_range(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"sandbox: {next(iter(settings))} must be"):
        Sandbox("math:factorial", **settings)


# Several calls, and the end.


def test_map_keeps_the_order_and_uses_all_workers(tmp_path: Path) -> None:
    with Sandbox(TARGET, num_workers=3) as sandbox:
        orders = [["sleep", 0.02 * (number % 3)] for number in range(12)] + [["pid", None]]
        orders += [["exit", 9]] + [["echo", number] for number in range(300)]
        outcomes = sandbox.map(orders)
        assert [outcome.status for outcome in outcomes[:13]] == [OK] * 13
        assert outcomes[13].error == "the worker left with exit code 9"
        assert [outcome.value for outcome in outcomes[14:]] == list(range(300))
        assert sandbox.map([]) == []
    with Sandbox(TARGET, num_workers=3, deadline_s=20) as sandbox:
        outcomes = sandbox.map([["meet", [str(tmp_path), number, 3]] for number in range(3)])
        assert [outcome.value for outcome in outcomes] == [True] * 3  # three at one time


def test_warm_starts_every_worker() -> None:
    with Sandbox(TARGET, num_workers=3) as sandbox:
        sandbox.warm()
        sandbox.warm()
        workers = sandbox._pool._workers
        assert len(workers) == 3
        assert all(worker.is_ready for worker in workers)


def test_nothing_starts_before_the_first_call() -> None:
    with Sandbox("no_such_module:f", num_workers=9) as sandbox:
        assert not sandbox._pool._workers


def test_close_ends_everything() -> None:
    sandbox = Sandbox(TARGET, num_workers=2, deadline_s=30)
    pids = [outcome.value for outcome in sandbox.map([["pid", None]] * 50)]
    outcomes: list[Any] = []

    def call() -> None:
        try:
            outcomes.append(sandbox.call(["spin", None]))
        except UserError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=call) for _ in range(6)]  # two work, four wait
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    sandbox.close()
    sandbox.close()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    under_way = [outcome for outcome in outcomes if isinstance(outcome, Outcome)]
    assert [o.error for o in under_way] == ["the sandbox was closed"] * 2
    assert [str(e) for e in outcomes if isinstance(e, UserError)] == [
        "the sandbox was closed: make a new one"
    ] * 4
    assert not any(is_alive(pid) for pid in pids)
    with pytest.raises(UserError, match="the sandbox was closed"):
        sandbox.call(["echo", 1])
    with pytest.raises(UserError, match="the sandbox was closed"):
        sandbox.map([["echo", 1]] * 3)
    with pytest.raises(UserError, match="the sandbox was closed"):
        sandbox.warm()


def test_closing_leaves_no_descriptor_open() -> None:
    folder = "/proc/self/fd" if os.path.exists("/proc/self/fd") else "/dev/fd"
    with Sandbox(TARGET):
        pass
    before = len(os.listdir(folder))
    for _ in range(3):
        with Sandbox(TARGET, num_workers=2, deadline_s=0.3) as sandbox:
            sandbox.map([["echo", 1], ["exit", 1], ["spin", None], ["echo", 2]])
    assert len(os.listdir(folder)) == before


def test_a_collected_sandbox_ends_its_workers_and_threads() -> None:
    sandbox = Sandbox(TARGET, num_workers=2)
    pids = [outcome.value for outcome in sandbox.map([["pid", None]] * 20)]
    threads = list(sandbox._pool._threads)
    assert threads
    del sandbox
    gc.collect()
    assert not any(is_alive(pid) for pid in pids)
    assert wait_for(lambda: not any(thread.is_alive() for thread in threads))


def test_a_copy_has_workers_of_its_own(sandbox: Sandbox) -> None:
    with pickle.loads(pickle.dumps(sandbox)) as copy:
        assert copy.call(["echo", 1]).value == 1
        assert copy.call(["pid", None]).value != sandbox.call(["pid", None]).value


def test_an_interrupted_call_leaves_no_answer_behind(sandbox: Sandbox) -> None:
    assert_serves(sandbox)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGUSR1, interrupt)
    try:
        main = threading.main_thread().ident
        assert main is not None
        threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGUSR1)).start()
        with pytest.raises(KeyboardInterrupt):
            sandbox.call(["sleep", 0.5])
    finally:
        signal.signal(signal.SIGUSR1, previous)
    assert_serves(sandbox)


def test_nothing_from_a_worker_is_unpickled_or_evaluated() -> None:
    folder = Path(sys.modules["rlgym_llm.sandbox"].__file__ or "").parent
    sources = [path.read_text() for path in folder.glob("sandbox*.py")]
    assert len(sources) == 4
    for word in ("pickle", "marshal", "eval(", "exec(", "signal.alarm", "setitimer"):
        assert not any(word in source for source in sources), word
