"""A composer behind a function that another trainer calls, from any thread and any process."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from rlgym_llm.compose import RewardComposer
from rlgym_llm.errors import RewardError
from rlgym_llm.plugins import Plugins
from rlgym_llm.reward_config import RewardsConfig, build_rewards, read_rewards
from rlgym_llm.reward_flags import read_reward_flags, read_rewards_file
from rlgym_llm.scores import ScoreCard
from rlgym_llm.types import Rollout

__all__ = ["RewardsLike", "SharedComposer", "answer_text", "number_of", "rewards_config"]

RewardsLike = RewardsConfig | Mapping[str, Any] | Sequence[str] | str | Path
"""A section, a mapping of one, ``["math=1.0", "format=0.2"]``, or the path of a YAML file."""

_Call = tuple[Sequence[Rollout], int | None, Future[list[ScoreCard]]]


def rewards_config(rewards: RewardsLike) -> RewardsConfig:
    """The checked section of whatever says which rewards; raises ConfigError in one line.

    Of a YAML file with a key ``rewards``, such as a run's ``config.yaml``, that section.

    >>> rewards_config(["math=1.0", "format=0.2"]).components["format"].weight
    0.2
    """
    if isinstance(rewards, Path) or (
        isinstance(rewards, str) and rewards.endswith((".yaml", ".yml"))
    ):
        return read_rewards_file(rewards)
    if isinstance(rewards, str):
        rewards = [rewards]
    if isinstance(rewards, RewardsConfig | Mapping):
        return read_rewards(rewards)
    return read_rewards({"components": read_reward_flags(rewards)})


class SharedComposer:
    """One `RewardComposer` for all threads of a process, made afresh where its pickle is opened.

    Names and options are checked at construction; models and workers are made at the first score.
    Calls that wait while another is being scored are scored together when their turn comes, so
    that rewards which judge many at once (a model, a judge's endpoint) get many, although verl
    asks for one row at a time. Only calls of one step are joined, and none where groups count.
    """

    def __init__(self, rewards: RewardsLike, plugins: Sequence[str | Path] = ()) -> None:
        """``plugins`` are files to load beside what is installed."""
        self.config = rewards_config(rewards)
        self.plugins = tuple(Path(path).absolute() for path in plugins)
        found = Plugins.discover(self.plugins)
        built = build_rewards(self.config, found).values()
        self.needs = frozenset(need for reward in built for need in reward.needs)
        """Columns that one of the rewards cannot judge without."""
        self._composer = RewardComposer(self.config, found)
        self._waiting: list[_Call] = []
        self._queue = threading.Lock()
        self._turn = threading.Lock()

    def __reduce__(self) -> tuple[Callable[..., SharedComposer], tuple[Any, ...]]:
        return SharedComposer, (self.config, self.plugins)

    @property
    def needs_groups(self) -> bool:
        """Whether a component compares siblings."""
        return self._composer.needs_groups

    @property
    def weights(self) -> dict[str, float]:
        """Each component's weight as written, before any schedule."""
        return {name: component.weight for name, component in self.config.components.items()}

    def score(self, rollouts: Sequence[Rollout], *, step: int | None = None) -> list[ScoreCard]:
        """One card per rollout, in order. Raises RewardError where too many scores failed."""
        future: Future[list[ScoreCard]] = Future()
        with self._queue:
            self._waiting.append((rollouts, step, future))
        while not future.done():
            with self._turn:  # serves what stands first, which may be another thread's call
                self._serve(self._take())
        return future.result()

    def close(self) -> None:
        """Lets models and workers go; the next score makes them again."""
        with self._turn:
            self._composer.close()

    def _take(self) -> list[_Call]:
        """The calls that are scored next, together, off the queue."""
        with self._queue:
            if not self._waiting:
                return []
            first, *rest = self._waiting
            alone = self.needs_groups  # siblings of two calls may go by the same group id
            taken = [first, *(call for call in rest if call[1] == first[1] and not alone)]
            self._waiting = [call for call in rest if call[1] != first[1] or alone]
        return taken

    def _serve(self, calls: Sequence[_Call]) -> None:
        if not calls:
            return
        try:
            rows = [rollout for rollouts, _, _ in calls for rollout in rollouts]
            cards = iter(self._composer(rows, step=calls[0][1]))
            found = [[next(cards) for _ in rollouts] for rollouts, _, _ in calls]
        except BaseException as failure:
            for _, _, future in calls:
                future.set_exception(failure)
            if not isinstance(failure, Exception):
                raise
            return
        for (_, _, future), mine in zip(calls, found, strict=True):
            future.set_result(mine)


def number_of(card: ScoreCard, unscored: float | None, *, trainer: str) -> float:
    """The card's reward, for a trainer that takes nothing but numbers.

    Where there is none: ``unscored``, or RewardError where that is None.
    """
    if card.reward is not None:
        return card.reward
    if unscored is not None:
        return float(unscored)
    raise RewardError(
        f"rollout {card.rollout_id!r} has no reward, and {trainer} takes nothing but numbers: "
        f"{card.error or card.status}; unscored=0.0 would count such rows as 0"
    )


def answer_text(value: Any) -> str | None:
    """A ground truth as the text that rewards compare with, as data files are read.

    >>> answer_text(72), answer_text("3.0"), answer_text(["1", "2"])
    ('72', '3.0', '["1", "2"]')
    """
    if hasattr(value, "tolist"):  # an array or one of its scalars
        value = value.tolist()
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return json.dumps(value, ensure_ascii=False, default=str)
