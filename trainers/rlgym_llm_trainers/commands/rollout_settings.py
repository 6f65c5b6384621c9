"""What `rlgym rollout` is asked to do: the keys of training that it reads, and a few of its own."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rlgym_llm.config import parse_command
from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.plugins import Plugins
from rlgym_llm_trainers.commands.command_words import (
    SAMPLING_KEYS,
    over_starter_run,
    refuse_unread,
)

__all__ = ["RolloutSettings", "Split", "read_settings"]

Split = Literal["train", "val"]
_READ = (*SAMPLING_KEYS, "rollout.n", "rollout.temperature", "rollout.top_p", "rollout.top_k")
_INSTEAD = {
    "data.train": "--split train",
    "data.val": "--split val",
    "data.val_max_samples": "--max-tasks",
    "rewards": "--score",
    "rollout.val_kwargs": "rlgym eval",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSettings:
    """A collection of rollouts as it was asked for, checked as far as that needs no model."""

    config: TrainConfig
    plugins: Plugins
    split: Split
    """Whose tasks are sampled."""
    max_tasks: int | None
    """So many of them, the first ones; None is all."""
    output: str | None
    """File or folder, or None for a new folder under ``runs/``."""
    is_scored: bool
    """Whether the rollouts get their rewards at once."""
    retry_errors: bool

    @property
    def group_size(self) -> int:
        """Rollouts a task."""
        return self.config.rollout.n


def read_settings(given: argparse.Namespace, rest: Sequence[str]) -> RolloutSettings:
    """The settings that the command's own flags and the rest of the words amount to.

    A configuration file of a training run is taken as it is; a flag that is not read is refused.
    Raises ConfigError in one line.
    """
    words = list(rest)
    words += [] if given.n is None else [f"rollout.n={given.n}"]
    words += [] if given.output is None else [f"--output={given.output}"]
    command = parse_command(words)
    read = (*_READ, f"data.{given.split}", *(["rewards"] if given.score else []))
    refuse_unread(command, read, prog="rlgym rollout", instead=_INSTEAD)
    command, plugins = over_starter_run(command)
    return RolloutSettings(
        config=command.config,
        plugins=plugins,
        split=given.split,
        max_tasks=given.max_tasks,
        output=command.config.trainer.output,
        is_scored=given.score,
        retry_errors=given.retry_errors,
    )
