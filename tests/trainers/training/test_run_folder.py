"""A run's folder: chosen, made, and never one that is in use."""

from __future__ import annotations

import errno
import io

import pytest
from rlgym_llm_trainers.training.run_folder import (
    choose_run_folder,
    give_up_run_folder,
    make_run_folder,
)

from rlgym_llm.errors import UserError


def test_a_new_folder_is_made_with_its_parents_and_not_before(tmp_path):
    run = choose_run_folder(str(tmp_path / "a" / "b"), name="x")
    assert not run.path.exists()
    make_run_folder(run, "env: {}\n")
    assert run.config.read_text() == "env: {}\n"
    assert run.metrics == tmp_path / "a" / "b" / "metrics.jsonl"


def test_a_folder_in_use_is_refused_and_left_alone(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("kept")
    with pytest.raises(UserError, match=r"--output .*: the folder is in use"):
        choose_run_folder(str(tmp_path), name="x")
    assert (tmp_path / "metrics.jsonl").read_text() == "kept"


def test_a_file_in_the_way_is_one_clear_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="is a file; name a folder"):
        choose_run_folder(str(tmp_path / "file"), name="x")
    with pytest.raises(UserError, match="cannot be made: Not a directory"):
        make_run_folder(choose_run_folder(str(tmp_path / "file" / "sub"), name="x"), "")


def test_default_folders_never_collide(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths = set()
    for _ in range(3):
        run = choose_run_folder(None, name="rlgym_llm/math gsm8k")
        make_run_folder(run, "")
        paths.add(run.path)
    assert len(paths) == 3
    assert all(path.parent.name == "runs" and "/" not in path.name for path in paths)


def test_of_two_runs_that_chose_the_same_folder_the_second_is_refused(tmp_path):
    first, second = (choose_run_folder(str(tmp_path / "out"), name="x") for _ in range(2))
    make_run_folder(first, "seed: 1")
    with pytest.raises(UserError, match="cannot be made: File exists"):
        make_run_folder(second, "seed: 2")
    assert first.config.read_text() == "seed: 1"


@pytest.mark.parametrize("output", ["x" * 5000, "~nobody_has_this_name/run"])
def test_a_name_that_no_folder_can_have_is_one_clear_line(output):
    with pytest.raises(UserError, match="cannot be used: "):
        choose_run_folder(output, name="x")


def test_a_full_disk_takes_no_folder(tmp_path, monkeypatch):
    run = choose_run_folder(str(tmp_path / "out"), name="x")
    with monkeypatch.context() as patch:
        patch.setattr(type(run.config), "open", lambda path, *_, **__: FullDisk(path, "x"))
        with pytest.raises(UserError, match="cannot be made: No space left on device"):
            make_run_folder(run, "seed: 1")
    assert list(run.path.iterdir()) == []
    make_run_folder(choose_run_folder(str(tmp_path / "out"), name="x"), "seed: 1")
    assert run.config.read_text() == "seed: 1"


class FullDisk(io.FileIO):
    def write(self, _):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_what_else_was_written_keeps_a_folder_that_is_given_up(tmp_path):
    run = choose_run_folder(str(tmp_path / "out"), name="x")
    make_run_folder(run, "seed: 1")
    (run.path / "notes").write_text("mine")
    give_up_run_folder(run)
    assert [path.name for path in run.path.iterdir()] == ["notes"]
    (run.path / "notes").unlink()
    give_up_run_folder(run)
    assert not run.path.exists()
