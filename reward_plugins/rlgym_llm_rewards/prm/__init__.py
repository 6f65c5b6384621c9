"""The reward ``prm``: the steps of a completion, each scored by a process reward model."""

from rlgym_llm_rewards.prm.labels import IGNORED, prm_labels
from rlgym_llm_rewards.prm.reduce import reduce_steps
from rlgym_llm_rewards.prm.reward import PRM
from rlgym_llm_rewards.prm.splitters import Step, split_rollout, split_text

__all__ = ["IGNORED", "PRM", "Step", "prm_labels", "reduce_steps", "split_rollout", "split_text"]
