"""Counts, means, histograms and correlations of all rows, in two passes over their records."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlgym_llm.moments import Moments
from rlgym_llm.offline.record_files import Block, RecordFiles, mixed
from rlgym_llm.offline.records import CARD_STATUSES, SCORE_STATUSES

__all__ = ["ComponentTally", "Confusion", "Tallies", "histogram", "tally"]

NUM_BINS = 40
NUM_SLOWEST = 20
NUM_DISPUTED = 50
NUM_SAMPLE = 5_000
_LAST = np.uint64(2**64 - 1)


@dataclass(slots=True)
class ComponentTally:
    """What became of one component."""

    raw: Moments = field(default_factory=Moments)
    contribution: Moments = field(default_factory=Moments)
    seconds: float = 0.0
    statuses: Counter[str] = field(default_factory=Counter)
    histogram: NDArray[np.int64] = field(default_factory=lambda: np.zeros(NUM_BINS, np.int64))


@dataclass(slots=True)
class Confusion:
    """The verdicts of the accuracy component against the labels of the file."""

    agree: int = 0
    false_positives: int = 0
    """Judged right, labelled wrong."""
    false_negatives: int = 0
    unjudged: int = 0
    """Labelled, but the component gave no score."""


@dataclass(slots=True)
class Tallies:
    """All that is counted over single rows."""

    num_rows: int = 0
    num_bytes: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    reward: Moments = field(default_factory=Moments)
    reward_histogram: NDArray[np.int64] = field(
        default_factory=lambda: np.zeros(NUM_BINS, np.int64)
    )
    chars: Moments = field(default_factory=Moments)
    components: dict[str, ComponentTally] = field(default_factory=dict)
    confusion: Confusion | None = None
    correlations: NDArray[np.float64] | None = None
    """Pearson's r of every two components, and of each with the length in characters (last)."""
    slowest: list[dict[str, Any]] = field(default_factory=list)
    disputed: list[dict[str, Any]] = field(default_factory=list)
    num_disputed: int = 0
    sample: list[tuple[int, int, int]] = field(default_factory=list)
    """Rows drawn evenly: their number, their first byte in the output and their length."""


def tally(files: RecordFiles, accuracy: str | None, right_from: float = 1.0) -> Tallies:
    """Reads the records twice: histograms and correlations need the range and the mean first."""
    found = Tallies(components={name: ComponentTally() for name in files.components})
    place = files.components.index(accuracy) if accuracy in files.components else None
    for block in files:
        _add_moments(found, block, files.components)
        if place is not None:
            _add_confusion(found, block, place, right_from)
    _add_distributions(found, files, place, right_from)
    return found


def histogram(moments: Moments, counts: NDArray[np.int64]) -> dict[str, Any] | None:
    """The bins from the smallest to the largest value; None where there is no value."""
    if not moments.count:
        return None
    return {"low": moments.low, "high": moments.high, "counts": counts.tolist()}


def verdicts(raw: NDArray[np.float64], right_from: float) -> NDArray[np.bool_]:
    """Whether each score says right; no score does not."""
    return np.asarray(raw >= right_from)


def _add_moments(found: Tallies, block: Block, components: tuple[str, ...]) -> None:
    rows = block.rows
    found.num_rows += len(rows)
    found.num_bytes += int(rows["length"].sum(dtype=np.int64))
    for number, count in enumerate(np.bincount(rows["status"], minlength=len(CARD_STATUSES))):
        found.statuses[CARD_STATUSES[number].value] += int(count)
    found.reward = found.reward.merge(_moments(rows["reward"]))
    found.chars = found.chars.merge(_moments(rows["chars"].astype(np.float64)))
    for place, name in enumerate(components):
        part = found.components[name]
        part.raw = part.raw.merge(_moments(block.raw(place)))
        part.contribution = part.contribution.merge(_moments(rows[f"{place}.contribution"]))
        part.seconds += float(rows[f"{place}.seconds"].sum(dtype=np.float64))
        counts = np.bincount(rows[f"{place}.status"], minlength=len(SCORE_STATUSES) + 1)
        for number, status in enumerate(SCORE_STATUSES):
            part.statuses[status.value] += int(counts[number])
    _add_slowest(found, block, components)


def _moments(values: NDArray[np.float64]) -> Moments:
    return Moments.of(values[~np.isnan(values)])


def _add_slowest(found: Tallies, block: Block, components: tuple[str, ...]) -> None:
    if not components or not len(block.rows):
        return
    seconds = np.stack([block.rows[f"{place}.seconds"] for place in range(len(components))])
    total = seconds.sum(axis=0, dtype=np.float64)
    top = np.argsort(-total, kind="stable")[:NUM_SLOWEST]
    offsets = block.offsets
    found.slowest = heapq.nsmallest(
        NUM_SLOWEST,
        [
            *found.slowest,
            *(
                {
                    **_row(block, offsets, int(row)),
                    "seconds": float(total[row]),
                    "component": components[int(seconds[:, row].argmax())],
                }
                for row in top
            ),
        ],
        key=lambda entry: (-entry["seconds"], entry["row"]),
    )


