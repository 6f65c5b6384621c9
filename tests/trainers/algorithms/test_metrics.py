import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlgym_llm_trainers.algorithms.metrics import (
    Metric,
    MetricKind,
    finalize,
    length_metrics,
    merge,
    merge_steps,
)

numbers = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12)


def test_means_merge_by_count_not_as_a_mean_of_means():
    # (10 + 10) / (100 + 25) = 0.16, where the mean of 0.1 and 0.4 would be 0.25.
    merged = Metric.mean(10, 100).merge(Metric.mean(10, 25))
    assert merged.result() == pytest.approx(0.16)


def test_a_metric_over_nothing_is_nan_and_leaves_others_alone():
    for empty in (Metric.mean(0, 0), Metric.max([]), Metric.min([])):
        assert math.isnan(empty.result())
    assert Metric.max([]).merge(Metric.max([-3.0])).result() == -3.0
    assert Metric.min([7.0]).merge(Metric.min([])).result() == 7.0


def test_kinds_do_not_mix():
    with pytest.raises(ValueError, match="mean metric does not merge with a sum"):
        Metric.mean(1, 1).merge(Metric.sum(1))


@given(numbers, st.integers(0, 12))
def test_any_split_merges_to_the_whole(values, cut):
    parts = [values[:cut], values[cut:]]
    bags = [
        {
            "mean": Metric.mean(sum(part), len(part)),
            "sum": Metric.sum(sum(part)),
            "max": Metric.max(part),
            "min": Metric.min(part),
        }
        for part in parts
    ]
    result = finalize(merge(bags))
    assert result["mean"] == pytest.approx(sum(values) / len(values), rel=1e-9, abs=1e-6)
    assert result["sum"] == pytest.approx(sum(values), rel=1e-9, abs=1e-6)
    assert result["max"] == max(values)
    assert result["min"] == min(values)


def test_merge_keeps_keys_that_only_some_parts_have():
    assert finalize(merge([{"a": Metric.sum(1)}, {"b": Metric.sum(2)}])) == {"a": 1.0, "b": 2.0}


def test_merge_steps_averages_losses_and_pools_the_rest():
    steps = [
        {"loss": Metric.sum(0.2), "kl": Metric.mean(1, 10), "max": Metric.max([1])},
        {"loss": Metric.sum(0.4), "kl": Metric.mean(5, 30), "max": Metric.max([3])},
    ]
    assert finalize(merge_steps(steps)) == pytest.approx({"loss": 0.3, "kl": 0.15, "max": 3.0})
    assert merge_steps(steps)["loss"].kind is MetricKind.MEAN


def test_length_metrics_are_of_raw_lengths():
    result = finalize(length_metrics([4, 12, 7], truncated=[False, True, False]))
    assert result == pytest.approx(
        {
            "response_length/mean": 23 / 3,
            "response_length/max": 12.0,
            "response_length/min": 4.0,
            "response_length/clip_ratio": 1 / 3,
        }
    )
    with pytest.raises(ValueError, match="3 lengths but 1 truncation"):
        length_metrics([1, 2, 3], truncated=[True])
