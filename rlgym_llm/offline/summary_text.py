"""The summary of a scoring run, as people read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rlgym_llm.counted import counted
from rlgym_llm.offline.part import without_rollout
from rlgym_llm.scores import ScoreStatus

if TYPE_CHECKING:
    from rlgym_llm.offline.summary import Summary

__all__ = ["component_table", "summary_lines"]

_MOST_KINDS = 5


def component_table(summary: Summary) -> tuple[list[str], list[list[str]]]:
    """Headers and rows: one for each component and one for their sum."""
    headers = ["component", "weight", "mean", "95% interval", "min", "max", "scored"]
    headers += ["n/a", "skipped", "errors", "timeouts"]
    rows = []
    for name, part in summary["components"].items():
        counts = part["statuses"]
        tail = [
            f"{counts[status]:,}" if counts[status] else "-"
            for status in (
                ScoreStatus.NOT_APPLICABLE,
                ScoreStatus.SKIPPED,
                ScoreStatus.ERROR,
                ScoreStatus.TIMEOUT,
            )
        ]
        rows.append([name, f"{part['weight']:g}", *_numbers(part), *tail])
    rows.append(["reward", "", *_numbers(summary["reward"]), "", "", "", ""])
    return headers, rows


def summary_lines(summary: Summary) -> Iterator[str]:
    """What stands above and below the table, line by line."""
    rows = summary["rows"]
    counts = [counted(rows["written"], "row"), f"{rows['scored']:,} scored"]
    counts += [
        counted(rows[what], one, many)
        for what, one, many in (
            ("failed_reward", *["without reward, for one failed"] * 2),
            ("failed_rollout", "of a failed rollout", "of failed rollouts"),
            ("masked", "masked", "masked"),
            ("rejected", "bad line set aside", "bad lines set aside"),
        )
        if rows[what]
    ]
    yield ", ".join(counts)
    yield from _accuracy(summary["accuracy"], summary["groups"]["count"])
    for name, part in summary["components"].items():
        yield from _kinds(f"{name} failed", part["errors"])
    yield from _kinds("bad lines", summary["rejects"], one="bad line")


def _numbers(part: dict[str, Any]) -> list[str]:
    if not part["count"]:
        return ["-", "-", "-", "-", "0"]
    low, high = (_short(part[end]) for end in ("low", "high"))
    return [
        _short(part["mean"]),
        f"{low} .. {high}",
        _short(part["min"]),
        _short(part["max"]),
        f"{part['count']:,}",
    ]


def _short(value: float | None) -> str:
    return "?" if value is None else f"{value:.4g}"


def _accuracy(accuracy: dict[str, Any] | None, num_groups: int) -> Iterator[str]:
    if accuracy is None:
        return
    name = accuracy["component"]
    if (labels := accuracy["labels"]) is not None:
        wrong = labels["false_positives"] + labels["false_negatives"]
        total, unjudged = labels["agree"] + wrong, labels["unjudged"]
        yield (
            f"{name} agrees with {labels['agree']:,} of {counted(total, 'label')} "
            f"({counted(labels['false_positives'], 'false positive')}, "
            f"{counted(labels['false_negatives'], 'false negative')})"
            + (f", {counted(unjudged, 'labelled row')} unjudged" if unjudged else "")
        )
    if len(accuracy["pass_at_k"]) > 1:
        groups = counted(num_groups, "group")
        yield f"{groups}: " + _at_k("pass", accuracy["pass_at_k"])
        if accuracy["maj_at_k"]:
            yield f"{'':{len(groups)}}  " + _at_k("maj", accuracy["maj_at_k"])


def _at_k(what: str, by_k: dict[str, Any]) -> str:
    return ", ".join(f"{what}@{k} {found['mean']:.1%}" for k, found in by_k.items())


def _kinds(title: str, kinds: dict[str, Any], one: str | None = None) -> Iterator[str]:
    ranked: Sequence[tuple[str, Any]] = sorted(
        kinds.items(), key=lambda item: (-item[1]["count"], item[0])
    )
    for kind, found in ranked[:_MOST_KINDS]:
        lines = ", ".join(map(str, found["lines"]))
        where = "line" if found["count"] == 1 else "lines"
        dots = ", ..." if found["count"] > len(found["lines"]) else ""
        what = kind if found["count"] > 1 else without_rollout(found["example"])
        head = one if one and found["count"] == 1 else title
        yield f"{head}: {found['count']:,} x {what} ({where} {lines}{dots})"
    if len(ranked) > _MOST_KINDS:
        further = counted(len(ranked) - _MOST_KINDS, "further kind")
        yield f"{title}: {further}, see the summary file"
