"""The numbers of a report: its headlines, its components and what failed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rlgym_llm.counted import counted
from rlgym_llm.report.numbers import percent, short
from rlgym_llm.view.visible import excerpt

__all__ = ["FailureRow", "Headline", "component_rows", "failure_rows", "headlines"]

_EXAMPLE_CHARS = 500
_MANY = {"not_applicable": "not applicable", "error": "errors", "timeout": "timeouts"}


@dataclass(frozen=True, slots=True)
class Headline:
    """A number that stands for the run."""

    name: str
    value: str
    detail: str
    is_bad: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRow:
    """One kind of failure, how often it was met, and an example."""

    where: str
    kind: str
    count: int
    lines: str
    example: str


def headlines(summary: Mapping[str, Any]) -> list[Headline]:
    """Reward, accuracy, pass@k, maj@k, labels, and what became of the rows."""
    return [*_scores(summary), *_verdicts(summary), *_rows(summary)]


def component_rows(summary: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A row for each component, with the counts that are not zero in words."""
    for name, part in summary["components"].items():
        others = {k: n for k, n in part["statuses"].items() if n and k != "ok"}
        yield {
            **part,
            "name": name,
            "others": ", ".join(
                f"{n:,} {_MANY.get(status, status)}" for status, n in others.items()
            ),
            "has_failed": bool(part["statuses"]["error"] or part["statuses"]["timeout"]),
            "row_seconds": part["seconds"] / max(1, sum(part["statuses"].values())),
        }


def failure_rows(summary: Mapping[str, Any]) -> list[FailureRow]:
    """Errors of components and lines that were set aside, the most frequent first."""
    found = [
        *(
            _failure(name, kind, entry)
            for name, part in summary["components"].items()
            for kind, entry in part["errors"].items()
        ),
        *(_failure("bad line", kind, entry) for kind, entry in summary["rejects"].items()),
    ]
    return sorted(found, key=lambda failure: (-failure.count, failure.where, failure.kind))


def _scores(summary: Mapping[str, Any]) -> Iterator[Headline]:
    reward = summary["reward"]
    yield Headline("mean reward", short(reward["mean"], 3), _interval(reward, short))
    accuracy = summary["accuracy"]
    if accuracy is not None:
        part = summary["components"][accuracy["component"]]
        detail = f"{accuracy['component']}; {_interval(part, percent)}"
        yield Headline("accuracy", percent(part["mean"]), detail)


def _verdicts(summary: Mapping[str, Any]) -> Iterator[Headline]:
    accuracy = summary["accuracy"]
    if accuracy is None:
        return
    for name in ("pass", "maj"):
        at = {int(k): found for k, found in accuracy[f"{name}_at_k"].items() if int(k) > 1}
        if at:
            found = at[max(at)]
            yield Headline(f"{name}@{max(at)}", percent(found["mean"]), _interval(found, percent))
    labels = accuracy["labels"]
    if labels is not None:
        wrong = labels["false_positives"] + labels["false_negatives"]
        total = labels["agree"] + wrong
        detail = f"{labels['agree']:,} of {total:,}"
        if wrong:
            detail += (
                f"; {labels['false_positives']:,} false positives, "
                f"{labels['false_negatives']:,} false negatives"
            )
        yield Headline(
            "labels matched", percent(labels["agree"] / max(1, total)), detail, wrong > 0
        )


def _rows(summary: Mapping[str, Any]) -> Iterator[Headline]:
    rows = summary["rows"]
    failed = [
        words
        for key, words in (
            ("failed_reward", f"{rows['failed_reward']:,} without reward, for one failed"),
            ("failed_rollout", f"{rows['failed_rollout']:,} of failed rollouts"),
            ("masked", f"{rows['masked']:,} masked"),
            ("rejected", f"{counted(rows['rejected'], 'bad line')} set aside"),
        )
        if rows[key]
    ]
    yield Headline(
        "rows scored", f"{rows['scored']:,}", ", ".join(failed) or "all rows", bool(failed)
    )


def _interval(part: Mapping[str, Any], shown: Any) -> str:
    if part["low"] is None or part["high"] is None:
        return "too few rows for an interval"
    return f"95% interval {shown(part['low'])} to {shown(part['high'])}"


def _failure(where: str, kind: str, entry: Mapping[str, Any]) -> FailureRow:
    lines = ", ".join(f"{line:,}" for line in entry["lines"])
    return FailureRow(
        where=where,
        kind=kind,
        count=entry["count"],
        lines=lines + (", …" if entry["count"] > len(entry["lines"]) else ""),
        example=excerpt(str(entry["example"]), _EXAMPLE_CHARS).head,
    )
