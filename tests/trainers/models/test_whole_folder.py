"""A folder appears whole or not at all, and what it replaces is never lost."""

from __future__ import annotations

import os

import pytest
from rlgym_llm_trainers.models.whole_folder import whole_folder

from rlgym_llm.errors import RlgymError


def write(folder, text):
    with whole_folder(folder, what="the model") as partial:
        (partial / "weights").write_text(text)


def test_an_older_folder_is_replaced_and_nothing_is_left_beside_it(tmp_path):
    for text in ("first", "second"):
        write(tmp_path / "model", text)
        assert (tmp_path / "model" / "weights").read_text() == text
        assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("failing", [1, 2])  # putting the old one aside, the new one in its place
def test_a_rename_that_fails_leaves_the_older_folder_and_is_one_error(
    tmp_path, monkeypatch, failing
):
    write(tmp_path / "model", "first")
    calls, replace = [], os.replace

    def broken(source, target):
        calls.append(source)
        if len(calls) == failing:
            raise OSError(5, "Input/output error")
        replace(source, target)

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(RlgymError, match=r"the model cannot be saved in .*Input/output error"):
        write(tmp_path / "model", "second")
    assert (tmp_path / "model" / "weights").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_kill_between_the_renames_leaves_both_whole(tmp_path, monkeypatch):
    write(tmp_path / "model", "first")
    replace = os.replace

    def killed(source, target):
        if source.name.endswith(".partial"):
            raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            write(tmp_path / "model", "second")
    assert (tmp_path / "model.old" / "weights").read_text() == "first"
    assert (tmp_path / "model.partial" / "weights").read_text() == "second"
    write(tmp_path / "model", "third")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
