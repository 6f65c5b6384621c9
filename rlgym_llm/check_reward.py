"""The contract of a reward as a check that third parties run in their own tests."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlgym_llm.errors import RewardError
from rlgym_llm.rewards import Reward, RewardContext, build_reward
from rlgym_llm.score import score_rollouts
from rlgym_llm.specs import Spec
from rlgym_llm.types import Completion, Rollout, Score, ScoreStatus, Task, Turn

__all__ = ["check_reward", "probe_rollouts"]

_TEXTS = (
    "12 + 60 = 72\n#### 72",
    "12 + 60 = 73\n#### 73",
    r"so it is \boxed{72}",
    "<think>\n12 + 60\n</think>\n<answer>72</answer>",
    "",
    "72",
    " \n\t\r\n",
    "\x00\ud800 \u202e٧٢ ½ 七十二 🙂\u2028#### ７２",
    "#### 1/0",
    "#### " + "9" * 1_000_000,
    r"\boxed{" * 100_000 + "}" * 100_000,
    "{}" * 200_000 + r"\boxed{",
    "####\n" * 200_000,
    "<think>" * 100_000,
    "1," * 200_000 + "$" * 200_000 + " " * 200_000,
)


def probe_rollouts() -> list[Rollout]:
    """Rollouts of one task with the answer 72: right, wrong, empty, in any script, and huge."""
    task = Task(prompt="12 + 60 = ?", answer="72", data_source="probe")
    return [
        Rollout(
            id=f"probe-{index}",
            task=task,
            group_id="probe",
            sample_index=index,
            seed=index,
            turns=(
                Turn(
                    new_prompt_token_ids=(1, 2),
                    completion=Completion(text=text, token_ids=tuple(range(min(len(text), 64)))),
                ),
            ),
            terminated=True,
        )
        for index, text in enumerate(_TEXTS)
    ]


def check_reward(
    reward: Reward | type[Reward] | Spec | Callable[..., Any],
    rollouts: Sequence[Rollout] | None = None,
    *,
    options: Mapping[str, Any] | None = None,
) -> list[Score]:
    """Scores the rollouts (by default `probe_rollouts`) and returns the scores, or raises.

    RewardError says which promise is broken: every rollout gets a finite score or None ("not
    applicable") and none fails; values lie within ``range``; twice gives the same; the rollouts
    are not changed; the reward pickles and its copy scores the same.

    >>> from rlgym_llm.rewards import Reward
    >>> class Loud(Reward):
    ...     name = "loud"
    ...     def score(self, rollout, ctx):
    ...         return 2.0
    >>> check_reward(Loud)
    Traceback (most recent call last):
        ...
    rlgym_llm.errors.RewardError: reward 'loud' breaks the contract: it gives 2.0 on 'probe-0', \
outside its range [0.0, 1.0]
    """
    built = build_reward(reward, options)
    rollouts = probe_rollouts() if rollouts is None else rollouts
    before = copy.deepcopy(list(rollouts))
    first = _run(built, rollouts)
    if list(rollouts) != before:
        raise _broken(built, "it changes the rollouts that it scores")
    for rollout, score in zip(rollouts, first, strict=True):
        _check_score(built, rollout, score)
    if _run(built, rollouts) != first:
        raise _broken(built, "the same rollouts get other scores the second time")
    try:
        pickled = pickle.loads(pickle.dumps(built))
    except Exception as failure:
        raise _broken(built, f"it does not pickle: {failure!r}") from failure
    if _run(pickled, rollouts) != first:
        raise _broken(built, "its pickled copy scores differently")
    return first


def _run(reward: Reward, rollouts: Sequence[Rollout]) -> list[Score]:
    """The scores, between a setup and a close."""
    ctx = RewardContext()
    reward.setup(ctx)
    try:
        return score_rollouts(reward, rollouts, ctx)
    finally:
        reward.close()


def _check_score(reward: Reward, rollout: Rollout, score: Score) -> None:
    if score.status in (ScoreStatus.ERROR, ScoreStatus.TIMEOUT):
        raise _broken(reward, f"it fails: {score.error}")
    low, high = reward.range
    if score.value is not None and not low <= score.value <= high:
        raise _broken(
            reward, f"it gives {score.value} on {rollout.id!r}, outside its range [{low}, {high}]"
        )


def _broken(reward: Reward, how: str) -> RewardError:
    return RewardError(f"reward {reward.name!r} breaks the contract: {how}")
