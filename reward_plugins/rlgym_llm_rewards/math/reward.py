"""Reward ``math``: 1 where the final answer equals the gold one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlgym_llm.inject import prompt_text
from rlgym_llm.rewards import Reward, RewardContext
from rlgym_llm.scores import Score, ScoreStatus
from rlgym_llm.types import Rollout
from rlgym_llm.unchecked import unchecked
from rlgym_llm_rewards.math.batch import verify_many
from rlgym_llm_rewards.math.policy import Policy
from rlgym_llm_rewards.math.verdict import Verdict, VerdictStatus
from rlgym_llm_rewards.math.verify import verify

__all__ = ["Math"]

_score = unchecked(Score)  # millions are made, of a verdict


@dataclass(frozen=True, kw_only=True)
class Math(Policy, Reward):
    r"""1.0 where the final answer equals ``task.answer``, else 0.0; in [0, 1].

    The options are the choices of `Policy`; ``extraction`` says where an answer is looked for.
    Equality is mathematical: 1,234 = 1234.0, 3/4 = 0.75, 2x + 2 = 2(x + 1), (1,2] = 1 < x <= 2.
    An answer copied from the prompt counts for nothing. A gold answer that cannot be read is an
    error, never a reward; an answer that could not be judged in time is a ``timeout``. ``info``
    carries the verdict: ``status``, ``answer``, ``where`` it stood, both normal forms, and the
    ``rule`` that decided.

    >>> from rlgym_llm.types import Completion, Task, Turn
    >>> turn = Turn(new_prompt_token_ids=(), completion=Completion(text="1 + 1 = 2\n#### 2"))
    >>> rollout = Rollout(id="r", task=Task(prompt="1 + 1?", answer="2"), group_id="g",
    ...                   sample_index=0, seed=0, turns=(turn,))
    >>> Math().score(rollout, RewardContext()).value
    1.0
    """

    name = "math"
    is_bounded = True
    version = 2
    needs = ("answer",)

    def score(self, rollout: Rollout, ctx: RewardContext) -> Score:
        """The verdict as a score."""
        task = rollout.task
        verdict = verify(rollout.text, task.answer or "", prompt=prompt_text(task), policy=self)
        return self._scored(rollout, verdict)

    def score_batch(self, rollouts: Sequence[Rollout], ctx: RewardContext) -> list[Score]:
        """The verdicts as scores; proofs of several run side by side."""
        if len(rollouts) == 1:
            return [self.score(rollouts[0], ctx)]
        tasks = [rollout.task for rollout in rollouts]
        verdicts = verify_many(
            [rollout.text for rollout in rollouts],
            [task.answer or "" for task in tasks],
            prompts=list(map(prompt_text, tasks)),
            policy=self,
        )
        return list(map(self._scored, rollouts, verdicts))

    def _scored(self, rollout: Rollout, verdict: Verdict) -> Score:
        status, info = verdict.status, verdict.as_info()
        if status is VerdictStatus.CORRECT:
            return _score(self.name, 1.0, ScoreStatus.OK, (), info, None, 0.0)
        if status is VerdictStatus.BAD_GOLD:
            return Score(
                name=self.name,
                value=None,
                status=ScoreStatus.ERROR,
                info=info,
                error=f"the gold answer {_short(verdict.gold)} of task {rollout.task.id} "
                f"cannot be used: {verdict.reason}",
            )
        if status is VerdictStatus.TIMEOUT:
            return Score(
                name=self.name,
                value=None,
                status=ScoreStatus.TIMEOUT,
                info=info,
                error=f"no verdict on the answer {_short(verdict.answer)}: {verdict.reason}",
            )
        return _score(self.name, 0.0, ScoreStatus.OK, (), info, None, 0.0)


def _short(text: str | None) -> str:
    return repr(text if text is None or len(text) <= 80 else text[:77] + "...")
