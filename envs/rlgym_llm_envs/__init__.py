"""The built-in environments and data sets. Importing this names them and imports none."""

from __future__ import annotations

from rlgym_llm.builtin_envs import BUILTIN_ENVS
from rlgym_llm.hookspecs import hookimpl
from rlgym_llm.specs import Kind, RewardSpec, RowSourceSpec, Spec

__all__ = ["rlgym_register"]


@hookimpl
def rlgym_register(kind: Kind) -> list[Spec]:
    """The environments, the hub's rows, and a reward that an adapter needs."""
    if kind is Kind.ROW_SOURCE:
        return [
            RowSourceSpec(
                name="hf",
                entry_point="rlgym_llm_envs.hub_rows:hub_rows",
                description="A data set of the Hugging Face hub: hf:OWNER/NAME[:CONFIG[:SPLIT]].",
            ),
        ]
    if kind is Kind.REWARD:
        return [
            RewardSpec(
                name="verifiers",
                entry_point="rlgym_llm_envs.adapters.verifiers_reward:VerifiersReward",
                description="one reward function of a verifiers environment",
            ),
        ]
    if kind is not Kind.ENV:
        return []
    return list(BUILTIN_ENVS)
