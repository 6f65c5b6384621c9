from __future__ import annotations

import itertools
import math
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlgym_llm.report.at_k import at_k_svg
from rlgym_llm.report.histogram import Bar, bars, histogram_svg
from rlgym_llm.report.length_chart import Point, length_bands, length_svg
from rlgym_llm.report.matrix import matrix_svg
from rlgym_llm.report.numbers import round_ticks
from rlgym_llm.report.svg import Plot, text

numbers = st.floats(-1e9, 1e9).filter(lambda x: x == 0 or abs(x) > 1e-6)
points = st.lists(
    st.builds(Point, st.integers(0, 10_000), st.floats(-5, 5), st.sampled_from([None, True, False]))
)


def titles(svg: str) -> list[str]:
    return [node.text or "" for node in ElementTree.fromstring(svg).iter("title")]


def nodes(svg: str, kind: str, class_: str) -> list[ElementTree.Element]:
    return [n for n in ElementTree.fromstring(svg).iter(kind) if n.get("class") == class_]


@given(numbers, numbers, st.integers(2, 12))
def test_ticks_are_round_even_and_within(low: float, high: float, most: int) -> None:
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        return
    ticks = round_ticks(low, high, most)
    assert 1 <= len(ticks) <= most
    if len(ticks) > 1:
        gap = (ticks[-1] - ticks[0]) / (len(ticks) - 1)
        lead = gap / 10 ** math.floor(math.log10(gap) + 1e-9)
        assert any(math.isclose(lead, m, rel_tol=1e-6) for m in (1, 2, 5, 10))
        assert low - 1e-6 * gap <= ticks[0] < ticks[-1] <= high + 1e-6 * gap
        assert all(math.isclose(b - a, gap, rel_tol=1e-6) for a, b in itertools.pairwise(ticks))


def test_bars_of_many_values_are_the_bins() -> None:
    counts = [0, *[1] * 13, 0, 6]
    found = bars({"low": 0.0, "high": 16.0, "counts": counts}, [])
    assert len(found) == 14
    assert found[0] == Bar(1.0, 2.0, 1)
    assert found[-1] == Bar(15.0, 16.0, 6)


def test_bars_of_few_values_stand_where_the_values_are() -> None:
    histogram = {"low": 0.0, "high": 1.0, "counts": [2, 0, 1, 0]}
    assert bars(histogram, [0.0, 0.5]) == [Bar(0.0, 0.0, 2), Bar(0.5, 0.5, 1)]
    # two values in one bin: it stays a bin
    assert bars(histogram, [0.0, 0.1, 0.5]) == [Bar(0.0, 0.25, 2), Bar(0.5, 0.75, 1)]


def test_heights_are_in_proportion() -> None:
    svg = histogram_svg("math", [Bar(0, 0, 30), Bar(1, 1, 10)], mean=0.25, x_label="raw score")
    heights = [float(bar.get("height") or 0) for bar in nodes(svg, "rect", "bar")]
    assert heights[0] == pytest.approx(3 * heights[1], abs=0.05)
    assert titles(svg)[1:3] == ["0: 30 rows (75.0%)", "1: 10 rows (25.0%)"]
    assert titles(svg)[-1] == "mean 0.25"


@given(st.floats(-1e6, 1e6), st.integers(1, 10**9))
def test_a_constant_has_a_histogram(value: float, num_rows: int) -> None:
    svg = histogram_svg("x", [Bar(value, value, num_rows)], mean=value, x_label="raw score")
    assert len(nodes(svg, "rect", "bar")) == 1


@given(points)
def test_bands_share_the_rows_out_in_order(rows: list[Point]) -> None:
    bands = length_bands(rows)
    assert sum(band.num_rows for band in bands) <= len(rows)
    assert all(a.high < b.low for a, b in itertools.pairwise(bands))
    for band in bands:
        inside = [row.reward for row in rows if band.low <= row.chars <= band.high]
        assert len(inside) == band.num_rows
        assert band.mean == pytest.approx(math.fsum(inside) / len(inside))


@given(points.filter(lambda rows: len(rows) > 1))
def test_every_row_is_a_dot(rows: list[Point]) -> None:
    svg = length_svg(rows, width=400, height=300, class_="is-narrow")
    paths = [
        n for n in ElementTree.fromstring(svg).iter("path") if "dots" in (n.get("class") or "")
    ]
    assert sum((path.get("d") or "").count("M") for path in paths) == len(rows)


def test_a_wide_range_of_lengths_is_logarithmic() -> None:
    rows = [Point(chars, 0.5, None) for chars in (10, 11, 12, 100_000)]
    said = ElementTree.fromstring(length_svg(rows, width=400, height=300, class_="x")).itertext()
    assert {"length in characters (logarithmic)", "1,000", "100,000"} <= set(said)


def test_the_matrix_shows_numbers_and_gaps() -> None:
    svg = matrix_svg(["a<b", "c"], [[1.0, -0.216], [-0.216, None]])
    assert "a<b and c: r = −0.216" in titles(svg)
    assert "c and c: no value: one of them never varies" in titles(svg)
    assert len(nodes(svg, "rect", "cell minus")) == 2


def test_curves_name_their_numbers() -> None:
    found = {"mean": 0.5, "low": 0.4, "high": 0.6, "groups": 7}
    alone = {"mean": 0.75, "low": None, "high": None, "groups": 1}
    svg = at_k_svg({"pass": {"1": found, "4": alone}, "maj": {"1": found, "4": found}})
    assert "pass@1: 50.0% (40.0% to 60.0%), 7 tasks" in titles(svg)
    assert "pass@4: 75.0%, 1 tasks" in titles(svg)
    assert len(nodes(svg, "path", "curve maj")) == 1


def test_a_plot_puts_values_where_they_belong() -> None:
    plot = Plot(x=(0, 10), y=(0, 1), title="t", width=132, height=122, left=20, right=12, top=0)
    # 100 units across, 80 up, above 42 of labels
    assert plot.at_x(5) == 70
    assert plot.at_y(0) == 80
    assert plot.at_y(1) == 0


def test_labels_are_escaped() -> None:
    assert text("<script>&", 0, 0) == (
        '<text x="0" y="0" text-anchor="middle" class="tick">&lt;script&gt;&amp;</text>'
    )
