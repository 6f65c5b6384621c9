"""What an evaluation is asked to do: the keys of training that it reads, and a few of its own."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from rlgym_llm.config import ParsedCommand, over_file, parse_command
from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.errors import ConfigError
from rlgym_llm.plugins import Plugins

__all__ = ["EvalSettings", "read_settings"]

_STARTER = "starter"
_READ = (
    "env",
    "model.path",
    "model.dtype",
    "model.trust_remote_code",
    "data.val",
    "data.val_max_samples",
    "data.max_prompt_length",
    "data.max_response_length",
    "data.filter_overlong_prompts",
    "data.truncation",
    "rollout.name",
    "rollout.max_num_seqs",
    "rollout.val_kwargs",
    "rollout.max_turns",
    "rollout.max_seconds",
    "rollout.step_timeout_s",
    "rollout.batching",
    "rewards",
    "trainer.output",
    "trainer.device",
    "trainer.seed",
    "trainer.num_threads",
    "plugins",
)
"""Keys and sections that evaluation reads; the others are for training."""
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
    words = _without_starter(rest)
    command = parse_command(words)
    command = parse_command([*words, *_own_words(given, command)])
    _refuse_unread(command)
    # Gymnasium is needed past this line.
    from rlgym_llm_trainers.environments import starter_kit_of, uses_starter_run

    plugins = Plugins.discover(command.config.plugins)
    if uses_starter_run(command.config, plugins):
        command = over_file(command, str(starter_kit_of(command.config, plugins).run))
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


def _without_starter(words: Sequence[str]) -> list[str]:
    """The words without ``--model starter``, which is what no model means."""
    kept = list(words)
    for spelling in (["--model", _STARTER], [f"--model={_STARTER}"]):
        size = len(spelling)
        for place in reversed(range(len(kept) - size + 1)):
            if kept[place : place + size] == spelling:
                kept[place : place + size] = ["--model.path=null"]
    return kept


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


def _refuse_unread(command: ParsedCommand) -> None:
    """Raises ConfigError for a flag of training; files may hold them, for runs write them all."""
    for path, spelling in command.sources.items():
        key = ".".join(map(str, path))
        is_read = any(key == name or key.startswith(f"{name}.") for name in _READ)
        if is_read or ": " in spelling:  # `file: key`
            continue
        instead = f"; see {_INSTEAD[key]}" if key in _INSTEAD else ""
        raise ConfigError(f"{spelling} is a key of training, rlgym eval does not read it{instead}")
