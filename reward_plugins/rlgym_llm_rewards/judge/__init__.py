"""The reward ``judge``: a language model that grades by criteria of yours."""

from rlgym_llm_rewards.judge.criteria import Criteria, fence
from rlgym_llm_rewards.judge.reward import Judge
from rlgym_llm_rewards.judge.verdict import VerdictError, combine_votes, read_verdict

__all__ = ["Criteria", "Judge", "VerdictError", "combine_votes", "fence", "read_verdict"]
