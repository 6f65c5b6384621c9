"""What a run says when it ends: validation before and after, the curve, where things are."""

from __future__ import annotations

from collections.abc import Mapping

from rlgym_llm_trainers.curve import draw_curve, read_curve, save_curve
from rlgym_llm_trainers.grpo import TrainResult
from rlgym_llm_trainers.run_folder import RunFolder

__all__ = ["before_after", "report"]


def report(result: TrainResult, run: RunFolder, *, title: str) -> None:
    """Shows the validation before and after, draws the curve and saves it, names the outputs."""
    first = result.first.metrics if result.first else {}
    last = result.last.metrics if result.last and result.last is not result.first else {}
    shares = {key: key.split("/", 1)[1] for key in first or last if _is_share(key)}
    for line in before_after(first, last):
        print(line)
    curve = read_curve(run.metrics, keys=shares or {"critic/score/mean": "score"}, title=title)
    if result.steps_done and curve.series:
        drawing = draw_curve(curve)
        if drawing:
            print(drawing)
        if save_curve(curve, run.curve):
            print(f"curve    {run.curve}")
        if drawing is None:
            print("the curve is not drawn: pip install 'rlgym-llm[plot]'")
    print(f"metrics  {run.metrics}")
    if result.steps_done:
        print(f"model    {run.model}")


def before_after(first: Mapping[str, float], last: Mapping[str, float]) -> list[str]:
    """One line a validation figure that is a share, before and after training.

    >>> print(*before_after({"val-core/d/acc/mean@1": 0.25}, {"val-core/d/acc/mean@1": 0.75}))
    validation acc/mean@1 on d: 25.0% -> 75.0% (+50.0 points)
    """
    lines = []
    for key in first or last:
        if not _is_share(key):
            continue
        _, rest = key.split("/", 1)
        source, name, mean = rest.rsplit("/", 2)
        shown = f"validation {name}/{mean} on {source}: "
        if key in first:
            shown += f"{first[key]:.1%}"
        if key in last:
            shown += f" -> {last[key]:.1%}"
        if key in first and key in last:
            shown += f" ({100 * (last[key] - first[key]):+.1f} points)"
        lines.append(shown)
    return lines


def _is_share(key: str) -> bool:
    """Whether the figure is a mean score over the validation tasks, apart from the reward."""
    parts = key.split("/")
    return key.startswith("val-") and parts[-1].startswith("mean@") and parts[-2] != "reward"
