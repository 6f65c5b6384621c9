"""How far behind the learner the samples of a step are, from the versions that sampled them."""

from __future__ import annotations

from collections.abc import Sequence

from rlgym_llm.types import Rollout
from rlgym_llm_trainers.algorithms.metrics import summary

__all__ = ["staleness_metrics"]


def staleness_metrics(rollouts: Sequence[Rollout], version: int) -> dict[str, float]:
    """``training/off_policy/*/{mean,max,min}`` of the rollouts that have a sampled token.

    ``version`` is the learner's policy version as it is about to train on them, so that time spent
    waiting counts. ``trajectory_staleness`` is the updates between it and the newest policy of a
    rollout, ``trajectory_staleness_worst`` those since its oldest, ``trajectory_spans`` the
    versions from oldest to newest, 1 where one policy sampled it all. Tokens of versions 3 and 4
    trained at version 6: staleness 2, worst 3, spans 2. No figures where nothing was sampled;
    ValueError for a token of a policy that is not yet there.
    """
    ranges = [
        (min(found), max(found)) for found in map(_versions, rollouts) if found
    ]  # oldest, newest
    if not ranges:
        return {}
    if (newest := max(high for _, high in ranges)) > version:
        raise ValueError(f"tokens of policy version {newest}, but the learner has {version}")
    name = "training/off_policy/trajectory"
    return {
        **summary(f"{name}_staleness", [version - high for _, high in ranges]),
        **summary(f"{name}_staleness_worst", [version - low for low, _ in ranges]),
        **summary(f"{name}_spans", [high - low + 1 for low, high in ranges]),
    }


def _versions(rollout: Rollout) -> list[int]:
    return [
        version
        for turn in rollout.turns
        for start, end, version in turn.completion.version_spans
        if end > start
    ]
