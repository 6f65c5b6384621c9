"""Metrics as partial states, so that micro-batches, steps and workers merge exactly."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

__all__ = [
    "Metric",
    "MetricKind",
    "finalize",
    "finite",
    "length_metrics",
    "merge",
    "merge_steps",
    "summary",
    "without_faults",
]


class MetricKind(StrEnum):
    """How two states of one metric become one."""

    MEAN = "mean"
    SUM = "sum"
    MAX = "max"
    MIN = "min"
    EXPLAINED_VARIANCE = "explained_variance"
    """By their moments; see `losses.value.ExplainedVariance`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric over ``count`` things: their sum, or the largest or smallest of them.

    Means merge by their counts, never as a mean of means. A metric over nothing is NaN, not 0.

    >>> short, long = Metric.mean(3.0, 1), Metric.mean(3.0, 3)
    >>> short.merge(long).result()
    1.5
    """

    kind: MetricKind
    value: float
    """The running sum, maximum or minimum."""
    count: float
    """How many things (tokens, sequences, groups) the value covers."""

    @classmethod
    def mean(cls, total: float, count: float) -> Metric:
        """A mean, given as a sum and the number of things summed."""
        return cls(kind=MetricKind.MEAN, value=float(total), count=float(count))

    @classmethod
    def sum(cls, total: float, count: float = 1) -> Metric:
        """A quantity that adds up, such as the parts of a loss with a global denominator."""
        return cls(kind=MetricKind.SUM, value=float(total), count=float(count))

    @classmethod
    def max(cls, values: Iterable[float]) -> Metric:
        """The largest of ``values``."""
        found = [float(value) for value in values]
        return cls(kind=MetricKind.MAX, value=max(found, default=-math.inf), count=len(found))

    @classmethod
    def min(cls, values: Iterable[float]) -> Metric:
        """The smallest of ``values``."""
        found = [float(value) for value in values]
        return cls(kind=MetricKind.MIN, value=min(found, default=math.inf), count=len(found))

    def merge(self, other: Metric) -> Metric:
        """The metric over the things of both; ValueError where the kinds differ."""
        if self.kind is not other.kind:
            raise ValueError(f"a {self.kind} metric does not merge with a {other.kind}")
        match self.kind:
            case MetricKind.MAX:
                value = max(self.value, other.value)
            case MetricKind.MIN:
                value = min(self.value, other.value)
            case _:
                value = self.value + other.value
        return replace(self, value=value, count=self.count + other.count)

    def result(self) -> float:
        """The number to log; NaN where the metric covers nothing."""
        if self.count == 0:
            return math.nan
        return self.value / self.count if self.kind is MetricKind.MEAN else self.value


def merge(bags: Iterable[Mapping[str, Metric]]) -> dict[str, Metric]:
    """Merges the metrics of micro-batches or workers, key by key; a key may be missing in some.

    >>> bags = [{"loss": Metric.sum(0.25)}, {"loss": Metric.sum(0.5)}]
    >>> finalize(merge(bags))
    {'loss': 0.75}
    """
    merged: dict[str, Metric] = {}
    for bag in bags:
        for key, metric in bag.items():
            merged[key] = merged[key].merge(metric) if key in merged else metric
    return merged


def merge_steps(steps: Iterable[Mapping[str, Metric]]) -> dict[str, Metric]:
    """Merges the metrics of several optimizer steps: sums within a step become a mean over steps.

    >>> finalize(merge_steps([{"loss": Metric.sum(0.25)}, {"loss": Metric.sum(0.75)}]))
    {'loss': 0.5}
    """
    return merge({key: _per_step(metric) for key, metric in step.items()} for step in steps)


def finalize(bag: Mapping[str, Metric]) -> dict[str, float]:
    """The numbers to log, under the same keys."""
    return {key: metric.result() for key, metric in bag.items()}


def without_faults(bag: Mapping[str, Metric]) -> dict[str, Metric]:
    """The metrics of an update that was refused, less those for which it was: NaN and infinity.

    >>> list(without_faults({"loss": Metric.sum(math.inf), "entropy": Metric.mean(1.5, 3)}))
    ['entropy']
    """
    return {key: metric for key, metric in bag.items() if math.isfinite(metric.result())}


def length_metrics(
    lengths: Sequence[int], *, truncated: Sequence[bool], name: str = "response_length"
) -> dict[str, Metric]:
    """``<name>/{mean,max,min,clip_ratio}`` of raw lengths, before any mask is applied.

    Lengths 4, 12, 7 of which the second was cut: mean 7.67, max 12, min 4, clip_ratio 1/3, also
    where the truncated rollout leaves the loss.
    """
    if len(lengths) != len(truncated):
        raise ValueError(f"{len(lengths)} lengths but {len(truncated)} truncation flags")
    return {
        f"{name}/mean": Metric.mean(sum(lengths), len(lengths)),
        f"{name}/max": Metric.max(lengths),
        f"{name}/min": Metric.min(lengths),
        f"{name}/clip_ratio": Metric.mean(sum(truncated), len(truncated)),
    }


def summary(name: str, values: Sequence[float | None]) -> dict[str, float]:
    """``<name>/{mean,max,min}`` of the values that are there; NaN where none is.

    >>> summary("critic/score", [1.0, None, 0.0])
    {'critic/score/mean': 0.5, 'critic/score/max': 1.0, 'critic/score/min': 0.0}
    """
    found = np.array([value for value in values if value is not None], dtype=np.float64)
    if not found.size:
        return dict.fromkeys((f"{name}/mean", f"{name}/max", f"{name}/min"), math.nan)
    return {
        f"{name}/mean": float(found.mean()),
        f"{name}/max": float(found.max()),
        f"{name}/min": float(found.min()),
    }


def finite(metrics: Mapping[str, float | None]) -> dict[str, float | None]:
    """The metrics with NaN and infinity as None, which JSON can say and a logger can skip."""
    return {
        key: value if value is not None and math.isfinite(value) else None
        for key, value in metrics.items()
    }


def _per_step(metric: Metric) -> Metric:
    if metric.kind is not MetricKind.SUM:
        return metric
    return Metric.mean(metric.value, 1)
