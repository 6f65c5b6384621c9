"""Groups that wait for the learner, on disk: their rollouts, their kept sets, what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rlgym_llm.config_base import Count, Natural, Section
from rlgym_llm.errors import DataError
from rlgym_llm.kept_sets import KeptSets
from rlgym_llm.store import RolloutRecord, read_rollouts, write_rollouts
from rlgym_llm.types import Rollout, RolloutGroup
from rlgym_llm_trainers.training.buffer import BufferState, LeftOut, Offer
from rlgym_llm_trainers.training.collector import CollectorState

__all__ = ["load_collector_state", "save_collector_state"]

_ROLLOUTS = "buffer.jsonl"
_KEPT_SETS = "kept_sets.safetensors"


class _LeftOut(Section):
    indices: list[Natural]
    successes: list[float | None]
    metrics: dict[str, float]


class _Offer(Section):
    step: Natural
    place: Natural
    index: Natural
    num_siblings: Count
    has_greedy: bool
    left_out: _LeftOut | None


class _Missing(Section):
    step: Natural
    places: list[Natural]
    indices: list[Natural]


class _State(Section):
    """`CollectorState` without its rollouts, as the progress of a run has it."""

    num_begun: Natural
    num_dropped: Natural
    num_taken: Natural
    offers: list[_Offer]
    missing: list[_Missing]


def save_collector_state(state: CollectorState, folder: Path) -> dict[str, Any]:
    """Writes the rollouts into ``folder`` and returns the rest, as JSON data."""
    rollouts: list[Rollout] = []
    for offer in state.buffer.offers:
        write_rollouts(folder / _ROLLOUTS, offer.group.rollouts, offer.cards, step=offer.step)
        greedy = [] if offer.greedy is None else [offer.greedy]
        write_rollouts(folder / _ROLLOUTS, greedy, step=offer.step)
        rollouts += [*offer.group.rollouts, *greedy]
    _save_kept_sets(rollouts, folder / _KEPT_SETS)
    return {
        "num_begun": state.num_begun,
        "num_dropped": state.buffer.num_dropped,
        "num_taken": state.buffer.num_taken,
        "offers": [
            {
                "step": offer.step,
                "place": offer.place,
                "index": offer.index,
                "num_siblings": len(offer.group.rollouts),
                "has_greedy": offer.greedy is not None,
                "left_out": None if offer.left_out is None else asdict(offer.left_out),
            }
            for offer in state.buffer.offers
        ],
        "missing": [
            {"step": step, "places": sorted(places), "indices": list(state.indices[step])}
            for step, places in state.buffer.missing.items()
        ],
    }


def load_collector_state(data: dict[str, Any], folder: Path) -> CollectorState:
    """The state that `save_collector_state` wrote.

    Raises DataError for files of another one, and pydantic's ValidationError for other data.
    """
    state = _State.model_validate(data)
    records = iter(_read(folder) if state.offers else ())
    return CollectorState(
        num_begun=state.num_begun,
        buffer=BufferState(
            offers=tuple(_offer(offer, records) for offer in state.offers),
            missing={found.step: frozenset(found.places) for found in state.missing},
            num_dropped=state.num_dropped,
            num_taken=state.num_taken,
        ),
        indices={found.step: tuple(found.indices) for found in state.missing},
    )


def _read(folder: Path) -> list[RolloutRecord]:
    stored = read_rollouts(folder / _ROLLOUTS)
    if stored.torn_line is not None:
        raise DataError("unfinished", path=folder / _ROLLOUTS, line=stored.torn_line)
    return _with_kept_sets(stored.records, folder / _KEPT_SETS)


def _offer(stored: _Offer, records: Iterator[RolloutRecord]) -> Offer:
    siblings = [next(records) for _ in range(stored.num_siblings)]
    rollouts = tuple(record.rollout for record in siblings)
    cards = tuple(record.card for record in siblings if record.card is not None)
    return Offer(
        step=stored.step,
        place=stored.place,
        index=stored.index,
        group=RolloutGroup(group_id=rollouts[0].group_id, task=rollouts[0].task, rollouts=rollouts),
        greedy=next(records).rollout if stored.has_greedy else None,
        cards=cards or None,
        left_out=_left_out(stored.left_out),
    )


def _left_out(stored: _LeftOut | None) -> LeftOut | None:
    if stored is None:
        return None
    return LeftOut(
        indices=tuple(stored.indices),
        successes=tuple(stored.successes),
        metrics=stored.metrics,
    )


def _save_kept_sets(rollouts: Sequence[Rollout], path: Path) -> None:
    """The one part of a rollout that the store leaves out, since only the learner needs it."""
    import torch
    from safetensors.torch import save_file

    tensors = {}
    for number, rollout in enumerate(rollouts):
        for place, turn in enumerate(rollout.turns):
            kept = turn.completion.kept_token_ids
            if kept is not None:
                tensors[f"{number}.{place}.counts"] = torch.tensor(kept.counts, dtype=torch.int32)
                ids = torch.frombuffer(bytearray(kept.ids), dtype=torch.int32) if kept.ids else ()
                tensors[f"{number}.{place}.ids"] = torch.as_tensor(ids, dtype=torch.int32)
    if tensors:
        save_file(tensors, path)


def _with_kept_sets(records: Sequence[RolloutRecord], path: Path) -> list[RolloutRecord]:
    if not path.exists():
        return list(records)
    from safetensors.torch import load_file

    tensors = load_file(path)

    def with_kept(number: int, record: RolloutRecord) -> RolloutRecord:
        turns = []
        for place, turn in enumerate(record.rollout.turns):
            counts = tensors.get(f"{number}.{place}.counts")
            if counts is not None:
                ids = tensors[f"{number}.{place}.ids"].numpy().tobytes()
                kept = KeptSets(tuple(counts.tolist()), ids)
                turn = replace(turn, completion=replace(turn.completion, kept_token_ids=kept))
            turns.append(turn)
        return replace(record, rollout=replace(record.rollout, turns=tuple(turns)))

    return [with_kept(number, record) for number, record in enumerate(records)]
