"""What an evaluation found, in figures: accuracy, pass@k, maj@k, rewards, failures, speed."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlgym_llm.counted import counted
from rlgym_llm.estimators import maj_at_k, pass_at_k
from rlgym_llm.intervals import Interval, chance_and_interval, mean_and_interval
from rlgym_llm.scores import CardStatus
from rlgym_llm.types import RolloutStatus
from rlgym_llm_trainers.commands.eval_rows import EvalRow

__all__ = ["summarize", "summary_text"]

SUMMARY_VERSION = 1


def summarize(
    rows: Sequence[EvalRow],
    *,
    num_wanted: int,
    num_samples: int,
    ks: Sequence[int],
    accuracy: str | None,
    right_from: float = 1.0,
    totals: Mapping[str, float] | None = None,
    about: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The figures as JSON data; every ``{mean, low, high, count}`` is a mean with its 95% interval.

    ``accuracy``, ``reward`` and ``components`` are over rollouts, clustered by task
    (`mean_and_interval`); ``pass@k`` and ``maj@k`` over tasks, those with fewer than k scored
    responses left out. What was not scored is in no mean and is counted: ``failed_rollouts`` by
    status, ``failed_scores`` by component, ``masked``. ``totals`` are the sums of ``num_tokens``
    and ``gen_s`` over the batches, for ``timing``. A figure of nothing is null.
    """
    tasks: dict[str, list[EvalRow]] = defaultdict(list)
    for row in rows:
        tasks[row.group_id].append(row)
    groups = list(tasks.values())
    summary: dict[str, Any] = {
        "schema_version": SUMMARY_VERSION,
        **(about or {}),
        "is_complete": len(rows) == num_wanted,
        "num_tasks": len(tasks),
        "num_samples": num_samples,
        "num_rollouts": len(rows),
        "num_rollouts_wanted": num_wanted,
        "accuracy": None,
        "pass@k": None,
        "maj@k": None,
        "reward": _mean(rows, [row.reward for row in rows]),
        "components": {
            name: _mean(rows, [row.raw.get(name) for row in rows])
            for name in dict.fromkeys(name for row in rows for name in row.raw)
        },
        "truncated": sum(row.is_truncated for row in rows),
        "failed_rollouts": dict(
            Counter(str(row.status) for row in rows if row.status is not RolloutStatus.OK)
        ),
        "failed_scores": dict(Counter(name for row in rows for name in row.failed)),
        "masked": sum(row.card_status is CardStatus.MASKED for row in rows),
        "tokens": _mean(rows, [float(row.num_tokens) for row in rows]),
        "timing": _timing(totals or {}),
    }
    if accuracy is None:
        return summary
    summary["accuracy"] = _mean(rows, [row.raw.get(accuracy) for row in rows])
    sources = sorted({row.data_source for row in rows})
    if len(sources) > 1:
        summary["accuracy_by_data_source"] = {
            source: _mean(
                rows, [r.raw.get(accuracy) if r.data_source == source else None for r in rows]
            )
            for source in sources
        }
    judged = [[row for row in group if row.raw.get(accuracy) is not None] for group in groups]
    verdicts = [[(row.raw[accuracy] or 0.0) >= right_from for row in group] for group in judged]
    summary["pass@k"] = {
        str(k): _over_tasks([pass_at_k(len(v), sum(v), k) for v in verdicts if len(v) >= k])
        for k in ks
    }
    pairs = [
        ([row.answer for row in group], verdict)
        for group, verdict in zip(judged, verdicts, strict=True)
    ]
    summary["maj@k"] = {
        str(k): _over_tasks([maj_at_k(a, v, k) for a, v in pairs if len(v) >= k]) for k in ks
    }
    return summary


def summary_text(summary: Mapping[str, Any]) -> str:
    """The summary as lines for people, shares in percent."""
    head = (
        f"{summary.get('env', 'environment')}, model {summary.get('model', 'unnamed')}: "
        f"{counted(summary['num_tasks'], 'task')}, "
        f"{counted(summary['num_samples'], 'response')} each"
    )
    if not summary["is_complete"]:
        wanted = counted(summary["num_rollouts_wanted"], "rollout")
        head += f" ({summary['num_rollouts']:,} of {wanted} so far)"
    lines = [head]
    if summary["accuracy"]:
        lines.append(_line("accuracy", summary["accuracy"], _percent))
    for source, mean in summary.get("accuracy_by_data_source", {}).items():
        lines.append(_line(f"  {source}", mean, _percent))
    for name in ("pass@k", "maj@k"):
        for k, mean in (summary[name] or {}).items():
            lines.append(_line(name.replace("@k", f"@{k}"), mean, _percent))
    lines.append(_line("reward", summary["reward"], _number))
    lines += [_line(f"  {name}", mean, _number) for name, mean in summary["components"].items()]
    lines.append(_line("tokens", summary["tokens"], _number))
    speed = summary["timing"]["tokens_per_second"]
    if speed is not None:
        lines.append(f"{'tokens/s':<16} {speed:,.0f}")
    rollouts = counted(summary["num_rollouts"], "rollout")
    lines.append(f"{'truncated':<16} {summary['truncated']:,} of {rollouts}")
    for name in ("failed_rollouts", "failed_scores"):
        counts = ", ".join(f"{count} {what}" for what, count in summary[name].items())
        lines.append(f"{name.replace('_', ' '):<16} {counts or 0}")
    if summary["masked"]:
        lines.append(f"{'masked':<16} {summary['masked']}")
    return "\n".join(lines)


def _mean(rows: Sequence[EvalRow], values: Sequence[float | None]) -> dict[str, Any] | None:
    """The mean over rollouts that have a value, siblings as one cluster; None where none has."""
    pairs = zip(rows, values, strict=True)
    found = [(value, row.group_id) for row, value in pairs if value is not None]
    if not found:
        return None
    numbers, groups = zip(*found, strict=True)
    return _json(mean_and_interval(numbers, groups=groups), len(numbers))


def _over_tasks(values: Sequence[float]) -> dict[str, Any] | None:
    """The mean of one chance per task; its interval stays within [0, 1]."""
    if not values:
        return None
    return _json(chance_and_interval(values), len(values))


def _json(interval: Interval, count: int) -> dict[str, Any]:
    bounds = {"low": interval.low, "high": interval.high}
    known = {name: value if math.isfinite(value) else None for name, value in bounds.items()}
    return {"mean": interval.mean, **known, "count": count}


def _timing(totals: Mapping[str, float]) -> dict[str, float | None]:
    seconds, num_tokens = totals.get("gen_s", 0.0), totals.get("num_tokens", 0.0)
    return {
        "tokens_per_second": num_tokens / seconds if seconds else None,
        "num_tokens": num_tokens,
        "gen_s": seconds,
        "score_s": totals.get("score_s", 0.0),
    }


def _line(name: str, mean: Mapping[str, Any] | None, show: Callable[[float], str]) -> str:
    if mean is None:
        return f"{name:<16} none"
    if mean["low"] is None:
        return f"{name:<16} {show(mean['mean'])}"
    low, high = show(mean["low"]).strip(), show(mean["high"]).strip()
    return f"{name:<16} {show(mean['mean'])}  [{low}, {high}]"


def _percent(value: float) -> str:
    return f"{value:.1%}"


def _number(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".")
