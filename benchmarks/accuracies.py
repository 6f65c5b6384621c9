"""Accuracies at the end of runs that differ in their seed: are two kinds of run alike?"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

__all__ = ["accuracy_of", "show_apart"]

MOST_ERRORS = 2.0
"""How many standard errors two kinds of run that learn the same may be apart."""


def accuracy_of(row: Mapping[str, float]) -> float:
    """The share of validation problems that were solved, of a row of metrics."""
    (name,) = [key for key in row if key.startswith("val-core/") and "/acc/" in key]
    return row[name]


def show_apart(found: Mapping[str, Sequence[float]]) -> bool:
    """Prints means and standard errors of two kinds of run; whether they are close enough.

    Equal seeds are no pairs here: the error is that of the difference of two independent means.

    >>> show_apart({"a": [0.5, 0.7], "b": [0.6, 0.6]})
    a 0.600 ± 0.100, b 0.600 ± 0.000
    met: 0.000 apart, 0.0 standard errors of 0.100, at most 2
    True
    """
    (first, values), (second, others) = found.items()
    means = statistics.mean(values), statistics.mean(others)
    errors = standard_error(values), standard_error(others)
    apart, together = abs(means[1] - means[0]), math.hypot(*errors)
    print(f"{first} {means[0]:.3f} ± {errors[0]:.3f}, {second} {means[1]:.3f} ± {errors[1]:.3f}")
    if min(len(values), len(others)) < 2:
        print(f"{apart:.3f} apart; a single seed has no standard error to judge that by")
        return True
    is_met = apart <= MOST_ERRORS * together
    number = apart / together if together else math.inf if apart else 0.0
    print(
        f"{'met' if is_met else 'MISSED'}: {apart:.3f} apart, {number:.1f} standard errors of "
        f"{together:.3f}, at most {MOST_ERRORS:g}"
    )
    return is_met


def standard_error(values: Sequence[float]) -> float:
    """Of the mean; 0 of a single value."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
