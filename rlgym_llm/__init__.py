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
    from rlgym_llm.env import TextEnv, TurnOutcome
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
    from rlgym_llm.generate import GenerateRequest, Generator, SamplingParams, ScriptedGenerator
    from rlgym_llm.hookspecs import hookimpl
    from rlgym_llm.plugins import Plugins
    from rlgym_llm.registry import make, register_envs
    from rlgym_llm.rewards import Reward, RewardContext, reward
    from rlgym_llm.scores import CardStatus, Component, Score, ScoreCard, ScoreStatus, StepScore
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
        JsonlTasks,
        ListTasks,
        ParquetTasks,
        TaskSource,
    )
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

    __version__: str

__all__ = [
    "Action",
    "AdvantageSpec",
    "CardStatus",
    "Clip",
    "CommandSpec",
    "Completion",
    "Component",
    "ConfigError",
    "DataError",
    "EnvSpec",
    "FinishReason",
    "Gate",
    "GenerateRequest",
    "Generator",
    "GeneratorError",
    "GeneratorSpec",
    "GeneratorTasks",
    "JsonlTasks",
    "Kind",
    "ListTasks",
    "Max",
    "Message",
    "Min",
    "ParquetTasks",
    "PluginError",
    "Plugins",
    "PolicyLossSpec",
    "Product",
    "Prompt",
    "R",
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
    "Spec",
    "StepScore",
    "Switch",
    "Task",
    "TaskSource",
    "TextEnv",
    "ToolError",
    "Turn",
    "TurnOutcome",
    "UnknownNameError",
    "UserError",
    "__version__",
    "hookimpl",
    "make",
    "register_envs",
    "reward",
]

_NAMES_BY_MODULE = {
    "compose": "RewardComposer",
    "composition.expressions": "Clip Gate Max Min Product R Switch",
    "env": "TextEnv TurnOutcome",
    "errors": "ConfigError DataError GeneratorError PluginError RewardError RlgymError "
    "ToolError UnknownNameError UserError",
    "generate": "GenerateRequest Generator SamplingParams ScriptedGenerator",
    "hookspecs": "hookimpl",
    "plugins": "Plugins",
    "registry": "make register_envs",
    "rewards": "Reward RewardContext reward",
    "scores": "CardStatus Component Score ScoreCard ScoreStatus StepScore",
    "specs": "AdvantageSpec CommandSpec EnvSpec GeneratorSpec Kind PolicyLossSpec RewardSpec "
    "RowSourceSpec Spec",
    "tasks": "GeneratorTasks JsonlTasks ListTasks ParquetTasks TaskSource",
    "types": "Action Completion FinishReason Message Prompt Rollout "
    "RolloutGroup RolloutStatus Task Turn",
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
