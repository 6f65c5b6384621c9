"""A chunk scored whatever its rows do: a row that ends its process costs its own score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from rlgym_llm.errors import DataError, RewardError, RlgymError
from rlgym_llm.offline.chunks import Chunk
from rlgym_llm.offline.part import place_of
from rlgym_llm.sandbox import Outcome, OutcomeStatus

__all__ = ["Mode", "score_chunk"]

Mode = Literal["fast", "steady", "careful", "probe"]
"""``fast`` writes four times a second; ``steady`` after every call, so that it is known which one
ended the process; ``careful`` scores one row (or group) a call until those of the lost call are
behind it; ``probe`` scores the next row and writes nothing."""

Call = Callable[[Mapping[str, Any]], Outcome]
"""One request to a worker."""


def score_chunk(call: Call, chunk: Chunk, components: Sequence[str], work: Path) -> None:
    """Has workers score the chunk until its part in the folder ``work`` is whole.

    Where one dies, the rows that may have done it are scored one by one; the row that does it
    again is probed one component at a time, and the component that ends its process has failed.
    Raises RewardError where a row ends its process with no component left to blame, and what a
    worker says that it raised.
    """
    mode: Mode = "fast"
    failures: dict[str, tuple[str, str]] = {}
    deaths: Counter[int] = Counter()
    while True:
        outcome = call({"chunk": asdict(chunk), "mode": mode, "failures": failures})
        failures = {}
        if outcome.status is OutcomeStatus.OK:
            if outcome.value["is_done"]:
                return
            mode = "steady"
        elif outcome.status is OutcomeStatus.ERROR:
            raise _raised(outcome)
        elif mode != "careful":
            mode = "steady" if mode == "fast" else "careful"
        else:
            place = place_of(work, chunk.name).ordinal
            deaths[place] += 1
            failures = _blame(call, chunk, components, outcome, deaths[place])


def _blame(
    call: Call, chunk: Chunk, components: Sequence[str], last: Outcome, num_deaths: int
) -> dict[str, tuple[str, str]]:
    """The failure of each component that ends the process on the next row of the chunk."""
    everyone = {name: _failure(last) for name in components}
    if num_deaths > 2:
        raise RewardError(
            f"a row of lines {chunk.first_line} to {chunk.first_line + chunk.num_lines - 1} ends "
            f"its process when no reward is run on it: {last.error}"
        )
    if num_deaths == 2 or len(components) == 1:
        return everyone
    spared = ("error", "not run: its process died beside another reward")

    def probe(run: Sequence[str]) -> Outcome:
        failures = {name: spared for name in components if name not in run}
        return call({"chunk": asdict(chunk), "mode": "probe", "failures": failures})

    alone = {name: probe([name]) for name in components}
    guilty = {name: _failure(found) for name, found in alone.items() if _has_died(found)}
    if guilty:
        return guilty
    for name in components:  # one that needs another's score to do it
        if not _has_died(probe([other for other in components if other != name])):
            return {name: _failure(last)}
    return everyone


def _has_died(outcome: Outcome) -> bool:
    if outcome.status is OutcomeStatus.ERROR:
        raise _raised(outcome)
    return outcome.status is not OutcomeStatus.OK


def _failure(outcome: Outcome) -> tuple[str, str]:
    if outcome.status is OutcomeStatus.TIMEOUT:
        return "timeout", f"{outcome.error}; its process was ended"
    return "error", f"its process died: {outcome.error}"


def _raised(outcome: Outcome) -> RlgymError:
    kind, _, words = (outcome.error or "").partition(": ")
    if kind == "DataError":
        return DataError(words)
    return RewardError(words if kind == "RewardError" else f"{kind}: {words}")
