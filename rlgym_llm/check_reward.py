"""The contract of a reward as a check that third parties run in their own tests."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rlgym_llm.errors import RewardError
from rlgym_llm.rewards import Reward, RewardContext, build_reward
from rlgym_llm.score import score_rollouts
from rlgym_llm.scores import FAILED, Score
from rlgym_llm.specs import Spec
from rlgym_llm.types import Completion, Rollout, Task, Turn

__all__ = ["check_reward", "probe_rollouts", "rollout_of"]

_SHORT = 10_000

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


def rollout_of(
    text: str, *, prompt: str = "12 + 60 = ?", answer: str | None = "72", index: int = 0
) -> Rollout:
    """A finished rollout of one turn that says ``text``, for a test.

    >>> rollout_of("#### 72").task.answer
    '72'
    """
    completion = Completion(text=text, token_ids=tuple(range(min(max(len(text), 1), 64))))
    return Rollout(
        id=f"probe-{index}",
        task=Task(prompt=prompt, answer=answer, data_source="probe"),
        group_id="probe",
        sample_index=index,
        seed=index,
        turns=(Turn(new_prompt_token_ids=(1, 2), completion=completion),),
        terminated=True,
    )


def probe_rollouts() -> list[Rollout]:
    """Rollouts of one task with the answer 72: right, wrong, empty, in any script, and huge."""
    return [rollout_of(text, index=index) for index, text in enumerate(_TEXTS)]


def check_reward(
    reward: Reward | type[Reward] | Spec | Callable[..., Any],
    rollouts: Sequence[Rollout] | None = None,
    *,
    options: Mapping[str, Any] | None = None,
    right: str | None = None,
    wrong: str | None = None,
) -> list[Score]:
    """Scores the rollouts (by default `probe_rollouts`) and returns the scores, or raises.

    RewardError says which promise is broken: every rollout gets a finite score or None ("not
    applicable") and none fails; values lie within ``range``; steps lie within the text and add up
    to the value; twice gives the same, and so do four threads at once; the rollouts are not
    changed; the reward pickles and its copy scores the same; another order of them changes nothing.
    ``right`` and ``wrong`` are completions of the task ``12 + 60 = ?`` with the answer 72:
    the one gets the top of the range, the other less.

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
    _check_threads_and_order(built, [r for r in rollouts if len(r.text) <= _SHORT])
    try:
        pickled = pickle.loads(pickle.dumps(built))
    except Exception as failure:
        raise _broken(built, f"it does not pickle: {failure!r}") from failure
    if _run(pickled, rollouts) != first:
        raise _broken(built, "its pickled copy scores differently")
    _check_verdicts(built, right, wrong)
    return first


def _run(reward: Reward, rollouts: Sequence[Rollout], *, num_threads: int = 1) -> list[Score]:
    """The scores, between a setup and a close; of threads, those of one that differs if any."""
    components = {name: (None,) * len(rollouts) for name in reward.uses}
    ctx = RewardContext(components=components)
    reward.setup(ctx)
    try:
        if num_threads == 1:
            return score_rollouts(reward, rollouts, ctx)
        with ThreadPoolExecutor(num_threads) as threads:
            runs = [
                threads.submit(score_rollouts, reward, rollouts, ctx) for _ in range(num_threads)
            ]
            found = [run.result() for run in runs]
        return next((scores for scores in found if scores != found[0]), found[0])
    finally:
        reward.close()


def _check_threads_and_order(reward: Reward, rollouts: Sequence[Rollout]) -> None:
    """Asked of short texts: what is slow is slow once more in every thread."""
    alone = _run(reward, rollouts)
    if _run(reward, rollouts, num_threads=4) != alone:
        raise _broken(reward, "several threads at once get other scores")
    if _run(reward, rollouts[::-1])[::-1] != alone:
        raise _broken(reward, "the rollouts in another order get other scores")


def _check_verdicts(reward: Reward, right: str | None, wrong: str | None) -> None:
    """The gold answer scores the maximum, and garbage does not."""
    for text, is_right in ((right, True), (wrong, False)):
        if text is None:
            continue
        (score,) = _run(reward, [rollout_of(text)])
        if (score.value == reward.range[1]) is not is_right:
            what = "right" if is_right else "wrong"
            raise _broken(reward, f"the {what} completion {text!r} gets {score.value}")


def _check_score(reward: Reward, rollout: Rollout, score: Score) -> None:
    if score.status in FAILED:
        raise _broken(reward, f"it fails: {score.error}")
    low, high = reward.range
    if score.value is not None and not low <= score.value <= high:
        raise _broken(
            reward, f"it gives {score.value} on {rollout.id!r}, outside its range [{low}, {high}]"
        )
    if any(step.char_end > len(rollout.text) for step in score.steps):
        raise _broken(reward, f"a step of {rollout.id!r} ends behind the text")
    total = math.fsum(step.value for step in score.steps)
    if (
        score.steps
        and score.value is not None
        and not math.isclose(total, score.value, rel_tol=1e-9, abs_tol=1e-9)
    ):
        raise _broken(
            reward, f"the steps of {rollout.id!r} add up to {total}, its value is {score.value}"
        )


def _broken(reward: Reward, how: str) -> RewardError:
    return RewardError(f"reward {reward.name!r} breaks the contract: {how}")
