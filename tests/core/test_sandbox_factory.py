"""Functions that a factory makes as a worker starts, and what bounds them."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlgym_llm.errors import PluginError, UserError
from rlgym_llm.sandbox import OutcomeStatus, Sandbox, WorkerStartError

OK, ERROR, TIMEOUT, DIED = OutcomeStatus


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., Sandbox]]:
    """Sandboxes whose workers find the targets, and a package that is called torch."""
    (tmp_path / "torch.py").write_text("")
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.syspath_prepend(str(tmp_path))
    made = []

    def make(target: str, argument: Any, **settings: Any) -> Sandbox:
        made.append(Sandbox(f"sandbox_factories:{target}", factory_argument=argument, **settings))
        return made[-1]

    yield make
    for sandbox in made:
        sandbox.close()


def test_the_factory_is_called_once_a_worker(make):
    sandbox = make("Items", "unused")
    assert sandbox.call([0, 0]).value == 2
    assert sandbox.call([]).value == 0


def test_a_copy_has_the_same_factory(make):
    copy = pickle.loads(pickle.dumps(make("Items", "unused", memory="auto")))
    with copy:
        assert copy.call([0]).value == 1


def test_a_factory_that_raises_or_makes_no_function(make):
    sandbox = make("Items", "fail")
    for _ in range(2):
        with pytest.raises(WorkerStartError, match=r"cannot import.*OSError: no model") as error:
            sandbox.call([])
        assert error.value.cause == "OSError: no model"
        assert pickle.loads(pickle.dumps(error.value)).cause == error.value.cause
    with pytest.raises(PluginError, match=r"a int is no function"):
        make("no_function", None).warm(1)


def test_workers_start_in_the_folder_that_is_given(make, tmp_path, monkeypatch):
    home, gone = tmp_path / "home", tmp_path / "gone"
    home.mkdir()
    sandbox = make("Where", None, folder=str(home), max_calls=1)
    monkeypatch.chdir("/")
    assert [sandbox.call(None).value for _ in range(2)] == [str(home.resolve())] * 2
    copy = pickle.loads(pickle.dumps(sandbox))
    with copy:
        assert copy.call(None).value == str(home.resolve())
    assert make("Where", None, folder=str(gone)).call(None).value == "/"


def test_the_first_worker_may_be_waited_for_more_shortly(make):
    sandbox = make("never_ready", None, start_deadline_s=600)
    with pytest.raises(WorkerStartError) as error:
        sandbox.warm(1, within_s=1.5)
    assert error.value.cause == "not ready within 1.5 s"


def test_an_error_whose_text_raises_is_an_error_too(make):
    outcome = make("Unreadable", None).call(None)
    assert (outcome.status, outcome.error) == (
        ERROR,
        "UnreadableError: (its message cannot be read)",
    )


def test_each_item_has_the_deadline(make):
    sandbox = make("Items", "unused", deadline_s=1.0)
    assert sandbox.call([0.5] * 4).value == 4
    late = sandbox.call([0, 0, 60, 0])
    assert (late.status, late.num_taken) == (TIMEOUT, 4)  # the call itself, and three items
    assert late.error == "over its deadline of 1 s"
    died = sandbox.call([0, -1])
    assert (died.status, died.num_taken) == (ERROR, 3)
    assert sandbox.call([0]).num_taken == 0


def test_a_call_may_have_a_deadline_of_its_own(make):
    sandbox = make("Items", "unused", deadline_s=0.3)
    assert sandbox.call([0.6], deadline_s=30).value == 1
    assert sandbox.call([60]).error == "over its deadline of 0.3 s"


def test_with_torch_the_resident_size_is_bounded(make):
    sandbox = make("Eater", "torch", memory="auto", memory_mb=200, deadline_s=60)
    assert sandbox.call(100).value == 100
    outcome = sandbox.call(400)
    assert (outcome.status, outcome.error) == (DIED, "over its memory limit of 200 MiB")
    assert sandbox.call(1).value == 1


def test_without_torch_the_address_space_is(make):
    sandbox = make("Eater", "", memory="auto", memory_mb=200, deadline_s=60)
    assert sandbox.call(50).value == 50
    outcome = sandbox.call(10_000)
    assert (outcome.status, outcome.error) == (DIED, "over its memory limit of 200 MiB")


def test_idle_workers_close_where_there_is_time(make, tmp_path):
    log = tmp_path / "log"
    sandbox = make("Items", str(log))
    sandbox.call([])
    sandbox.close(grace_s=30)
    assert log.read_text() == "closed"
    with pytest.raises(UserError, match=r"closed"):
        sandbox.call([])
    sandbox.close(grace_s=30)


def test_without_time_they_are_killed(make, tmp_path):
    log = tmp_path / "log"
    sandbox = make("Items", str(log))
    sandbox.call([])
    sandbox.close()
    assert not log.exists()


def test_work_is_done_in_its_threads(make):
    sandbox = make("Items", "unused", num_workers=2)
    futures = [sandbox.submit(lambda: sandbox.call([0, 0]).value) for _ in range(4)]
    assert [future.result(60) for future in futures] == [2] * 4
