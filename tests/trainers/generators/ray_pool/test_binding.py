"""Cores of their own for processes: who may have them, and that every thread keeps to them."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from rlgym_llm_trainers.generators.ray_pool import binding
from rlgym_llm_trainers.generators.ray_pool.binding import bind_process, check_binding

from rlgym_llm.config_rollout import RolloutConfig
from rlgym_llm.errors import ConfigError


def config(*, num_workers=2, **workers):
    workers = {"bind_cores": True, **workers}
    return RolloutConfig.model_validate({"num_workers": num_workers, "workers": workers})


@pytest.fixture(autouse=True)
def four_cores(monkeypatch):
    monkeypatch.setattr(binding, "num_cores", lambda: 4)


@pytest.mark.parametrize(
    ("num_workers", "num_cpus", "reason"),
    [
        (4, 1.0, None),
        (2, 2.0, None),
        (4, 0.5, None),  # a core each at least
        (5, 0.5, "num_workers 5 with 1 of their own each need 5 cores, this machine has 4"),
        (3, 2.0, "num_workers 3 with 2 of their own each need 6 cores, this machine has 4"),
    ],
)
def test_there_must_be_whole_cores_for_all(num_workers, num_cpus, reason):
    asked = config(num_workers=num_workers, num_cpus=num_cpus)
    if reason is None:
        check_binding(asked, "cpu", is_own=True)
        return
    with pytest.raises(ConfigError, match=f"^--rollout.workers.bind_cores true: .*{reason}"):
        check_binding(asked, "cpu", is_own=True)
    check_binding(config(num_workers=num_workers, bind_cores=False), "cpu", is_own=True)


@pytest.mark.parametrize(
    ("device", "is_own", "reason"),
    [("cuda", True, "the run is on cuda"), ("cpu", False, "leave --rollout.workers.address out")],
)
def test_it_is_for_a_cpu_of_this_machine(device, is_own, reason):
    with pytest.raises(ConfigError, match=reason):
        check_binding(config(), device, is_own=is_own)


def test_elsewhere_than_under_linux_it_is_refused(monkeypatch):
    monkeypatch.delattr(os, "sched_setaffinity")
    with pytest.raises(ConfigError, match="only Linux"):
        check_binding(config(), "cpu", is_own=True)


def test_threads_of_before_and_after_keep_to_the_cores():
    core = min(os.sched_getaffinity(0))
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as other:
        assert other.submit(bound_threads, core).result() == [{core}] * 3


def bound_threads(core):
    """What the main thread, one of before and one of after are kept on, in a process of its own."""
    bound, found = threading.Event(), {}

    def note(name):
        bound.wait()
        found[name] = os.sched_getaffinity(0)

    before = threading.Thread(target=note, args=("before",))
    before.start()
    bind_process([core])
    bound.set()
    after = threading.Thread(target=note, args=("after",))
    after.start()
    before.join()
    after.join()
    return [os.sched_getaffinity(0), found["before"], found["after"]]
