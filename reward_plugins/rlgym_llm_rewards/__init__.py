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
            is_verdict=True,
        ),
        RewardSpec(
            name="exact_match",
            entry_point="rlgym_llm_rewards.exact_match:ExactMatch",
            description="1 where the text is the answer",
            is_verdict=True,
        ),
        RewardSpec(
            name="format",
            entry_point="rlgym_llm_rewards.format:Format",
            description="1 where the completion is written the way it was asked for",
        ),
        RewardSpec(
            name="length",
            entry_point="rlgym_llm_rewards.length:Length",
            description="how long the rollout is, or what that is worth",
        ),
        RewardSpec(
            name="repetition",
            entry_point="rlgym_llm_rewards.repetition:Repetition",
            description="a penalty for saying the same again",
        ),
        RewardSpec(
            name="regex",
            entry_point="rlgym_llm_rewards.regex:Regex",
            description="whether, or how often, a pattern matches the text",
            is_verdict=True,
        ),
        RewardSpec(
            name="multiple_choice",
            entry_point="rlgym_llm_rewards.multiple_choice:MultipleChoice",
            description="1 where the completion decides for the right choice",
            is_verdict=True,
        ),
        RewardSpec(
            name="prm",
            entry_point="rlgym_llm_rewards.prm:PRM",
            description="each step of the reasoning, scored by a model, a server or a function",
        ),
        RewardSpec(
            name="reward_model",
            entry_point="rlgym_llm_rewards.reward_model:RewardModel",
            description="the score of a sequence-classification head",
        ),
        RewardSpec(
            name="judge",
            entry_point="rlgym_llm_rewards.judge:Judge",
            description="the grade of a language model behind an OpenAI-compatible address",
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
