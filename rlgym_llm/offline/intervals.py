"""The interval of a mean over rows, some of which belong to groups."""

from __future__ import annotations

from rlgym_llm.intervals import Interval, clustered_interval, mean_and_interval
from rlgym_llm.moments import Moments
from rlgym_llm.offline.groups import Clusters

__all__ = ["interval_of"]


def interval_of(moments: Moments, clusters: Clusters, num_alone: int) -> Interval:
    """`mean_and_interval` with groups, from what `measure_groups` adds up.

    ``num_alone`` numbers belong to no group and are groups of their own; where all do, the numbers
    are taken as independent.

    >>> moments, clusters = Moments.of([1, 1, 0, 0]), Clusters()
    >>> clusters.num_groups, clusters.squared_sums, clusters.squared_sizes = 2, 2.0, 8.0
    >>> [round(x, 3) for x in interval_of(moments, clusters, 0)]  # of two pairs that agree
    [0.5, 0.004, 0.996]
    """
    n = moments.count
    if num_alone >= n or n == 0:
        return mean_and_interval(moments)
    # What the rows without a group add: as if each were as far from the mean as one row is.
    return clustered_interval(
        moments,
        num_groups=clusters.num_groups + num_alone,
        squared_sums=clusters.squared_sums + num_alone * moments.m2 / n,
        squared_sizes=clusters.squared_sizes + num_alone,
    )
