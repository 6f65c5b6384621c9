"""Loggers: what is written, and what is said when a package is missing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from rlgym_llm_trainers.training.loggers import JsonlLogger, open_loggers

from rlgym_llm.errors import RlgymError, UserError


def test_jsonl_is_flushed_step_by_step_with_sorted_keys(tmp_path):
    logger = JsonlLogger(tmp_path / "metrics.jsonl")
    logger.log(0, {"b": 1.5, "a": None})
    text = (tmp_path / "metrics.jsonl").read_text()
    assert text == '{"step": 0, "a": null, "b": 1.5}\n'
    logger.close()


def test_jsonl_refuses_nan_and_an_existing_file(tmp_path):
    logger = JsonlLogger(tmp_path / "metrics.jsonl")
    with pytest.raises(ValueError, match="not JSON compliant"):
        logger.log(0, {"a": float("nan")})
    logger.close()
    with pytest.raises(FileExistsError):
        JsonlLogger(tmp_path / "metrics.jsonl")


def test_a_run_that_goes_on_writes_after_the_rows_that_are_there(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n')
    logger = JsonlLogger(path, goes_on=True)
    logger.log(2, {"a": 1.0})
    logger.close()
    assert path.read_text() == '{"step": 1}\n{"step": 2, "a": 1.0}\n'


def test_a_full_disk_names_the_file_and_closing_says_nothing_more(tmp_path, monkeypatch):
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("needs /dev/full")
    path = tmp_path / "metrics.jsonl"
    monkeypatch.setattr(Path, "open", lambda self, mode, **kwargs: open(full, "w", **kwargs))  # noqa: SIM115
    logger = JsonlLogger(path)
    with pytest.raises(RlgymError) as raised:
        logger.log(0, {"a": 1.0})
    assert str(raised.value) == f"{path}: cannot be written: No space left on device"
    assert not isinstance(raised.value, UserError)
    logger.close()


def open_named(tmp_path, *names):
    return open_loggers(
        names,
        metrics_path=tmp_path / "metrics.jsonl",
        project="p",
        experiment="e",
        config={"a": 1},
    )


def test_tensorboard_scalars_can_be_read_back(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    jsonl, tensorboard = open_named(tmp_path, "console", "tensorboard")
    for logger in (jsonl, tensorboard):
        logger.log(3, {"actor/lr": 0.5, "absent": None})
        logger.close()
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(e.step, e.value) for e in events.Scalars("actor/lr")] == [(3, 0.5)]
    assert json.loads((tmp_path / "metrics.jsonl").read_text())["actor/lr"] == 0.5


def test_a_missing_package_is_one_clear_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"--trainer.logger wandb: .*rlgym-llm\[tracking\]"):
        open_named(tmp_path, "wandb")
