"""Reward ``math``: 1 where the final answer equals the gold one."""

from __future__ import annotations

from dataclasses import dataclass

from rlgym_llm.rewards import Reward, RewardContext
from rlgym_llm.types import Rollout, Score, ScoreStatus
from rlgym_llm_rewards.verify import Policy, VerdictStatus, verify

__all__ = ["Math"]


@dataclass(frozen=True, kw_only=True)
class Math(Reward):
    r"""1.0 where the final answer equals ``task.answer`` exactly, else 0.0; in [0, 1].

    The answer is the last ``#### x`` or ``\boxed{x}``: GSM8K's own format (Cobbe et al. 2021,
    arXiv 2110.14168) and MATH's. Numbers compare as exact fractions: 1,234 = 1234.0, 3/4 = 0.75,
    25% = 0.25. A gold answer that cannot be read is an error, never a reward. ``info`` tells
    ``status``, ``answer`` and ``where`` it was found.

    >>> from rlgym_llm.types import Completion, Task, Turn
    >>> turn = Turn(new_prompt_token_ids=(), completion=Completion(text="1 + 1 = 2\n#### 2"))
    >>> rollout = Rollout(id="r", task=Task(prompt="1 + 1?", answer="2"), group_id="g",
    ...                   sample_index=0, seed=0, turns=(turn,))
    >>> Math().score(rollout, RewardContext()).value
    1.0
    """

    name = "math"
    needs = ("answer",)

    extraction: Policy = "strict"
    """``strict``: a marked answer only; ``lenient``: else the last number of the text."""

    def score(self, rollout: Rollout, ctx: RewardContext) -> Score:
        """The verdict as a score; ``error`` where the gold answer cannot be read."""
        verdict = verify(rollout.text, rollout.task.answer or "", policy=self.extraction)
        info = {"status": verdict.status.value, "answer": verdict.answer, "where": verdict.where}
        if verdict.status is VerdictStatus.BAD_GOLD:
            return Score(
                name=self.name,
                value=None,
                status=ScoreStatus.ERROR,
                info=info,
                error=f"the gold answer {_short(verdict.gold)} of task {rollout.task.id} "
                "is no number",
            )
        return Score(name=self.name, value=float(verdict.is_correct), info=info)


def _short(text: str | None) -> str:
    return repr(text if text is None or len(text) <= 80 else text[:77] + "...")
