"""What commands make of the words of a training run's configuration.

Those that sample without training read some of its keys: a configuration file is taken as it is, a
flag that is not read is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlgym_llm.config import ParsedCommand, over_file
from rlgym_llm.errors import ConfigError
from rlgym_llm.plugins import Plugins

__all__ = ["SAMPLING_KEYS", "over_starter_run", "refuse_unread"]

SAMPLING_KEYS = (
    "env",
    "model.path",
    "model.dtype",
    "model.trust_remote_code",
    "data.max_prompt_length",
    "data.max_response_length",
    "data.filter_overlong_prompts",
    "data.truncation",
    "rollout.name",
    "rollout.num_workers",
    "rollout.max_num_seqs",
    "rollout.max_model_len",
    "rollout.stop",
    "rollout.stop_token_ids",
    "rollout.tensor_model_parallel_size",
    "rollout.gpu_memory_utilization",
    "rollout.kv_cache_gib",
    "rollout.max_num_batched_tokens",
    "rollout.enforce_eager",
    "rollout.enable_prefix_caching",
    "rollout.engine_kwargs",
    "rollout.workers",
    "rollout.weight_sync",
    "rollout.server",
    "rollout.max_turns",
    "rollout.max_seconds",
    "rollout.step_timeout_s",
    "rollout.batching",
    "trainer.output",
    "trainer.device",
    "trainer.seed",
    "trainer.num_threads",
    "plugins",
)
"""Keys and sections that each of these reads: of model, generator and episodes."""


def over_starter_run(command: ParsedCommand) -> tuple[ParsedCommand, Plugins]:
    """The command over the settings of the starter kit where they fit; and its plugins.

    Whatever the words say lies over those settings.
    """
    from rlgym_llm_trainers.training.environments import (  # Gymnasium
        starter_kit_of,
        uses_starter_run,
    )

    plugins = Plugins.discover(command.config.plugins)
    if uses_starter_run(command.config, plugins):
        command = over_file(command, str(starter_kit_of(command.config, plugins).run))
    return command, plugins


def refuse_unread(
    command: ParsedCommand, read: Sequence[str], *, prog: str, instead: Mapping[str, str]
) -> None:
    """Raises ConfigError for a flag that is not ``read``; files may hold any, for runs write all.

    ``instead`` names what to look at, by key or section.
    """
    for path, spelling in command.sources.items():
        key = ".".join(map(str, path))
        if any(_is_in(key, name) for name in read) or ": " in spelling:  # `file: key`
            continue
        see = next((f"; see {flag}" for name, flag in instead.items() if _is_in(key, name)), "")
        raise ConfigError(f"{spelling} is a key of training, {prog} does not read it{see}")


def _is_in(key: str, name: str) -> bool:
    return key == name or key.startswith(f"{name}.")
