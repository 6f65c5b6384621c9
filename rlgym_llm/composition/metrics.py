"""What a batch of score cards amounts to, as metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from rlgym_llm.scores import FAILED, CardStatus, ScoreCard

__all__ = ["scoring_metrics"]


def scoring_metrics(cards: Sequence[ScoreCard]) -> dict[str, float]:
    """Means and counts under ``rewards/<name>/...`` and ``scoring/...``; in float64.

    For each component ``mean`` and ``std`` (of the population) of the raw, unweighted scores, its
    ``weight``, and the mean ``contribution`` where it applied; a key is absent where nothing was
    scored. ``scoring/error_rate`` is the share of scored rollouts on which any reward failed, and
    ``scoring/num_<status>`` counts the cards.
    """
    metrics: dict[str, float] = {}
    for name in dict.fromkeys(name for card in cards for name in card.components):
        components = [card.components[name] for card in cards if name in card.components]
        raws = [c.raw for c in components if c.raw is not None]
        contributions = [c.contribution for c in components if c.contribution is not None]
        if raws:
            metrics[f"rewards/{name}/mean"] = float(np.mean(raws, dtype=np.float64))
            metrics[f"rewards/{name}/std"] = float(np.std(raws, dtype=np.float64))
        metrics[f"rewards/{name}/weight"] = components[-1].weight
        if contributions:
            mean = float(np.mean(contributions, dtype=np.float64))
            metrics[f"rewards/{name}/contribution"] = mean
    scored = [card for card in cards if card.status is not CardStatus.FAILED_ROLLOUT]
    num_failed = sum(any(c.status in FAILED for c in card.components.values()) for card in scored)
    if scored:
        metrics["scoring/error_rate"] = num_failed / len(scored)
    counts = Counter(card.status for card in cards)
    for status in CardStatus:
        metrics[f"scoring/num_{status}"] = float(counts[status])
    return metrics
