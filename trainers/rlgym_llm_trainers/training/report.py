"""What a run says when it ends: validation before and after, the curve, where things are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from rlgym_llm_trainers.training.curve import draw_curve, read_curve, save_curve
from rlgym_llm_trainers.training.loop import TrainResult
from rlgym_llm_trainers.training.past import read_rows
from rlgym_llm_trainers.training.run_folder import RunFolder

__all__ = ["before_after", "report"]


def report(result: TrainResult, run: RunFolder, *, shares: Collection[str], title: str) -> None:
    """Shows the validation before and after, draws the curve and saves it, names the outputs."""
    first = result.first.metrics if result.first else {}
    last = result.last.metrics if result.last and result.last is not result.first else {}
    for line in before_after(first, last, shares=shares):
        print(line)
    validated = [row["step"] for row in read_rows(run.metrics) if _has_scores(row)]
    if validated and validated[-1] < result.steps_done:
        print(f"the last validation is of step {validated[-1]}, the model of {result.steps_done}")
    keys = {key: key.split("/", 1)[1] for key in first or last if _score_name(key) in shares}
    curve = read_curve(run.metrics, keys=keys or {"critic/score/mean": "score"}, title=title)
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
        if run.critic.exists():
            print(f"critic   {run.critic}")


def before_after(
    first: Mapping[str, float], last: Mapping[str, float], *, shares: Collection[str]
) -> list[str]:
    """One line a validation score, before and after training; those in ``shares`` in percent.

    >>> print(*before_after(
    ...     {"val-core/d/acc/mean@1": 0.25}, {"val-core/d/acc/mean@1": 0.75}, shares={"acc"}))
    validation acc/mean@1 on d: 25.0% -> 75.0% (+50.0 points)
    """
    lines = []
    for key in first or last:
        name = _score_name(key)
        if name is None:
            continue
        source = key.split("/", 1)[1].rsplit("/", 2)[0]
        shown = "{:.1%}" if name in shares else "{:.4g}"
        values = " -> ".join(shown.format(found[key]) for found in (first, last) if key in found)
        line = f"validation {name}/{key.rsplit('/', 1)[1]} on {source}: {values}"
        if name in shares and key in first and key in last:
            line += f" ({100 * (last[key] - first[key]):+.1f} points)"
        lines.append(line)
    return lines


def _has_scores(keys: Iterable[str]) -> bool:
    return any(_score_name(key) is not None for key in keys)


def _score_name(key: str) -> str | None:
    """The score that a validation metric is the mean of: ``acc`` of ``val-core/d/acc/mean@1``."""
    parts = key.split("/")
    is_score = key.startswith("val-") and parts[-1].startswith("mean@")
    return parts[-2] if is_score else None
