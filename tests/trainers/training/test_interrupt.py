"""Ctrl-C: once is a request, twice is an order."""

from __future__ import annotations

import os
import signal
import threading

import pytest
from rlgym_llm_trainers.training.interrupt import catch_interrupt


def test_the_first_signal_sets_the_flag_and_the_second_raises(capfd):
    before = signal.getsignal(signal.SIGINT)
    with catch_interrupt() as interrupt:
        assert not interrupt.is_set
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupt.is_set
        assert capfd.readouterr().err.startswith("ending after this step")
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGINT) is before


def test_outside_the_main_thread_nothing_is_caught_and_nothing_breaks():
    found = []

    def work():
        with catch_interrupt() as interrupt:
            found.append(interrupt.is_set)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [False]
