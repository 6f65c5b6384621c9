"""What a scoring run came to, as JSON data."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rlgym_llm.intervals import Interval, chance_and_interval
from rlgym_llm.moments import Moments
from rlgym_llm.offline.groups import Clusters, Groups, measure_groups
from rlgym_llm.offline.intervals import interval_of
from rlgym_llm.offline.merge import part_names
from rlgym_llm.offline.part import Tally, part_file
from rlgym_llm.offline.record_files import RecordFiles
from rlgym_llm.offline.records import Records
from rlgym_llm.offline.settings import OfflineSettings
from rlgym_llm.offline.tallies import ComponentTally, Tallies, histogram, tally
from rlgym_llm.scores import FAILED, CardStatus, ScoreStatus
from rlgym_llm.types import SCHEMA_VERSION

__all__ = ["Summary", "exit_code", "summarise"]

Summary = dict[str, Any]
"""``rows`` (written, scored, failed_reward, failed_rollout, masked, rejected), ``reward`` and each
of ``components`` (mean, low, high: the 95% interval; std, min, max, histogram; of components also
weight, contribution, counts by status, errors by kind, seconds), ``accuracy`` (labels, pass_at_k,
maj_at_k), ``groups``, ``correlations`` (of the components and of the length in characters),
``rejects`` by kind; and rows by number, line, and place in the output (``row`` from 0, ``file``,
``line``, ``offset``, ``length`` in bytes): the ``slowest``, those that are ``disputed``, and a
``sample`` of at most 5,000, drawn evenly, as ``[row, offset, length]``. Numbers or null."""

_MOST_KINDS = 20
_MOST_LINES = 5


def summarise(
    settings: OfflineSettings,
    components: dict[str, float],
    num_parts: int,
    *,
    ks: Sequence[int] | None,
    by_group: bool,
) -> Summary:
    """Reads the records of all parts; ``components`` are the weights by name.

    Raises DataError where siblings that a reward compares do not stand side by side.
    """
    records = Records(tuple(components))
    files = RecordFiles(settings.work, num_parts, records)
    found = tally(files, settings.accuracy, settings.right_from)
    means = {name: part.raw.mean for name, part in found.components.items()}
    groups = measure_groups(
        files,
        settings.work,
        num_rows=found.num_rows,
        means=(found.reward.mean, means),
        accuracy=settings.accuracy,
        right_from=settings.right_from,
        ks=ks,
        must_be_whole=by_group,
    )
    rejects, errors = _failures(settings, num_parts)
    num_alone = found.num_rows - sum(size * count for size, count in groups.sizes.items())
    return {
        "schema_version": SCHEMA_VERSION,
        "output": settings.output,
        "inputs": [
            {
                "path": file.path,
                "layout": file.layout.name if file.layout else None,
                "columns": file.layout.columns if file.layout else {},
            }
            for file in settings.inputs
        ],
        "score_column": settings.score_column,
        "rows": {
            "written": found.num_rows,
            **{status.value: found.statuses[status.value] for status in CardStatus},
            "rejected": sum(kind["count"] for kind in rejects.values()),
        },
        "reward": {
            **_moments(found.reward, groups.reward, num_alone),
            "histogram": histogram(found.reward, found.reward_histogram),
        },
        "components": {
            name: _component(part, weight, groups.components[name], num_alone, errors.get(name, {}))
            for (name, weight), part in zip(
                components.items(), found.components.values(), strict=True
            )
        },
        "accuracy": _accuracy(settings, found, groups),
        "groups": {
            "count": groups.num_groups,
            "sizes": {str(size): count for size, count in sorted(groups.sizes.items())[:50]},
        },
        "chars": _moments(found.chars, Clusters(), found.num_rows),
        "correlations": {
            "names": [*components, "chars"],
            "r": [] if found.correlations is None else _matrix(found.correlations.tolist()),
        },
        "rejects": rejects,
        "slowest": found.slowest,
        "disputed": {"count": found.num_disputed, "rows": found.disputed},
        "sample": found.sample,
    }


def exit_code(summary: Summary) -> int:
    """0 where every row was read and scored; 1 where rows were rejected or scores failed."""
    rows = summary["rows"]
    has_failed = any(
        part["statuses"][status] for part in summary["components"].values() for status in FAILED
    )
    return 1 if rows["rejected"] or rows["failed_reward"] or has_failed else 0


def _component(
    part: ComponentTally, weight: float, clusters: Clusters, num_alone: int, errors: Tally
) -> dict[str, Any]:
    return {
        "weight": weight,
        **_moments(part.raw, clusters, num_alone),
        "contribution": part.contribution.mean if part.contribution.count else None,
        "statuses": {status.value: part.statuses[status.value] for status in ScoreStatus},
        "errors": errors,
        "seconds": part.seconds,
        "histogram": histogram(part.raw, part.histogram),
    }


def _moments(moments: Moments, clusters: Clusters, num_alone: int) -> dict[str, Any]:
    if not moments.count:
        return dict.fromkeys(("count",), 0) | dict.fromkeys(
            ("mean", "low", "high", "std", "min", "max")
        )
    interval = interval_of(moments, clusters, num_alone)
    return {
        "count": moments.count,
        **_interval(interval),
        "std": _finite(moments.std),
        "min": moments.low,
        "max": moments.high,
    }


def _interval(interval: Interval) -> dict[str, float | None]:
    return {name: _finite(value) for name, value in interval._asdict().items()}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _accuracy(settings: OfflineSettings, found: Tallies, groups: Groups) -> dict[str, Any] | None:
    if settings.accuracy is None:
        return None
    return {
        "component": settings.accuracy,
        "labels": None if found.confusion is None else asdict(found.confusion),
        "pass_at_k": _at_k(groups.pass_at),
        "maj_at_k": _at_k(groups.maj_at),
    }


def _at_k(by_k: dict[int, Moments]) -> dict[str, Any]:
    return {
        str(k): {**_interval(chance_and_interval(moments)), "groups": moments.count}
        for k, moments in by_k.items()
    }


def _matrix(rows: list[list[float]]) -> list[list[float | None]]:
    return [[_finite(value) for value in row] for row in rows]


def _failures(settings: OfflineSettings, num_parts: int) -> tuple[Tally, dict[str, Tally]]:
    """What the parts tell of bad lines and of failures, added up."""
    rejects: Tally = {}
    errors: dict[str, Tally] = {}
    for name in part_names(num_parts):
        done = json.loads(part_file(settings.work, name, "done").read_text())
        _add(rejects, done["rejects"])
        for component, kinds in done["errors"].items():
            _add(errors.setdefault(component, {}), kinds)
    return rejects, errors


def _add(total: Tally, kinds: Tally) -> None:
    for kind, part in kinds.items():
        if kind not in total and len(total) >= _MOST_KINDS:
            kind = "others"
        entry = total.setdefault(kind, {"count": 0, "lines": [], "example": part["example"]})
        entry["count"] += part["count"]
        entry["lines"] = [*entry["lines"], *part["lines"]][:_MOST_LINES]
