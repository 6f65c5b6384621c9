"""The bar shows rollouts and the accuracy so far."""

from __future__ import annotations

import io

from rich.console import Console
from rlgym_llm_trainers.commands.eval_progress import AccuracySoFar
from rlgym_llm_trainers.commands.eval_rows import EvalRow
from rlgym_llm_trainers.commands.progress_bar import ProgressBar

from rlgym_llm.scores import CardStatus
from rlgym_llm.types import RolloutStatus


def row(raw):
    return EvalRow(
        rollout_id="r",
        group_id="g",
        data_source="d",
        status=RolloutStatus.OK,
        card_status=CardStatus.SCORED,
        is_truncated=False,
        num_tokens=1,
        reward=raw,
        raw={"math": raw},
        failed=(),
        answer=None,
    )


def test_rollouts_and_accuracy_so_far():
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, color_system=None)
    so_far = AccuracySoFar("math")
    with ProgressBar("rollouts", 8, console) as bar:
        for rows in ([row(1.0), row(0.0)], [row(1.0), row(1.0), row(None)]):
            bar.advance(len(rows), so_far.add(rows))
    assert "5/8" in screen.getvalue()
    assert "accuracy 75.0%" in screen.getvalue()


def test_no_accuracy_as_long_as_nothing_is_judged():
    assert AccuracySoFar(None).add([row(1.0)]) == ""
    so_far = AccuracySoFar("math")
    assert [so_far.add([row(None)]), so_far.add([row(0.0)])] == ["", "accuracy 0.0%"]
