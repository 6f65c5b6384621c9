"""A reward-and-verifier-centric gym for reinforcement learning of language models.

Importing this does one thing: Gymnasium gets to know the built-in environments. Every public name
is imported when it is first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rlgym_llm.registry import announce_builtin_envs as _announce_builtin_envs

if TYPE_CHECKING:
    from rlgym_llm.compose import RewardComposer
    from rlgym_llm.composition.expressions import Clip, Gate, Max, Min, Product, R, Switch
    from rlgym_llm.curriculum import SuccessCurriculum
    from rlgym_llm.env import TextEnv, TurnOutcome
    from rlgym_llm.env_state import EnvState
    from rlgym_llm.episodes.batching import Batching
    from rlgym_llm.episodes.runner import EpisodeRunner
    from rlgym_llm.errors import (
        ConfigError,
        DataError,
        GeneratorError,
        PluginError,
        RewardError,
        RlgymError,
        ToolError,
        UnknownNameError,
        UserError,
    )
    from rlgym_llm.failures import failure_of
    from rlgym_llm.generate import AsyncGenerator, GenerateRequest, Generator, SamplingParams
    from rlgym_llm.hookspecs import hookimpl
    from rlgym_llm.mixture import Mixture
    from rlgym_llm.multi_turn import MultiTurnEnv, Reply
    from rlgym_llm.plugins import Plugins
    from rlgym_llm.registry import make, register_envs
    from rlgym_llm.rewards import Reward, RewardContext, reward
    from rlgym_llm.scores import CardStatus, Component, Score, ScoreCard, ScoreStatus, StepScore
    from rlgym_llm.scripted_generator import ScriptedGenerator
    from rlgym_llm.single_turn import SingleTurnEnv
    from rlgym_llm.specs import (
        AdvantageSpec,
        CommandSpec,
        EnvSpec,
        GeneratorSpec,
        Kind,
        PolicyLossSpec,
        RewardSpec,
        RowSourceSpec,
        Spec,
    )
    from rlgym_llm.tasks import (
        GeneratorTasks,
        HubTasks,
        JsonlTasks,
        ListTasks,
        ParquetTasks,
        TaskSource,
    )
    from rlgym_llm.tool_env import ToolEnv
    from rlgym_llm.tools.parse import parse_tool_calls, write_tool_calls
    from rlgym_llm.tools.tool import Tool, ToolCallError, tool
    from rlgym_llm.tools.tool_call import ToolCall
    from rlgym_llm.types import (
        Action,
        Completion,
        FinishReason,
        Message,
        Prompt,
        Rollout,
        RolloutGroup,
        RolloutStatus,
        Task,
        Turn,
    )
    from rlgym_llm.vector_steps import VectorStep, real_steps

    __version__: str

__all__ = [
    "Action",
    "AdvantageSpec",
    "AsyncGenerator",
    "Batching",
    "CardStatus",
    "Clip",
    "CommandSpec",
    "Completion",
    "Component",
    "ConfigError",
    "DataError",
    "EnvSpec",
    "EnvState",
    "EpisodeRunner",
    "FinishReason",
    "Gate",
    "GenerateRequest",
    "Generator",
    "GeneratorError",
    "GeneratorSpec",
    "GeneratorTasks",
    "HubTasks",
    "JsonlTasks",
    "Kind",
    "ListTasks",
    "Max",
    "Message",
    "Min",
    "Mixture",
    "MultiTurnEnv",
    "ParquetTasks",
    "PluginError",
    "Plugins",
    "PolicyLossSpec",
    "Product",
    "Prompt",
    "R",
    "Reply",
    "Reward",
    "RewardComposer",
    "RewardContext",
    "RewardError",
    "RewardSpec",
    "RlgymError",
    "Rollout",
    "RolloutGroup",
    "RolloutStatus",
    "RowSourceSpec",
    "SamplingParams",
    "Score",
    "ScoreCard",
    "ScoreStatus",
    "ScriptedGenerator",
    "SingleTurnEnv",
    "Spec",
    "StepScore",
    "SuccessCurriculum",
    "Switch",
    "Task",
    "TaskSource",
    "TextEnv",
    "Tool",
    "ToolCall",
    "ToolCallError",
    "ToolEnv",
    "ToolError",
    "Turn",
    "TurnOutcome",
    "UnknownNameError",
    "UserError",
    "VectorStep",
    "__version__",
    "failure_of",
    "hookimpl",
    "make",
    "parse_tool_calls",
    "real_steps",
    "register_envs",
    "reward",
    "tool",
    "write_tool_calls",
]

_NAMES_BY_MODULE = {
    "compose": "RewardComposer",
    "composition.expressions": "Clip Gate Max Min Product R Switch",
    "curriculum": "SuccessCurriculum",
    "env": "TextEnv TurnOutcome",
    "env_state": "EnvState",
    "episodes.batching": "Batching",
    "episodes.runner": "EpisodeRunner",
    "errors": "ConfigError DataError GeneratorError PluginError RewardError RlgymError "
    "ToolError UnknownNameError UserError",
    "failures": "failure_of",
    "generate": "AsyncGenerator GenerateRequest Generator SamplingParams",
    "hookspecs": "hookimpl",
    "mixture": "Mixture",
    "multi_turn": "MultiTurnEnv Reply",
    "plugins": "Plugins",
    "registry": "make register_envs",
    "rewards": "Reward RewardContext reward",
    "scores": "CardStatus Component Score ScoreCard ScoreStatus StepScore",
    "scripted_generator": "ScriptedGenerator",
    "single_turn": "SingleTurnEnv",
    "specs": "AdvantageSpec CommandSpec EnvSpec GeneratorSpec Kind PolicyLossSpec RewardSpec "
    "RowSourceSpec Spec",
    "tasks": "GeneratorTasks HubTasks JsonlTasks ListTasks ParquetTasks TaskSource",
    "tool_env": "ToolEnv",
    "tools.tool_call": "ToolCall",
    "tools.parse": "parse_tool_calls write_tool_calls",
    "tools.tool": "Tool ToolCallError tool",
    "types": "Action Completion FinishReason Message Prompt Rollout "
    "RolloutGroup RolloutStatus Task Turn",
    "vector_steps": "VectorStep real_steps",
}
_MODULES = {
    name: f"{__name__}.{module}"
    for module, names in _NAMES_BY_MODULE.items()
    for name in names.split()
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("rlgym-llm")
    elif name in _MODULES:
        value = getattr(importlib.import_module(_MODULES[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


_announce_builtin_envs()
