"""The environment that a run validates on, or why there is none; imports no torch."""

from __future__ import annotations

from collections.abc import Callable

from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.env import TextEnv
from rlgym_llm.errors import ConfigError
from rlgym_llm.plugins import Plugins
from rlgym_llm_trainers.training.environments import has_validation_tasks, make_env

__all__ = ["make_val_env"]


def make_val_env(
    config: TrainConfig, plugins: Plugins, note: Callable[[str], None]
) -> TextEnv | None:
    """The validation environment, or None, said by ``note``, where there is nothing to validate on.

    Raises UserError as `make_env` does, and where a run that only validates has no such tasks.
    """
    reason = None
    if config.data.train is not None and config.data.val is None:
        reason = "--data.train is given without --data.val"
    elif not has_validation_tasks(config, plugins):
        reason = f"environment {config.env.id} has no validation tasks of its own"
    if reason is None:
        return make_env(config, plugins, role="val")
    if config.trainer.val_only:
        raise ConfigError(f"--trainer.val_only: {reason}; give --data.val")
    note(f"no validation: {reason}")
    return None
