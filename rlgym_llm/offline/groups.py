"""What siblings say together: pass@k, maj@k, and how far a mean can be trusted.

Rows of one group may stand anywhere. They are shared out by the hash of their group into buckets
that fit into memory, so that memory is constant however many rows there are.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlgym_llm.errors import DataError
from rlgym_llm.estimators import maj_at_k, pass_at_k
from rlgym_llm.moments import Moments
from rlgym_llm.offline.record_files import RecordFiles
from rlgym_llm.offline.tallies import verdicts

__all__ = ["Clusters", "Groups", "measure_groups"]

_BUCKET_ROWS = 1 << 16
_MOST_BUCKETS = 512
_MOST_VOTES = 10_000


@dataclass(slots=True)
class Clusters:
    """How far the groups' sums are from what the mean of all rows makes them."""

    num_groups: int = 0
    squared_sums: float = 0.0
    """``sum_g (sum_i (x_gi - mean))^2``."""
    squared_sizes: float = 0.0
    """``sum_g n_g^2``."""


@dataclass(slots=True)
class Groups:
    """What was found over groups."""

    num_groups: int = 0
    sizes: Counter[int] = field(default_factory=Counter)
    """How many groups there are of each size."""
    reward: Clusters = field(default_factory=Clusters)
    components: dict[str, Clusters] = field(default_factory=dict)
    pass_at: dict[int, Moments] = field(default_factory=dict)
    maj_at: dict[int, Moments] = field(default_factory=dict)


def measure_groups(
    files: RecordFiles,
    work: Path,
    *,
    num_rows: int,
    means: tuple[float, dict[str, float]],
    accuracy: str | None,
    right_from: float = 1.0,
    ks: Sequence[int] | None,
    must_be_whole: bool,
) -> Groups:
    """Goes through all groups twice, bucket by bucket; rows without a group are left out.

    ``means`` are those of the reward and of each component. ``ks`` are those of pass@k and maj@k;
    None takes the powers of two up to the most common size of a group. maj@k is over 10,000 groups
    where there are more. Raises DataError where a group ``must_be_whole`` and is not.
    """
    found = Groups(components={name: Clusters() for name in files.components})
    buckets = _Buckets(files, work, num_rows)
    place = files.components.index(accuracy) if accuracy in files.components else None
    pairs: Counter[tuple[int, int]] = Counter()
    for bucket in buckets:
        starts, sizes = _runs(bucket["group"])
        found.num_groups += len(sizes)
        found.sizes.update(Counter(sizes.tolist()))
        if must_be_whole:
            _check_whole(bucket, starts, sizes)
        _cluster(found.reward, bucket["reward"], means[0], starts)
        for index, name in enumerate(files.components):
            _cluster(found.components[name], bucket[f"{index}.raw"], means[1][name], starts)
        if place is not None:
            pairs += _right_of(bucket[f"{place}.raw"], starts, right_from)
    if place is not None and pairs:
        judged: Counter[int] = Counter()
        for (n, _), count in pairs.items():
            judged[n] += count
        ks = _powers(judged) if ks is None else ks
        found.pass_at = {k: m for k in ks if (m := _pass_moments(pairs, k)).count}
        found.maj_at = _votes(
            buckets, place, right_from, [k for k in ks if k > 1], found.num_groups
        )
    buckets.close()
    return found


def _powers(sizes: Counter[int]) -> list[int]:
    """1, 2, 4, ... up to the most common number of judged samples, and that number itself."""
    common = max(sizes, key=lambda n: (sizes[n], n))
    return sorted({*(1 << power for power in range(common.bit_length())), common} - {0})


