"""The bar shows rollouts and the accuracy so far, and only a terminal sees it."""

from __future__ import annotations

import io

from rich.console import Console
from rlgym_llm_trainers.eval_progress import BarProgress, SilentProgress, open_progress
from rlgym_llm_trainers.eval_rows import EvalRow

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
    with BarProgress(8, "math", console) as progress:
        progress.advance([row(1.0), row(0.0)])
        progress.advance([row(1.0), row(1.0), row(None)])
    assert "5/8" in screen.getvalue()
    assert "accuracy 75.0%" in screen.getvalue()


def test_a_pipe_sees_nothing(capfd):
    with open_progress(8, "math") as progress:
        assert isinstance(progress, SilentProgress)
        progress.advance([row(1.0)])
    assert capfd.readouterr() == ("", "")
