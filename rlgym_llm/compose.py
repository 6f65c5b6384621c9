"""Compose rewards: rollouts in, score cards out; and the pure sum in the middle."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Literal, Self

import numpy as np

from rlgym_llm.errors import ConfigError, RewardError
from rlgym_llm.reward_config import Const, RewardsConfig, build_rewards
from rlgym_llm.rewards import Reward, RewardContext, RewardPlugins
from rlgym_llm.score import score_rollouts
from rlgym_llm.types import (
    CardStatus,
    Component,
    FinishReason,
    Rollout,
    RolloutStatus,
    Score,
    ScoreCard,
    ScoreStatus,
)

__all__ = ["RewardComposer", "compose", "is_truncated", "scoring_metrics"]

_FAILED = (ScoreStatus.ERROR, ScoreStatus.TIMEOUT)
_ERROR_WINDOW = 256
_MIN_SCORES = 32


def compose(
    rollout_id: str,
    scores: Mapping[str, Score],
    weights: Mapping[str, float],
    *,
    clip: tuple[float, float] | None = None,
    on_error: Literal["mask", "raise", "zero"] | Const = "mask",
    truncated: Literal["keep", "zero", "mask"] = "keep",
) -> ScoreCard:
    """The card of one rollout: ``R = clip(sum_i w_i s_i)`` over the components that apply.

    ``scores`` and ``weights`` are by component name; weights are used as written. None ("not
    applicable") drops its term. A failed score never counts as 0 by itself: under ``mask`` the
    card is ``failed_reward`` and has no reward; under ``raise`` RewardError is raised. A component
    of weight 0 is a metric: it changes nothing, not by failing either. Where no weighted component
    applies there is no reward. ``truncated`` is what to do, given that the rollout was cut short.

    Environment score 8, format bonus 1.5, 200 tokens at -0.01 each (8 + 1.5 - 2 = 7.5):

    >>> scores = {name: Score(name=name, value=value)
    ...           for name, value in [("env", 8.0), ("format", 1.5), ("length", 200.0)]}
    >>> compose("r0", scores, {"env": 1.0, "format": 1.0, "length": -0.01}).reward
    7.5
    """
    factors = {name: 0.0 if truncated == "zero" else weights[name] for name in scores}
    components = {
        name: _component(score, weights[name], factors[name], on_error)
        for name, score in scores.items()
    }
    weighted = [component for component in components.values() if component.weight != 0]
    failures = [c for c in weighted if c.status in _FAILED and c.contribution is None]
    terms = [c.contribution for c in weighted if c.contribution is not None]
    reward: float | None = None
    error: str | None = None
    if failures:
        status, error = CardStatus.FAILED_REWARD, failures[0].error
    elif not terms:
        status, error = CardStatus.MASKED, "no component with a weight applies to this rollout"
    elif truncated == "mask":
        status, error = CardStatus.MASKED, "the rollout was truncated"
    else:
        status, reward = CardStatus.SCORED, _total(terms)
        if clip is not None:
            reward = min(max(reward, clip[0]), clip[1])
        if not math.isfinite(reward):
            status, error = CardStatus.FAILED_REWARD, f"the composed reward is {reward}"
            reward = None
    return ScoreCard(
        rollout_id=rollout_id, reward=reward, status=status, components=components, error=error
    )


def _component(
    score: Score,
    weight: float,
    factor: float,
    on_error: Literal["mask", "raise", "zero"] | Const,
) -> Component:
    value = score.value
    if score.status in _FAILED:
        if on_error == "raise" and weight:
            raise RewardError(score.error or f"reward {score.name!r} failed")
        if on_error != "mask":
            value = on_error.const if isinstance(on_error, Const) else 0.0
    contribution = None if value is None else factor * value + 0.0  # never -0.0
    return Component(
        raw=score.value,
        weight=weight,
        transformed=value,
        contribution=contribution,
        status=score.status,
        info=score.info,
        error=score.error,
        seconds=score.seconds,
    )


def _total(terms: Sequence[float]) -> float:
    """The exact sum, the same in any order of the terms; infinite where it overflows."""
    try:
        return math.fsum(terms)
    except OverflowError:
        return math.inf
    except ValueError:  # infinities of both signs
        return math.nan


def is_truncated(rollout: Rollout) -> bool:
    """Whether a budget cut the rollout short: its episode's, or the last completion's tokens."""
    if rollout.truncated:
        return True
    last = rollout.turns[-1].completion if rollout.turns else None
    return last is not None and last.finish_reason is FinishReason.LENGTH


class RewardComposer:
    """Scores rollouts with every configured reward and composes a card for each.

    Rewards are built at construction, set up at the first call (or on entering ``with``) and let
    go by `close`. Raises UnknownNameError or ConfigError where the configuration is wrong.
    """

    def __init__(
        self, config: RewardsConfig, plugins: RewardPlugins, *, evaluation: bool = False
    ) -> None:
        if not config.components:
            raise ConfigError("no reward is configured; give one, such as --reward math=1.0")
        self.config = config
        self.weights: Mapping[str, float] = {
            name: component.weight_in(evaluation=evaluation)
            for name, component in config.components.items()
        }
        if not evaluation and not any(self.weights.values()):
            raise ConfigError("every reward has weight 0: there is nothing to learn from")
        self._plugins = plugins
        self._context = RewardContext(plugins=plugins, evaluation=evaluation)
        self._rewards = build_rewards(config, plugins)
        self._ready: dict[str, Reward] = {}
        self._recent: dict[str, deque[tuple[int, int]]] = {n: deque() for n in self.weights}

    @property
    def needs_groups(self) -> bool:
        """Whether a component compares siblings, so that groups must be scored whole."""
        return any(reward.scope == "group" for reward in self._rewards.values())

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """Lowest and highest raw score of each component, as its reward declares them."""
        return {name: reward.range for name, reward in self._rewards.items()}

    def setup(self) -> None:
        """Sets up every reward that is not yet; closes those set up where one of them raises."""
        for name, reward in self._rewards.items():
            if name in self._ready:
                continue
            try:
                reward.setup(self._context)
            except Exception as failure:
                error = RewardError(f"reward {name!r} failed in setup: {failure!r}")
                self._close_beside(error)
                raise error from failure
            self._ready[name] = reward

    def close(self) -> None:
        """Closes every reward, whatever the others do; raises RewardError if one of them raised."""
        failures = []
        while self._ready:
            name, reward = self._ready.popitem()
            try:
                reward.close()
            except Exception as failure:
                failures.append(f"reward {name!r} failed in close: {failure!r}")
        if failures:
            raise RewardError("; ".join(failures))

    def __enter__(self) -> Self:
        self.setup()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self._close_beside(error)

    def _close_beside(self, error: BaseException) -> None:
        """Closes without hiding the error that is on its way: failures become notes on it."""
        try:
            self.close()
        except RewardError as failure:
            error.add_note(str(failure))

    def __call__(self, rollouts: Sequence[Rollout]) -> list[ScoreCard]:
        """One card per rollout, in order. Failed rollouts get theirs without being scored.

        Raises RewardError where too many scores failed (``max_error_rate``), or at the first
        failure under ``on_error: raise``.
        """
        self.setup()
        sound = [rollout for rollout in rollouts if rollout.status is RolloutStatus.OK]
        scores = {
            name: score_rollouts(reward, sound, self._context, name=name)
            for name, reward in self._rewards.items()
        }
        rows = (dict(zip(scores, row, strict=True)) for row in zip(*scores.values(), strict=True))
        cards = [
            self._compose(rollout, next(rows))
            if rollout.status is RolloutStatus.OK
            else _failed_rollout(rollout)
            for rollout in rollouts
        ]
        self._plugins.scored(cards)
        self._watch_errors(scores)
        return cards

    def _compose(self, rollout: Rollout, scores: Mapping[str, Score]) -> ScoreCard:
        return compose(
            rollout.id,
            scores,
            self.weights,
            clip=self.config.clip,
            on_error=self.config.on_error,
            truncated=self.config.on_truncated if is_truncated(rollout) else "keep",
        )

    def _watch_errors(self, scores: Mapping[str, Sequence[Score]]) -> None:
        """Stops a run whose rewards are broken.

        Each component's rate is over this call and the calls before it, back to `_ERROR_WINDOW`
        scores; of fewer than `_MIN_SCORES` it is taken as if there were so many, so that one bad
        row in the first group of eight does not end a run.
        """
        worst = (self.config.max_error_rate, "", "")
        for name, found in scores.items():
            if not self.weights[name]:
                continue  # a metric changes nothing, not by failing either
            recent = self._recent[name]
            recent.append((len(found), sum(score.status in _FAILED for score in found)))
            while sum(count for count, _ in recent) - recent[0][0] >= _ERROR_WINDOW:
                recent.popleft()
            num_scores, num_failed = map(sum, zip(*recent, strict=True))
            rate = num_failed / max(num_scores, _MIN_SCORES)
            if rate > worst[0] and recent[-1][1] > 0:
                worst = (rate, name, f"{num_failed} of its last {num_scores} scores")
        _, name, share = worst
        if name:
            example = next(score.error for score in scores[name] if score.status in _FAILED)
            raise RewardError(
                f"reward {name!r} failed on {share}, more than max_error_rate "
                f"{self.config.max_error_rate:g} allows; for example: {example}"
            )


def _failed_rollout(rollout: Rollout) -> ScoreCard:
    return ScoreCard(
        rollout_id=rollout.id,
        reward=None,
        status=CardStatus.FAILED_ROLLOUT,
        components={},
        error=rollout.error or f"rollout {rollout.id!r} ended with status {rollout.status}",
    )


def scoring_metrics(cards: Sequence[ScoreCard]) -> dict[str, float]:
    """What a batch of cards says, under ``rewards/<name>/...`` and ``scoring/...``; in float64.

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
    num_failed = sum(any(c.status in _FAILED for c in card.components.values()) for card in scored)
    if scored:
        metrics["scoring/error_rate"] = num_failed / len(scored)
    counts = Counter(card.status for card in cards)
    for status in CardStatus:
        metrics[f"scoring/num_{status}"] = float(counts[status])
    return metrics