def _runs(groups: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each group begins in a bucket, which is sorted, and how many rows it has."""
    if not len(groups):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    starts = np.flatnonzero(np.concatenate([[True], groups[1:] != groups[:-1]]))
    return starts, np.diff(np.append(starts, len(groups)))


def _check_whole(bucket: Any, starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> None:
    """Rows of a group are in the order of the file, so they are whole where they are a range."""
    rows = bucket["row"]
    torn = np.flatnonzero(rows[starts + sizes - 1] - rows[starts] + 1 != sizes)
    if len(torn):
        first = starts[torn[0]]
        run = rows[first : first + sizes[torn[0]]]
        again = first + 1 + int(np.flatnonzero(np.diff(run) != 1)[0])
        raise DataError(
            f"line {int(bucket['line'][again])} belongs to the group of line "
            f"{int(bucket['line'][first])}, with others between them: a reward compares siblings, "
            "which must stand side by side; sort the file by group"
        )


def _cluster(
    clusters: Clusters, values: NDArray[np.float64], mean: float, starts: NDArray[np.int64]
) -> None:
    if not len(starts):
        return
    present = ~np.isnan(values)
    sums = np.add.reduceat(np.where(present, values - mean, 0.0), starts)
    sizes = np.add.reduceat(present.astype(np.float64), starts)
    clusters.num_groups += int((sizes > 0).sum())
    clusters.squared_sums += float(np.square(sums).sum())
    clusters.squared_sizes += float(np.square(sizes).sum())


def _right_of(
    raw: NDArray[np.float64], starts: NDArray[np.int64], right_from: float
) -> Counter[tuple[int, int]]:
    """How many groups have n judged samples of which c are right."""
    if not len(starts):
        return Counter()
    judged = np.add.reduceat((~np.isnan(raw)).astype(np.int64), starts)
    right = np.add.reduceat(verdicts(raw, right_from).astype(np.int64), starts)
    pairs, counts = np.unique(np.stack([judged, right]), axis=1, return_counts=True)
    return Counter(
        {(int(n), int(c)): int(count) for n, c, count in zip(*pairs, counts, strict=True) if n}
    )


def _pass_moments(pairs: Counter[tuple[int, int]], k: int) -> Moments:
    moments = Moments()
    for (n, c), count in sorted(pairs.items()):
        if n >= k:
            value = pass_at_k(n, c, k)
            moments = moments.merge(Moments(count=count, mean=value, m2=0.0, low=value, high=value))
    return moments


def _votes(
    buckets: _Buckets, place: int, right_from: float, ks: Sequence[int], num_groups: int
) -> dict[int, Moments]:
    found = {k: Moments() for k in ks}
    limit = min(1.0, _MOST_VOTES / max(num_groups, 1)) * float(2**64 - 1)
    for bucket in buckets:
        values: dict[int, list[float]] = {k: [] for k in ks}
        starts, sizes = _runs(bucket["group"])
        groups, answers = bucket["group"], bucket["answer"]
        raw = bucket[f"{place}.raw"]
        for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
            if float(_turned(int(groups[start]))) > limit:
                continue
            rows = slice(start, start + size)
            judged = ~np.isnan(raw[rows])
            ballot = _ballot(answers[rows][judged], verdicts(raw[rows][judged], right_from))
            n = sum(count for _, count, _ in ballot)
            for k in ks:
                if n >= k:
                    values[k].append(_maj(ballot, k))
        for k in ks:
            found[k] = found[k].merge(Moments.of(values[k]))
    return {k: moments for k, moments in found.items() if moments.count}


def _turned(group: int) -> int:
    """The hash again, so that it does not depend on the bits that chose the bucket."""
    return (group * 0x9E3779B97F4A7C15 + 0x7F4A7C15) % 2**64


Ballot = tuple[tuple[bool, int, int], ...]
"""For each answer, whether it is one at all, how many gave it and how many of them were right."""


def _ballot(answers: NDArray[np.uint64], right: NDArray[np.bool_]) -> Ballot:
    _, first, inverse = np.unique(answers, return_index=True, return_inverse=True)
    counts = np.bincount(inverse, minlength=len(first)).tolist()
    rights = np.bincount(inverse, weights=right, minlength=len(first)).astype(int).tolist()
    given = (answers[first] != 0).tolist()
    return tuple(sorted(zip(given, counts, rights, strict=True)))


@lru_cache(maxsize=1 << 16)
def _maj(ballot: Ballot, k: int) -> float:
    """Few ballots differ, where groups are small."""
    answers: list[int | None] = []
    correct: list[bool] = []
    for number, (is_given, count, right) in enumerate(ballot):
        answers += [number if is_given else None] * count
        correct += [True] * right + [False] * (count - right)
    return maj_at_k(answers, correct, k)


class _Buckets:
    """The rows that have a group, sorted by group and then as they stand in the output."""

    def __init__(self, files: RecordFiles, work: Path, num_rows: int) -> None:
        self._num = min(_MOST_BUCKETS, max(1, math.ceil(num_rows / _BUCKET_ROWS)))
        self._paths = [work / f"bucket-{number:03d}" for number in range(self._num)]
        fields: list[tuple[str, str]] = [("group", "<u8"), ("row", "<i8"), ("line", "<u8")]
        fields += [("answer", "<u8"), ("reward", "<f8")]
        fields += [(f"{place}.raw", "<f8") for place in range(len(files.components))]
        self._dtype = np.dtype(fields)
        opened = [path.open("wb") for path in self._paths]
        try:
            for block in files:
                kept = block.rows[block.rows["group"] != 0]
                rows = np.zeros(len(kept), self._dtype)
                for name in (name for name, _ in fields if name != "row"):
                    rows[name] = kept[name]
                rows["row"] = block.numbers[block.rows["group"] != 0]
                place = rows["group"] % np.uint64(self._num)
                order = np.argsort(place, kind="stable")
                ends = np.searchsorted(place[order], np.arange(self._num), side="right").tolist()
                for number, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
                    if end > start:
                        opened[number].write(rows[order[start:end]].tobytes())
        finally:
            for file in opened:
                file.close()

    def __iter__(self) -> Iterator[Any]:
        for path in self._paths:
            rows = np.fromfile(path, dtype=self._dtype)
            yield rows[np.argsort(rows["group"], kind="stable")]

    def close(self) -> None:
        for path in self._paths:
            path.unlink()
