"""The built-in rewards. Importing this names them and imports none."""

from __future__ import annotations

from rlgym_llm.hookspecs import hookimpl
from rlgym_llm.specs import CommandSpec, Kind, RewardSpec, Spec

__all__ = ["rlgym_register"]


_SPECS: dict[Kind, list[Spec]] = {
    Kind.REWARD: [
        RewardSpec(
            name="math",
            entry_point="rlgym_llm_rewards.math:Math",
            description="1 where the final answer equals the task's, as mathematics",
        ),
        RewardSpec(
            name="exact_match",
            entry_point="rlgym_llm_rewards.exact_match:ExactMatch",
            description="1 where the text is the answer",
        ),
        RewardSpec(
            name="format",
            entry_point="rlgym_llm_rewards.format:Format",
            description="1 where the completion is written the way it was asked for",
        ),
        RewardSpec(
            name="length",
            entry_point="rlgym_llm_rewards.length:Length",
            description="number of sampled tokens, characters or turns",
        ),
        RewardSpec(
            name="function",
            entry_point="rlgym_llm_rewards.function:Function",
            description="what a function of yours returns, file.py:name",
        ),
        RewardSpec(
            name="env",
            entry_point="rlgym_llm_rewards.env:Env",
            description="what the environment itself gave, summed over the turns",
        ),
    ],
    Kind.COMMAND: [
        CommandSpec(
            name="verify",
            entry_point="rlgym_llm_rewards.commands.verify:main",
            description="judge one answer against its gold, and say why",
        ),
    ],
}


@hookimpl
def rlgym_register(kind: Kind) -> list[Spec]:
    """The rewards, and the command that judges one answer."""
    return list(_SPECS.get(kind, []))
