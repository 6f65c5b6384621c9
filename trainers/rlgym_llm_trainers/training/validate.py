"""Ask the policy every validation task and say how many it gets right."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlgym_llm.compose import RewardComposer
from rlgym_llm.env_pool import MakeEnv
from rlgym_llm.episodes.batching import Batching
from rlgym_llm.generate import Generator, SamplingParams
from rlgym_llm.rollout import REPEATABLE, EpisodeLimits, run_groups
from rlgym_llm.scores import ScoreCard
from rlgym_llm.types import Rollout, Task
from rlgym_llm_trainers.training.run_rewards import Accuracy

__all__ = ["Validation", "validate", "validation_metrics"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """Rollouts of the validation tasks, their cards in the same order, and what they amount to."""

    rollouts: tuple[Rollout, ...]
    cards: tuple[ScoreCard, ...]
    metrics: dict[str, float]


def validate(
    tasks: Sequence[Task],
    *,
    make_env: MakeEnv,
    generator: Generator,
    composer: RewardComposer,
    params: SamplingParams,
    num_samples: int,
    seed: int,
    accuracy: Accuracy | str | None,
    limits: EpisodeLimits,
    batching: Batching | None = REPEATABLE,
    step: int | None = None,
) -> Validation:
    """Samples ``num_samples`` rollouts of each task and scores them; see `validation_metrics`.

    ``step`` is the training step, for rewards that go by it.
    """
    groups = run_groups(
        tasks,
        group_size=num_samples,
        seed=seed,
        make_env=make_env,
        generator=generator,
        params=params,
        batching=batching,
        **limits,
    )
    rollouts = tuple(rollout for group in groups for rollout in group.rollouts)
    cards = tuple(composer(rollouts, step=step))
    metrics = validation_metrics(rollouts, cards, num_samples=num_samples, accuracy=accuracy)
    return Validation(rollouts=rollouts, cards=cards, metrics=metrics)


def validation_metrics(
    rollouts: Sequence[Rollout],
    cards: Sequence[ScoreCard],
    *,
    num_samples: int,
    accuracy: Accuracy | str | None,
) -> dict[str, float]:
    """Means per data source under verl's names; all statistics in float64.

    ``val-core/<data_source>/acc/mean@N`` is the mean raw score of the component ``accuracy``, or
    ``.../reward/mean@N`` the mean reward where there is none; the other components stand under
    ``val-aux/<data_source>/<component>/mean@N``. Rollouts without that score are left out of the
    mean and counted in ``val-aux/<data_source>/unscored_ratio``. Two right of four: 0.5. In a
    mixture the environment's alias stands for the data source, and each has its own accuracy.
    """
    if not isinstance(accuracy, Accuracy):
        accuracy = Accuracy(name=accuracy)
    values: dict[str, list[float]] = defaultdict(list)
    for rollout, card in zip(rollouts, cards, strict=True):
        source, judge = accuracy.source(rollout.task), accuracy.component(rollout.task)
        values[f"val-aux/{source}/unscored_ratio"].append(float(card.reward is None))
        values[f"val-aux/{source}/response_length/mean"].append(float(rollout.num_tokens))
        values[f"val-aux/{source}/response_length/clip_ratio"].append(float(rollout.truncated))
        values[f"val-aux/{source}/num_turns/mean"].append(float(rollout.num_turns))
        if card.reward is not None:
            root = "val-aux" if judge in card.components else "val-core"
            values[f"{root}/{source}/reward/mean@{num_samples}"].append(card.reward)
        for name, component in card.components.items():
            if component.raw is None:
                continue
            shown = accuracy.shown(name, rollout.task)
            root, shown = ("val-core", "acc") if name == judge else ("val-aux", shown)
            values[f"{root}/{source}/{shown}/mean@{num_samples}"].append(component.raw)
    return {key: float(np.mean(found)) for key, found in values.items()}
