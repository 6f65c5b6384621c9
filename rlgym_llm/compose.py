"""The composer: every configured reward on every rollout, composed into one card each."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from rlgym_llm.composition.card import Term, compose, weighted_card
from rlgym_llm.composition.coverage import matches
from rlgym_llm.composition.error_watch import ErrorWatch
from rlgym_llm.composition.order import check_dependencies, readers_of, scoring_levels
from rlgym_llm.composition.transform import compile_transforms
from rlgym_llm.errors import ConfigError, RewardError
from rlgym_llm.inject import sample_columns
from rlgym_llm.reward_config import Composition, RewardsConfig, build_rewards, read_rewards
from rlgym_llm.rewards import Reward, RewardContext, RewardPlugins
from rlgym_llm.score import score_bound
from rlgym_llm.scorers.call import BoundReward
from rlgym_llm.scorers.scorer import (
    InlineScorer,
    Pending,
    Scorer,
    make_scorer,
    reward_source,
)
from rlgym_llm.scores import FAILED, CardStatus, Score, ScoreCard, ScoreStatus
from rlgym_llm.types import FinishReason, Rollout, RolloutStatus

__all__ = ["RewardComposer", "is_truncated"]


def is_truncated(rollout: Rollout) -> bool:
    """Whether a budget cut the rollout short: its episode's, or the last completion's tokens."""
    if rollout.truncated:
        return True
    last = rollout.turns[-1].completion if rollout.turns else None
    return last is not None and last.finish_reason is FinishReason.LENGTH


class RewardComposer:
    """Scores rollouts with every configured reward and composes a card for each.

    Order: what others read first, sample before group before composition; a reward behind a closed
    gate is not called. Rewards are built at construction, set up at the first call (or on entering
    ``with``) and let go by `close`. Raises UnknownNameError or ConfigError where the configuration
    is wrong.
    """

    def __init__(
        self,
        config: RewardsConfig | Composition | Mapping[str, Any],
        plugins: RewardPlugins,
        *,
        evaluation: bool = False,
    ) -> None:
        config = read_rewards(config)
        if not config.components:
            raise ConfigError("no reward is configured; give one, such as --reward math=1.0")
        self.config = config
        self.evaluation = evaluation
        if not evaluation and not any(c.weight for c in config.components.values()):
            raise ConfigError("every reward has weight 0: there is nothing to learn from")
        self._plugins = plugins
        self._context = RewardContext(plugins=plugins, evaluation=evaluation)
        self._rewards = build_rewards(config, plugins)
        self._scorers = {
            name: self._make_scorer(name, reward) for name, reward in self._rewards.items()
        }
        self._ready: dict[str, Scorer] = {}
        self._holding = {name: one for name, one in self._scorers.items() if one.holds}
        reads = _reads(config, self._rewards)
        self._levels = scoring_levels(reads)
        self._inline = self._all_inline(reads)
        order = scoring_levels({n: c.depends_on for n, c in config.components.items()})
        self._order = [name for level in order for name in level]
        self._is_in_order = self._order == list(config.components)
        self._set_terms(None)
        self._has_switch = any(
            c.combine is not None and c.combine.switch is not None
            for c in config.components.values()
        )
        self._errors = ErrorWatch(config.max_error_rate)
        self._turn = threading.Lock()

    @property
    def needs_groups(self) -> bool:
        """Whether a component compares siblings, so that groups must be scored whole."""
        return any(reward.scope == "group" for reward in self._rewards.values())

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """Lowest and highest raw score of each reward, as it declares them."""
        return {name: reward.range for name, reward in self._rewards.items()}

    def weights(self, step: int | None = None) -> dict[str, float]:
        """The weight of every component at that training step; None is step 0."""
        return {
            name: component.weight_in(evaluation=self.evaluation, step=step)
            for name, component in self.config.components.items()
        }

    def setup(self) -> None:
        """Sets up every reward that is not yet; closes those set up where one of them raises."""
        for name, scorer in self._holding.items():
            if name in self._ready:
                continue
            try:
                scorer.setup(self._context)
            except RewardError as error:
                self._close_beside(error)
                raise
            self._ready[name] = scorer

    def close(self) -> None:
        """Closes every reward, whatever the others do; raises RewardError if one of them raised."""
        failures = []
        while self._ready:
            _, scorer = self._ready.popitem()
            try:
                scorer.close()
            except RewardError as failure:
                failures.append(str(failure))
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

    def __call__(self, rollouts: Sequence[Rollout], *, step: int | None = None) -> list[ScoreCard]:
        """One card per rollout, in order. Failed rollouts get theirs without being scored.

        ``step`` is the training step that schedules go by. Raises RewardError where too many
        scores failed (``max_error_rate``), or at the first failure under ``on_error: raise``.
        Threads may share a composer: one call after the other, since rewards may keep state.
        """
        with self._turn:  # the weights of a step, too, are the composer's while it scores
            return self._score_at(step, rollouts)

    def _score_at(self, step: int | None, rollouts: Sequence[Rollout]) -> list[ScoreCard]:
        self.setup()
        if step != self._step:
            self._set_terms(step)
        sound = [rollout for rollout in rollouts if rollout.status is RolloutStatus.OK]
        context = self._context if step is None else replace(self._context, step=step)
        scores = self._score(sound, context)
        cards = self._compose(sound, scores)
        if len(sound) < len(rollouts):
            composed = iter(cards)
            cards = [
                next(composed) if rollout.status is RolloutStatus.OK else _failed_rollout(rollout)
                for rollout in rollouts
            ]
        self._plugins.scored(cards)
        weighted = {n: found for n, found in scores.items() if self._terms[n].weight}
        self._errors.watch(weighted)
        return cards

    def _all_inline(self, reads: Mapping[str, Sequence[str]]) -> dict[str, BoundReward] | None:
        """The rewards, where each is called here on every rollout and reads no other."""
        found = {}
        for name, scorer in self._scorers.items():
            if not isinstance(scorer, InlineScorer) or reads[name]:
                return None
            if self.config.components[name].when:
                return None
            found[name] = scorer.bound
        return found

    def _make_scorer(self, name: str, reward: Reward) -> Scorer:
        component = self.config.components[name]
        assert component.reward is not None, "combinations are not scored"
        return make_scorer(
            reward,
            name=name,
            source=reward_source(self._plugins, component.reward, component.options),
            backend=component.backend,
            timeout_s=component.timeout_s,
            memory_mb=component.memory_mb,
            concurrency=component.concurrency,
        )

    def _set_terms(self, step: int | None) -> None:
        self._step, self._terms = step, self._terms_at(step)
        config = self.config
        is_plain = config.clip is None and config.on_truncated == "keep"
        is_plain = is_plain and all(term.is_plain for term in self._terms.values())
        self._weights = {n: term.weight for n, term in self._terms.items()} if is_plain else None
        """By component, where the cards are plain weighted sums."""

    def _terms_at(self, step: int | None) -> dict[str, Term]:
        """The terms, each after those that it reads."""
        weights, components = self.weights(step), self.config.components
        return {
            name: Term(
                weight=weights[name],
                transform=compile_transforms(components[name].transform),
                gates=components[name].gate,
                combine=components[name].combine,
                potential_gamma=components[name].gamma
                if components[name].placement == "potential"
                else None,
            )
            for name in self._order
        }

    def _score(self, rollouts: Sequence[Rollout], ctx: RewardContext) -> dict[str, list[Score]]:
        """Every reward's scores, in the order of the rollouts; rewards in that of the levels."""
        if self._inline is not None:
            return {n: score_bound(bound, rollouts, ctx) for n, bound in self._inline.items()}
        scores: dict[str, list[Score]] = {}
        for level in self._levels:
            # All start before any is waited for, so that judges run beside each other, and beside
            # what is scored inline, which works only when it is asked.
            pending = {
                name: self._submit(name, rollouts, scores, ctx)
                for name in level
                if name in self._rewards
            }
            scores |= {name: wait() for name, wait in pending.items()}
        return scores

    def _submit(
        self,
        name: str,
        rollouts: Sequence[Rollout],
        scores: Mapping[str, Sequence[Score]],
        ctx: RewardContext,
    ) -> Pending:
        """Starts one reward on the rollouts that it applies to."""
        component, reward = self.config.components[name], self._rewards[name]
        gates = [gate for gate in component.gate if reward.scope == "sample"]
        spared: dict[int, Score] = {}
        if component.when or gates:
            for index, rollout in enumerate(rollouts):
                if component.when and not matches(component.when, sample_columns(rollout)):
                    status = ScoreStatus.NOT_APPLICABLE
                    spared[index] = Score(name=name, value=None, status=status)
                elif any(
                    gate.on in scores
                    and (gating := scores[gate.on][index]).status not in FAILED
                    and not gate.is_open(gating.value)
                    for gate in gates
                ):
                    spared[index] = Score(name=name, value=None, status=ScoreStatus.SKIPPED)
        rows = [index for index in range(len(rollouts)) if index not in spared]
        used = scores if reward.scope != "sample" else reward.uses
        if used:
            values = {other: tuple(scores[other][row].value for row in rows) for other in used}
            ctx = replace(ctx, components=values)
        wanted = [rollouts[row] for row in rows] if spared else rollouts
        wait = self._scorers[name].submit(wanted, ctx, name=name)
        if not spared:
            return wait

        def fill() -> list[Score]:
            found = dict(zip(rows, wait(), strict=True)) | spared
            return [found[index] for index in range(len(rollouts))]

        return fill

    def _compose(
        self, rollouts: Sequence[Rollout], scores: Mapping[str, Sequence[Score]]
    ) -> list[ScoreCard]:
        config, weights = self.config, self._weights
        names = [name for name in self._terms if name in scores]
        rows = zip(rollouts, zip(*map(scores.__getitem__, names), strict=True), strict=True)
        if weights is not None:
            cards = [
                weighted_card(rollout.id, row, weights) or self._card(rollout, names, row)
                for rollout, row in rows
            ]
        else:
            cards = [self._card(rollout, names, row) for rollout, row in rows]
        if self._is_in_order:
            return cards
        return [
            replace(card, components={name: card.components[name] for name in config.components})
            for card in cards
        ]

    def _card(self, rollout: Rollout, names: Iterable[str], row: Sequence[Score]) -> ScoreCard:
        on_truncated = self.config.on_truncated
        return compose(
            rollout.id,
            dict(zip(names, row, strict=True)),
            self._terms,
            clip=self.config.clip,
            on_error=self.config.on_error,
            truncated=on_truncated if on_truncated != "keep" and is_truncated(rollout) else "keep",
            columns=sample_columns(rollout) if self._has_switch else None,
        )


def _failed_rollout(rollout: Rollout) -> ScoreCard:
    return ScoreCard(
        rollout_id=rollout.id,
        reward=None,
        status=CardStatus.FAILED_ROLLOUT,
        components={},
        error=rollout.error or f"rollout {rollout.id!r} ended with status {rollout.status}",
    )


def _reads(config: RewardsConfig, rewards: Mapping[str, Reward]) -> dict[str, tuple[str, ...]]:
    """What each component must come after: gates, what it uses, and of siblings all samples."""
    reads = {name: (*c.depends_on,) for name, c in config.components.items()}
    for name, reward in rewards.items():
        for other in reward.uses:
            if other in reads and other not in rewards:
                raise ConfigError(
                    f"reward {name!r} uses component {other!r}, a combination, which is made last"
                )
        reads[name] = (*reads[name], *reward.uses)
    check_dependencies(reads)
    wide = {name for name, reward in rewards.items() if reward.scope != "sample"}
    later = wide | readers_of(wide, reads)
    samples = tuple(name for name in rewards if name not in later)
    return {name: (*o, *samples) if name in wide else o for name, o in reads.items()}
