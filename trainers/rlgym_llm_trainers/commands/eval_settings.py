"""What an evaluation is asked to do: the keys of training that it reads, and a few of its own."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from rlgym_llm.config import ParsedCommand, parse_command
from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.errors import ConfigError
from rlgym_llm.plugins import Plugins
from rlgym_llm_trainers.commands.command_words import (
    SAMPLING_KEYS,
    over_starter_run,
    refuse_unread,
)

__all__ = ["EvalSettings", "read_settings"]

_READ = (*SAMPLING_KEYS, "data.val", "data.val_max_samples", "rollout.val_kwargs", "rewards")
_INSTEAD = {
    "rollout.n": "--n",
    "rollout.temperature": "--temperature",
    "rollout.top_p": "--top-p",
    "rollout.top_k": "--top-k",
    "data.train": "--data.val",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalSettings:
    """An evaluation as it was asked for, checked as far as that needs no model."""

    config: TrainConfig
    plugins: Plugins
    ks: tuple[int, ...]
    """The k of pass@k and maj@k, rising, at most ``num_samples``."""
    output: str | None
    """Folder, or None for a new one under ``runs/``."""
    retry_errors: bool

    @property
    def num_samples(self) -> int:
        """Responses a task."""
        return self.config.rollout.val_kwargs.n


def read_settings(given: argparse.Namespace, rest: Sequence[str]) -> EvalSettings:
    """The settings that the command's own flags and the rest of the words amount to.

    A configuration file of a training run is taken as it is; a flag that evaluation does not read
    is refused. Raises ConfigError in one line.
    """
    command = parse_command(rest)
    command = parse_command([*rest, *_own_words(given, command)])
    refuse_unread(command, _READ, prog="rlgym eval", instead=_INSTEAD)
    command, plugins = over_starter_run(command)
    num_samples = command.config.rollout.val_kwargs.n
    ks = given.k or tuple(sorted({1, num_samples}))
    if ks[-1] > num_samples:
        raise ConfigError(f"--k {ks[-1]} needs {ks[-1]} responses a task, --n is {num_samples}")
    return EvalSettings(
        config=command.config,
        plugins=plugins,
        ks=ks,
        output=command.config.trainer.output,
        retry_errors=given.retry_errors,
    )


def _own_words(given: argparse.Namespace, command: ParsedCommand) -> list[str]:
    """The command's own flags in the words of the configuration."""
    before = command.config.rollout.val_kwargs
    words = []
    sampling = (given.n, given.temperature, given.top_p, given.top_k)
    if any(value is not None for value in sampling):
        n = before.n if given.n is None else given.n
        temperature = given.temperature
        if temperature is None:
            temperature = before.temperature if before.do_sample else float(n > 1)
        if temperature == 0 and n > 1:
            raise ConfigError(
                f"--n {n} at --temperature 0 is {n} times the same response; give --n 1, or a "
                "temperature above 0"
            )
        words += [f"rollout.val_kwargs.n={n}", f"rollout.val_kwargs.temperature={temperature}"]
        words += [f"rollout.val_kwargs.do_sample={str(temperature != 0).lower()}"]
    if given.top_p is not None:
        words += [f"rollout.val_kwargs.top_p={given.top_p}"]
    if given.top_k is not None:
        words += [f"rollout.val_kwargs.top_k={given.top_k}"]
    if given.max_tasks is not None:
        words += [f"data.val_max_samples={given.max_tasks}"]
    elif ("data", "val_max_samples") not in command.sources:
        words += ["data.val_max_samples=null"]  # a training run looks at fewer, now and then
    if given.output is not None:
        words += [f"--output={given.output}"]
    return words
