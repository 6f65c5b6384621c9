"""The rewards of a run: which they are, which says right or wrong, what they ask of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rlgym_llm.accuracy import accuracy_component
from rlgym_llm.compose import RewardComposer
from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.env import TextEnv
from rlgym_llm.errors import ConfigError
from rlgym_llm.mixture import Mixture
from rlgym_llm.reward_config import RewardsConfig
from rlgym_llm.rewards import RewardPlugins, full_mark
from rlgym_llm.scores import ScoreCard
from rlgym_llm.types import Task

__all__ = [
    "Accuracy",
    "accuracy_of",
    "check_group_size",
    "check_scoring",
    "rewards_of",
    "success",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Which reward component says whether an answer is right: one, or one a member of a mixture.

    >>> accuracy = Accuracy(by_env={"maths": "maths/math", "guess-number": None})
    >>> accuracy.component(Task(prompt="?", info={"env": "maths"}))
    'maths/math'
    >>> Accuracy(name="math").component(Task(prompt="?"))
    'math'
    """

    name: str | None = None
    """None where there is none, or where every member of a mixture has its own."""
    by_env: Mapping[str, str | None] = field(default_factory=dict)
    """By the alias of the member; empty but for a mixture that scores as its members do."""

    def component(self, task: Task) -> str | None:
        """The component for one task."""
        return self.by_env[task.info["env"]] if self.by_env else self.name

    def source(self, task: Task) -> str:
        """What the task is counted under: its data source, or its environment in a mixture."""
        return task.info["env"] if self.by_env else task.data_source

    def shown(self, component: str, task: Task) -> str:
        """The name of a component beside that source."""
        return component.removeprefix(f"{self.source(task)}/") if self.by_env else component


def accuracy_of(env: TextEnv, rewards: RewardsConfig, plugins: RewardPlugins) -> Accuracy:
    """What says right or wrong where ``env`` is scored with ``rewards``."""
    if isinstance(env, Mixture):
        own = {alias: env.accuracies.get(alias) for alias in env.members}
        prefixes = tuple(f"{alias}/" for alias in own)
        if all(name.startswith(prefixes) for name in rewards.components):
            return Accuracy(
                by_env={a: name if name in rewards.components else None for a, name in own.items()}
            )
    return Accuracy(name=accuracy_component(rewards, plugins, env.accuracy))


def success(
    cards: Sequence[ScoreCard],
    *,
    accuracy: str | None,
    ranges: Mapping[str, tuple[float, float]],
) -> float | None:
    """How well a task went over its siblings, 0.0 to 1.0: the share of the full mark.

    By the component ``accuracy``, else by the reward itself, cut to that interval. None where
    nothing was scored.
    """
    if accuracy is None:
        found = [card.reward for card in cards if card.reward is not None]
        full = 1.0
    else:
        judged = [card.components[accuracy] for card in cards if accuracy in card.components]
        found = [component.raw for component in judged if component.raw is not None]
        full = full_mark(ranges.get(accuracy, (0.0, 1.0)))
    if not found:
        return None
    return math.fsum(min(max(value / full, 0.0), 1.0) for value in found) / len(found)


def rewards_of(config: TrainConfig, env: TextEnv) -> RewardsConfig:
    """The run's rewards: those given, else the environment's own."""
    rewards = config.rewards or env.rewards
    if not rewards.components:  # only the rules were given, so the environment's terms stay
        rewards = rewards.model_copy(update={"components": env.rewards.components})
    return rewards


def check_scoring(
    config: TrainConfig, composer: RewardComposer, *, needs_baseline: bool = False
) -> None:
    """Raises ConfigError for what the rewards ask of the run and it does not give."""
    check_group_size(composer, config.rollout.n, flag="--rollout.n")
    if needs_baseline and composer.needs_groups:
        raise ConfigError(
            f"--algorithm.adv_estimator {config.algorithm.adv_estimator}: a reward of scope group "
            "compares siblings, and the greedy response to a prompt stands alone; take another "
            "estimator"
        )


def check_group_size(composer: RewardComposer, size: int, *, flag: str) -> None:
    """Raises ConfigError, which names ``flag``, where a reward compares siblings and has none."""
    if composer.needs_groups and size == 1:
        raise ConfigError(
            f"{flag} 1: a reward of scope group compares the responses to a prompt with each "
            "other; take 2 or more"
        )
