"""A composer in which some components fail by decree: they are known to end their process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlgym_llm.compose import RewardComposer
from rlgym_llm.plugins import Plugins
from rlgym_llm.reward_config import RewardsConfig
from rlgym_llm.rewards import Reward, RewardContext
from rlgym_llm.scores import Score, ScoreCard, ScoreStatus
from rlgym_llm.specs import Kind, RewardSpec, Spec
from rlgym_llm.types import Rollout

__all__ = ["Failures", "OfflinePlugins", "failing_composer"]

Failures = Mapping[str, tuple[str, str]]
"""The status (``error`` or ``timeout``) and the words of each component that is not to be run."""

_FAILING = "fails_by_decree"


@dataclass(frozen=True, kw_only=True)
class _Failing(Reward):
    """Gives the failure that it is told of."""

    name = _FAILING
    status: str
    error: str

    def score(self, rollout: Rollout, ctx: RewardContext) -> Score:
        return Score(name=self.name, value=None, status=ScoreStatus(self.status), error=self.error)


class OfflinePlugins:
    """The plugins, but for two things: observers can be spared, and one reward more is known.

    No name on a command line reaches that reward.
    """

    def __init__(self, plugins: Plugins) -> None:
        self._plugins = plugins
        self.is_quiet = False
        """Whether observers hear nothing: the cards are not those that are written."""

    def get(self, kind: Kind, name: str, /) -> Spec:
        """The spec of that name."""
        if name == _FAILING:
            return RewardSpec(name=name, entry_point=f"{__name__}:_Failing")
        return self._plugins.get(kind, name)

    def load(self, spec: Spec, /) -> Any:
        """What the spec points to."""
        return _Failing if spec.name == _FAILING else self._plugins.load(spec)

    def scored(self, cards: Sequence[ScoreCard]) -> None:
        """Tells the observers, unless it is quiet."""
        if not self.is_quiet:
            self._plugins.scored(cards)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plugins, name)


def failing_composer(
    config: RewardsConfig, plugins: OfflinePlugins, failures: Failures, *, evaluation: bool
) -> RewardComposer:
    """The composer of ``config``, but that these components are not run: they have failed.

    What reads them (gates, combinations, ``uses``) meets them as it meets any failure.
    """
    components = dict(config.components)
    for name, (status, error) in failures.items():
        components[name] = components[name].model_copy(
            update={
                "reward": _FAILING,
                "options": {"status": status, "error": error},
                "backend": None,
                "timeout_s": None,
                "memory_mb": None,
                "concurrency": None,
            }
        )
    changed = config.model_copy(update={"components": components})
    return RewardComposer(changed, plugins, evaluation=evaluation)