def _row(block: Block, offsets: NDArray[np.int64], row: int) -> dict[str, Any]:
    record = block.rows[row]
    return {
        "row": block.first_row + row,
        "file": int(record["file"]),
        "line": int(record["line"]),
        "offset": int(offsets[row]),
        "length": int(record["length"]),
    }


def _add_confusion(found: Tallies, block: Block, place: int, right_from: float) -> None:
    label, raw = block.rows["label"], block.raw(place)
    is_labelled = label >= 0
    if not is_labelled.any():
        return
    counts = found.confusion = found.confusion or Confusion()
    is_judged = is_labelled & ~np.isnan(raw)
    says, is_right = verdicts(raw, right_from), label == 1
    counts.agree += int((is_judged & (says == is_right)).sum())
    counts.false_positives += int((is_judged & says & ~is_right).sum())
    counts.false_negatives += int((is_judged & ~says & is_right).sum())
    counts.unjudged += int((is_labelled & ~is_judged).sum())


def _add_distributions(
    found: Tallies, files: RecordFiles, accuracy: int | None, right_from: float
) -> None:
    parts = [found.components[name] for name in files.components]
    binary = [place for place, part in enumerate(parts) if part.raw.count and _is_verdict(part.raw)]
    means = np.array([*(part.raw.mean for part in parts), found.chars.mean])
    sums = np.zeros((6, len(means), len(means)))
    drawn: list[tuple[int, int, int, int]] = []
    disputed: list[tuple[int, dict[str, Any]]] = []
    limit = int(_LAST)
    if found.num_rows > 2 * NUM_SAMPLE:
        limit = int(2 * NUM_SAMPLE / found.num_rows * float(_LAST))
    for block in files:
        found.reward_histogram += _binned(block.rows["reward"], found.reward)
        for place, part in enumerate(parts):
            part.histogram += _binned(block.raw(place), part.raw)
        sums += _products(block, len(parts), means)
        offsets, keys = block.offsets, mixed(block.numbers)
        for row in np.flatnonzero(keys <= np.uint64(limit)):
            length = int(block.rows["length"][row])
            drawn.append((int(keys[row]), block.first_row + int(row), int(offsets[row]), length))
        rows = np.flatnonzero(_is_disputed(block, binary, accuracy, right_from))
        found.num_disputed += len(rows)
        first = rows[np.argsort(keys[rows])][:NUM_DISPUTED]
        disputed += [(int(keys[row]), _row(block, offsets, int(row))) for row in first]
        disputed = heapq.nsmallest(NUM_DISPUTED, disputed, key=lambda entry: entry[0])
    found.sample = sorted(entry[1:] for entry in heapq.nsmallest(NUM_SAMPLE, drawn))
    found.disputed = sorted((entry for _, entry in disputed), key=lambda entry: entry["row"])
    found.correlations = _pearson(sums)


def _is_verdict(moments: Moments) -> bool:
    """Whether all values are 0 or 1."""
    p = moments.mean
    return (
        moments.low >= 0
        and moments.high <= 1
        and abs(moments.count * p * (1 - p) - moments.m2) <= 1e-9 * moments.count
    )


def _is_disputed(
    block: Block, binary: list[int], accuracy: int | None, right_from: float
) -> NDArray[np.bool_]:
    """Whether two components of zeros and ones differ, or the verdict and the file's label do."""
    is_disputed = np.zeros(len(block.rows), bool)
    scores = [block.raw(place) for place in binary]
    for other in scores[1:]:
        is_disputed |= (scores[0] != other) & ~np.isnan(scores[0]) & ~np.isnan(other)
    if accuracy is not None:
        raw, label = block.raw(accuracy), block.rows["label"]
        says = verdicts(raw, right_from)
        is_disputed |= (label >= 0) & ~np.isnan(raw) & (says != (label == 1))
    return is_disputed


def _binned(values: NDArray[np.float64], moments: Moments) -> NDArray[np.int64]:
    kept = values[~np.isnan(values)]
    if not len(kept):
        return np.zeros(NUM_BINS, np.int64)
    width = moments.high - moments.low
    if not (width > 0 and math.isfinite(width)):
        counts = np.zeros(NUM_BINS, np.int64)
        counts[0] = len(kept)
        return counts
    places = np.minimum(((kept - moments.low) / width * NUM_BINS).astype(np.int64), NUM_BINS - 1)
    return np.bincount(places, minlength=NUM_BINS)


def _products(block: Block, num_components: int, means: NDArray[np.float64]) -> Any:
    """For every two columns, over the rows that have both: n, sum x, y, xx, yy, xy."""
    columns = [block.raw(place) for place in range(num_components)]
    columns.append(block.rows["chars"].astype(np.float64))
    values = np.stack(columns) - means[:, None]
    present = ~np.isnan(values)
    x = np.where(present, values, 0.0)
    m = present.astype(np.float64)
    return np.stack([m @ m.T, x @ m.T, m @ x.T, (x * x) @ m.T, m @ (x * x).T, x @ x.T])


def _pearson(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    n, x, y, xx, yy, xy = sums
    with np.errstate(divide="ignore", invalid="ignore"):
        covariance = xy - x * y / n
        spread = (xx - x * x / n) * (yy - y * y / n)
        r = np.where(spread > 0, covariance / np.sqrt(np.maximum(spread, 0)), np.nan)
    return np.clip(r, -1.0, 1.0)
