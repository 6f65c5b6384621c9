from dataclasses import dataclass
from typing import Any

import pytest

import rlgym_llm.check_reward
from rlgym_llm.check_reward import check_reward, probe_rollouts
from rlgym_llm.errors import RewardError
from rlgym_llm.rewards import Reward, RewardContext, reward
from rlgym_llm.scores import ScoreStatus
from rlgym_llm.types import Rollout

CALLS: list[str] = []


@dataclass(frozen=True, kw_only=True)
class Probe(Reward):
    """A reward that breaks one promise."""

    name = "probe"
    sin: str = ""

    def score(self, rollout: Rollout, ctx: RewardContext) -> float | None:
        CALLS.append(rollout.id)
        match self.sin:
            case "raises":
                return 1.0 / len(rollout.text)
            case "range":
                return -0.5
            case "nan":
                return float("nan")
            case "drifts":
                return 1.0 / len(CALLS)
            case "writes":
                rollout.task.info["seen"] = True  # type: ignore[index]
            case "none":
                return None
        return 1.0

    def __reduce__(self) -> Any:
        if self.sin == "pickle":
            raise TypeError("cannot pickle a lock")
        if self.sin == "forgets":
            return _other, ()
        return _same, (self.sin,)


class _Other(Probe):
    def score(self, rollout: Rollout, ctx: RewardContext) -> float:
        return 0.0


def _other() -> Reward:
    return _Other()


def _same(sin: str) -> Reward:
    return Probe(sin=sin)


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    """Pickle finds a function by its module: give these two one that has a name."""
    for function in (_other, _same):
        monkeypatch.setattr(function, "__module__", "rlgym_llm.check_reward")
        monkeypatch.setattr(rlgym_llm.check_reward, function.__name__, function, raising=False)


def test_a_sound_reward_passes():
    scores = check_reward(Probe())
    assert [score.value for score in scores] == [1.0] * len(probe_rollouts())


def test_not_applicable_is_sound():
    scores = check_reward(Probe, options={"sin": "none"})
    assert {score.status for score in scores} == {ScoreStatus.NOT_APPLICABLE}


@pytest.mark.parametrize(
    ("sin", "message"),
    [
        ("raises", "it fails: reward 'probe' on rollout 'probe-4': ZeroDivisionError"),
        ("range", r"it gives -0\.5 on 'probe-0', outside its range"),
        ("nan", "it fails: .*returned nan"),
        ("drifts", "the same rollouts get other scores the second time"),
        ("writes", "it changes the rollouts"),
        ("pickle", "it does not pickle: .*lock"),
        ("forgets", "its pickled copy scores differently"),
    ],
)
def test_a_broken_promise_is_named(sin, message):
    with pytest.raises(RewardError, match=f"reward 'probe' breaks the contract: {message}"):
        check_reward(Probe(sin=sin))


def test_rollouts_of_your_own():
    @reward("echo")
    def echo(completion):
        raise ValueError("never called")

    with pytest.raises(RewardError, match="never called"):
        check_reward(echo, probe_rollouts()[:1])
