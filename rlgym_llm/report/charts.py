"""The charts of a report, each with what it is called; only those that have something to show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rlgym_llm.report.at_k import at_k_svg
from rlgym_llm.report.gather import Findings
from rlgym_llm.report.histogram import bars, histogram_svg
from rlgym_llm.report.length_chart import length_svg
from rlgym_llm.report.matrix import matrix_svg
from rlgym_llm.report.numbers import short
from rlgym_llm.view.visible import visible

__all__ = ["Chart", "at_k_chart", "histogram_charts", "length_chart", "matrix_chart"]

_FEWEST_POINTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A figure of the page."""

    title: str
    caption: str
    svgs: tuple[str, ...]
    """Several where it is drawn for several widths of the page."""


def histogram_charts(summary: Mapping[str, Any], findings: Findings) -> Iterator[Chart]:
    """The reward, then each component; counts are of all rows."""
    yield from _histogram("reward", summary["reward"], findings.samples[""], "reward")
    for name, part in summary["components"].items():
        yield from _histogram(visible(name), part, findings.samples[name], "raw score")


def _histogram(
    name: str, part: Mapping[str, Any], sample: tuple[float, ...], x_label: str
) -> Iterator[Chart]:
    if part["histogram"] is None:
        return
    caption = f"mean {short(part['mean'])}, from {short(part['min'])} to {short(part['max'])}"
    if part["min"] == part["max"]:
        caption = f"always {short(part['min'])}"
    found = bars(part["histogram"], sample)
    svg = histogram_svg(name, found, mean=part["mean"], x_label=x_label)
    yield Chart(title=name, caption=caption, svgs=(svg,))


def length_chart(summary: Mapping[str, Any], findings: Findings) -> Chart | None:
    """Length against reward; None where hardly a row has a reward."""
    points = findings.points
    if len(points) < _FEWEST_POINTS:
        return None
    num_rows = summary["reward"]["count"]
    caption = "Each dot is a row"
    if len(points) < num_rows:
        caption += f", a sample of {len(points):,} out of {num_rows:,}"
    caption += "; the line joins the means of ten bands of length, with their 95% intervals."
    return Chart(
        title="Length against reward",
        caption=caption,
        svgs=(
            length_svg(points, width=1160, height=380, class_="is-wide"),
            length_svg(points, width=400, height=300, class_="is-narrow"),
        ),
    )


def matrix_chart(summary: Mapping[str, Any]) -> Chart | None:
    """None where there is nothing to correlate."""
    found = summary["correlations"]
    if len(found["r"]) < 2:
        return None
    names = [*map(visible, found["names"][:-1]), "length (chars)"]
    return Chart(
        title="Correlation of the components",
        caption="Pearson’s r of raw scores over the rows that have both; – where one never varies.",
        svgs=(matrix_svg(names, found["r"]),),
    )


def at_k_chart(summary: Mapping[str, Any]) -> Chart | None:
    """None where tasks have one sample each."""
    accuracy = summary["accuracy"]
    if accuracy is None or len(accuracy["pass_at_k"]) < 2:
        return None
    curves = {"pass": accuracy["pass_at_k"]}
    if accuracy["maj_at_k"]:
        # A vote of one is that one.
        first = {k: found for k, found in accuracy["pass_at_k"].items() if k == "1"}
        curves["maj"] = {**first, **accuracy["maj_at_k"]}
    name = visible(accuracy["component"])
    return Chart(
        title="pass@k and maj@k",
        caption=f"By {name}, over {summary['groups']['count']:,} groups, with 95% intervals.",
        svgs=(at_k_svg(curves),),
    )
