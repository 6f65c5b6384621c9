"""TRL's reward functions out of our rewards, and our rewards out of TRL's."""

from __future__ import annotations

import operator
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlgym_llm.composition.metrics import scoring_metrics
from rlgym_llm.errors import ConfigError
from rlgym_llm.scores import Component, ScoreCard
from rlgym_llm.shims.shared_composer import RewardsLike, SharedComposer
from rlgym_llm.shims.trl_function import TrlFunction, from_trl
from rlgym_llm.shims.trl_rollouts import TrlBatch

__all__ = [
    "TrlComponentFunc",
    "TrlFunction",
    "TrlRewardFunc",
    "from_trl",
    "trl_component_funcs",
    "trl_reward_func",
]


@dataclass(frozen=True)
class TrlRewardFunc:
    """The composed reward as one function of TRL's; made by `trl_reward_func`."""

    scorer: SharedComposer
    read: TrlBatch
    name: str

    @property
    def __name__(self) -> str:
        """What TRL calls it in its metrics: ``rewards/<name>/mean``."""
        return self.name

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """One reward per completion, None where there is none.

        Every component's raw scores go to TRL's table of completions (``<name>/<component>``) and
        its metrics, through the ``log_extra`` and ``log_metric`` that TRL hands over.
        """
        rollouts = self.read(prompts, completions, completion_ids, columns)
        cards = self.scorer.score(rollouts, step=_step(columns))
        if log_extra := columns.get("log_extra"):
            for name in self.scorer.config.components:
                parts = (card.components.get(name) for card in cards)
                log_extra(f"{self.name}/{name}", [part.raw if part else None for part in parts])
        if log_metric := columns.get("log_metric"):
            for metric, value in scoring_metrics(cards).items():
                log_metric(metric, value)
        return [card.reward for card in cards]


@dataclass(frozen=True)
class TrlComponentFunc:
    """One component as a function of TRL's; made by `trl_component_funcs`."""

    scoring: _OneScoring
    name: str

    @property
    def __name__(self) -> str:
        """What TRL calls it in its metrics."""
        return self.name

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """The component's score per completion, before its weight.

        None where it does not apply; and, of all components, where the rollout has no reward,
        so that TRL leaves that completion out.
        """
        cards = self.scoring.cards(self.name, prompts, completions, completion_ids, columns)
        weight = self.scoring.scorer.weights[self.name]
        return [
            None if card.reward is None else _before_weight(card.components[self.name], weight)
            for card in cards
        ]


@dataclass(frozen=True)
class _OneScoring:
    """Scores a batch once for all the functions that TRL calls with it, one after the other."""

    scorer: SharedComposer
    read: TrlBatch
    last: _LastBatch = field(default_factory=lambda: _LastBatch(), repr=False, compare=False)

    def __reduce__(self) -> tuple[type[_OneScoring], tuple[SharedComposer, TrlBatch]]:
        return _OneScoring, (self.scorer, self.read)

    def cards(
        self,
        name: str,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]] | None,
        columns: Mapping[str, Any],
    ) -> list[ScoreCard]:
        step = _step(columns)
        # The very same lists are the same batch: each function is asked once for it.
        lists = [value for _, value in sorted(columns.items()) if isinstance(value, list)]
        key = [prompts, completions, completion_ids, *lists]
        last = self.last
        with last.lock:
            is_same = len(key) == len(last.key) and all(map(operator.is_, key, last.key))
            if not is_same or step != last.step or name in last.served:
                rollouts = self.read(prompts, completions, completion_ids, columns)
                last.cards = self.scorer.score(rollouts, step=step)
                last.key, last.step, last.served = key, step, set()
            last.served.add(name)
            cards = last.cards
            if last.served >= set(self.scorer.config.components):
                last.forget()
            return cards


