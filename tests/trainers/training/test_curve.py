"""The learning curve: read, drawn, saved."""

from __future__ import annotations

import json

import pytest
from rlgym_llm_trainers.training.curve import draw_curve, read_curve, save_curve


@pytest.fixture
def metrics_path(tmp_path):
    rows = [{"step": 0, "acc": 0.25}, {"step": 1, "loss": 1.0}, {"step": 10, "acc": 0.75}]
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_steps_without_the_metric_are_no_points(metrics_path):
    curve = read_curve(metrics_path, keys={"acc": "accuracy", "absent": "x"}, title="t")
    assert curve.series == {"accuracy": ((0, 0.25), (10, 0.75))}


def test_drawing_names_the_series_and_holds_no_escape_codes(metrics_path):
    drawing = draw_curve(read_curve(metrics_path, keys={"acc": "acc"}, title="accuracy"))
    assert drawing is not None
    assert "acc" in drawing
    assert "accuracy" in drawing
    assert "\x1b" not in drawing
    assert max(map(len, drawing.splitlines())) <= 80


def test_png_is_written(metrics_path, tmp_path):
    target = tmp_path / "curve.png"
    assert save_curve(read_curve(metrics_path, keys={"acc": "acc"}, title="t"), target)
    assert target.read_bytes().startswith(b"\x89PNG")
