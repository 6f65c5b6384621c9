"""A run's folder goes with its process, however that ends, and no living one's is touched."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

import pytest
from rlgym_llm_trainers.generators.weight_sync.own_folder import OwnFolder, remove_leftovers

HOLDER = """
import os, signal, sys
from pathlib import Path
from rlgym_llm_trainers.generators.weight_sync.own_folder import OwnFolder

folder = OwnFolder(Path(sys.argv[1]))
(folder.path / "v0.safetensors").write_bytes(b"weights")
print(folder.path, flush=True)
if sys.argv[2] == "wait":
    sys.stdin.read()
if sys.argv[2] == "fork" and os.fork() == 0:
    sys.exit()  # a child that ends in the ordinary way
if sys.argv[2] == "fork":
    os.wait()
    print(folder.path.exists(), flush=True)
"""


def hold(root, how):
    return subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(root), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_closing_removes_it_once(tmp_path):
    folder = OwnFolder(tmp_path)
    (folder.path / "file").write_text("x")
    assert [folder.path] == list(tmp_path.iterdir())
    assert str(os.getpid()) in folder.path.name
    folder.close()
    folder.close()
    assert list(tmp_path.iterdir()) == []


def test_an_ordinary_end_removes_it(tmp_path):
    with hold(tmp_path, "end") as process:
        assert process.stdout.readline().strip()
        assert process.wait(timeout=60) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_forked_child_removes_nothing(tmp_path):
    with hold(tmp_path, "fork") as process:
        process.stdout.readline()
        assert process.stdout.readline().strip() == "True"
        assert process.wait(timeout=60) == 0
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_run_left_is_removed_and_a_living_one_kept(tmp_path):
    with own_folder(tmp_path) as ours, hold(tmp_path, "wait") as process:
        theirs = process.stdout.readline().strip()
        bystander = tmp_path / "rlgym-llm-weights-notes.txt"
        bystander.write_text("mine")
        remove_leftovers(tmp_path)
        assert os.path.exists(theirs)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=60)
        assert os.path.exists(theirs)
        remove_leftovers(tmp_path)
        assert set(tmp_path.iterdir()) == {ours.path, bystander}


def test_a_terminated_run_removes_it_and_ends_as_it_would_have(tmp_path):
    with hold(tmp_path, "wait") as process:
        assert os.path.exists(process.stdout.readline().strip())
        process.terminate()
        assert process.wait(timeout=60) == -signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


def test_a_signal_that_somebody_attends_to_stays_theirs(tmp_path):
    def mine(*_):
        raise AssertionError("nobody sends it")

    before = signal.getsignal(signal.SIGTERM)
    assert before is signal.SIG_DFL
    with own_folder(tmp_path):
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    signal.signal(signal.SIGTERM, mine)
    try:
        with own_folder(tmp_path):
            assert signal.getsignal(signal.SIGTERM) is mine
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)


def own_folder(root):
    return contextlib.closing(OwnFolder(root))


def test_a_place_that_allows_no_folder(tmp_path):
    with pytest.raises(OSError, match="none"):
        OwnFolder(tmp_path / "none")
    remove_leftovers(tmp_path / "none")
