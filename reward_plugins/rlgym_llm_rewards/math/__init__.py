"""Decides whether a final answer equals the gold one: `verify`, and the reward ``math`` on it."""

from __future__ import annotations

from rlgym_llm_rewards.math.batch import verify_async, verify_many
from rlgym_llm_rewards.math.policy import POLICIES, Policy, get_policy
from rlgym_llm_rewards.math.reward import Math
from rlgym_llm_rewards.math.verdict import Verdict, VerdictStatus
from rlgym_llm_rewards.math.verify import verify

__all__ = [
    "POLICIES",
    "Math",
    "Policy",
    "Verdict",
    "VerdictStatus",
    "get_policy",
    "verify",
    "verify_async",
    "verify_many",
]