class _LastBatch:
    """The batch under way, kept alive so that its lists' identities stay its own."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        self.key: list[Any] = []
        self.step: int | None = None
        self.served: set[str] = set()
        self.cards: list[ScoreCard] = []


def trl_reward_func(
    rewards: RewardsLike,
    *,
    name: str = "rlgym",
    answer: str | None = None,
    num_generations: int | None = None,
    eos_token_ids: Sequence[int] = (),
    plugins: Sequence[str | Path] = (),
) -> TrlRewardFunc:
    r"""The composed reward as one reward function of TRL's, for ``GRPOTrainer(reward_funcs=...)``.

    ``answer`` names the ground truth's column of the data set (``answer``, ``solution`` or
    ``ground_truth`` by default); every other column is there for rewards to ask for by name.
    ``num_generations`` says which completions are siblings, where a reward compares them (equal
    prompts beside each other by default). ``eos_token_ids`` tells completions that a budget cut
    short. Raises ConfigError for ``aggregate: normalize_then_sum``, which needs the components.

    >>> reward = trl_reward_func(["math=1.0", "format=0.2"])
    >>> replies = ["24 + 48 = 72\n#### 72", "It is 72."]
    >>> reward(prompts=["24 + 48 = ?"] * 2, completions=replies, answer=["72"] * 2)
    [1.2, 1.0]
    """
    scorer = SharedComposer(rewards, plugins)
    if scorer.config.aggregate == "normalize_then_sum":
        raise ConfigError(
            "aggregate normalize_then_sum compares components, and one function gives their sum; "
            "use trl_component_funcs, and multi_objective_aggregation in GRPOConfig"
        )
    if name in scorer.config.components:
        raise ConfigError(f"the function and a component are both called {name!r}; give a name=")
    return TrlRewardFunc(scorer, _batch(answer, num_generations, eos_token_ids), name)


def trl_component_funcs(
    rewards: RewardsLike,
    *,
    answer: str | None = None,
    num_generations: int | None = None,
    eos_token_ids: Sequence[int] = (),
    plugins: Sequence[str | Path] = (),
) -> tuple[list[TrlComponentFunc], list[float]]:
    """One reward function per component, and the weights for ``GRPOConfig(reward_weights=...)``.

    TRL's weighted sum is then the composed reward, and its metrics are the components'. A batch is
    scored once for all of them; schedules and gates are in the functions' values. The options are
    those of `trl_reward_func`. Raises ConfigError for what acts on the sum (``clip``, and
    ``on_truncated: soft``).

    >>> funcs, weights = trl_component_funcs(["math=1.0", "format=0.2"])
    >>> batch = {"prompts": ["1 + 1 = ?"], "completions": ["It is 2."], "answer": ["2"]}
    >>> [(func.__name__, func(**batch)) for func in funcs], weights
    ([('math', [1.0]), ('format', [0.0])], [1.0, 0.2])
    """
    scorer = SharedComposer(rewards, plugins)
    truncated = scorer.config.on_truncated
    for rule, acts in (
        ("clip", scorer.config.clip is not None),
        ("on_truncated soft", truncated == "soft" or not isinstance(truncated, str)),
    ):
        if acts:
            raise ConfigError(
                f"{rule} acts on the sum, which TRL makes of one function per component; "
                "use trl_reward_func"
            )
    scoring = _OneScoring(scorer, _batch(answer, num_generations, eos_token_ids))
    weights = scorer.weights
    return [TrlComponentFunc(scoring, name) for name in weights], list(weights.values())


def _batch(
    answer: str | None, num_generations: int | None, eos_token_ids: Sequence[int]
) -> TrlBatch:
    if num_generations is not None and num_generations < 1:
        raise ConfigError(f"num_generations is {num_generations}; it is at least 1")
    return TrlBatch(
        answer=answer, num_generations=num_generations, eos_token_ids=tuple(eos_token_ids)
    )


def _before_weight(component: Component, weight: float) -> float | None:
    """What TRL is to multiply by the weight: the transformed score, gates and schedule included."""
    if component.contribution is None or weight == 0:
        return component.transformed
    if component.transformed is not None and component.contribution == (
        weight * component.transformed + 0.0
    ):
        return component.transformed  # to the last bit
    return component.contribution / weight


def _step(columns: Mapping[str, Any]) -> int | None:
    """TRL's training step, which schedules go by."""
    step = getattr(columns.get("trainer_state"), "global_step", None)
    return step if isinstance(step, int) else None
