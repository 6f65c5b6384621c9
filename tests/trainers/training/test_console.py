"""What a person sees: plain lines in a pipe, a table on a terminal."""

from __future__ import annotations

import io

from rich.console import Console
from rlgym_llm_trainers.training.console import LiveView, PlainView

METRICS = {
    "critic/rewards/mean": 0.4125,
    "rewards/math/mean": 0.5,
    "val-core/rlgym/starter/acc/mean@1": 0.625,
    "actor/pg_loss": 0.1,
    "actor/grad_norm": None,
}


def test_plain_view_prints_one_line_a_step(capsys):
    with PlainView() as view:
        view.start(60)
        view.note("starter problems")
        view.phase("generating")
        view.step(3, METRICS)
    out = capsys.readouterr().out
    assert out.splitlines() == [
        "starter problems",
        "step 3/60  val acc 62.5%  math 0.500  reward 0.412",
    ]


def test_live_view_shows_the_last_steps_and_the_notes():
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=100)
    with LiveView(console) as view:
        view.start(60)
        view.note("[starter] problems")
        for step in range(20):
            view.step(step, METRICS)
    shown = stream.getvalue()
    assert "[starter] problems" in shown
    final = shown[shown.rfind("step") :]
    assert "19/60" in final
    assert "62.5%" in final
