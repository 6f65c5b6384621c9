"""What is remembered of stored rollouts: counts and rewards, and nothing of their tokens."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Mapping
from typing import Any

from rlgym_llm.compose import is_truncated
from rlgym_llm.scores import FAILED
from rlgym_llm.store import RolloutRecord
from rlgym_llm.types import RolloutStatus
from rlgym_llm_trainers.commands.stored_files import has_failed

__all__ = ["RolloutTally"]


class RolloutTally:
    """Counts rollouts one by one, in any order.

    Of two finished rollouts of one turn, with 5 and 7 sampled tokens, the second of which ran into
    its budget, the summary has ``tokens {"sum": 12, "mean": 6.0}``, ``turns {"1": 2}`` and
    ``finish_reasons {"length": 1, "stop": 1}``.
    """

    def __init__(self) -> None:
        self.num_rollouts = 0
        self.num_failed = 0
        """Those whose episode failed, or one of whose rewards."""
        self.example: str | None = None
        """What the first of them says of its failure."""
        self._num_truncated = 0
        self._num_tokens = 0
        self._statuses: Counter[str] = Counter()
        self._turns: Counter[int] = Counter()
        self._reasons: Counter[str] = Counter()
        self._versions: Counter[int] = Counter()
        self._groups: Counter[str] = Counter()
        self._failed_scores: Counter[str] = Counter()
        self._rewards = array("d")

    def add(self, record: RolloutRecord) -> None:
        """Counts one."""
        rollout, card = record.rollout, record.card
        self.num_rollouts += 1
        if has_failed(record):
            self.num_failed += 1
            failed_score = card.error if card is not None else None
            self.example = self.example or rollout.error or failed_score
        self._num_truncated += is_truncated(rollout)
        self._num_tokens += rollout.num_tokens
        self._groups[rollout.group_id] += 1
        if rollout.status is not RolloutStatus.OK:
            self._statuses[str(rollout.status)] += 1
        self._turns[rollout.num_turns] += 1
        for turn in rollout.turns:
            self._reasons[str(turn.completion.finish_reason)] += 1
            for start, end, version in turn.completion.version_spans:
                self._versions[version] += end - start
        if card is not None:
            self._failed_scores.update(
                name for name, part in card.components.items() if part.status in FAILED
            )
            if card.reward is not None:
                self._rewards.append(card.reward)

    def summary(self, *, num_wanted: int, totals: Mapping[str, float]) -> dict[str, Any]:
        """The counts as JSON data; a figure of nothing is null.

        ``finish_reasons`` are of completions, one a turn; ``policy_versions`` are numbers of tokens
        sampled under each. ``totals`` are the sums of ``num_tokens`` and ``seconds`` over all that
        was sampled, for ``timing``.
        """
        count, num_scored, seconds = self.num_rollouts, len(self._rewards), totals.get("seconds")
        speed = totals["num_tokens"] / seconds if seconds else None
        mean_reward = math.fsum(self._rewards) / num_scored if num_scored else None
        return {
            "is_complete": count == num_wanted,
            "num_rollouts": count,
            "num_rollouts_wanted": num_wanted,
            "num_groups": len(self._groups),
            "failed_rollouts": _sorted(self._statuses),
            "truncated": self._num_truncated,
            "tokens": {
                "sum": self._num_tokens,
                "mean": self._num_tokens / count if count else None,
            },
            "turns": _sorted(self._turns),
            "finish_reasons": _sorted(self._reasons),
            "policy_versions": _sorted(self._versions),
            "reward": {"mean": mean_reward, "count": num_scored},
            "failed_scores": _sorted(self._failed_scores),
            "timing": {"seconds": seconds, "tokens_per_s": speed},
        }


def _sorted(counts: Counter[Any]) -> dict[str, int]:
    return {str(key): counts[key] for key in sorted(counts)}
