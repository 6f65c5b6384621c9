"""Settings that no run can begin with, found before anything is loaded; no torch here."""

from __future__ import annotations

import os
from pathlib import Path

from rlgym_llm.config_schema import TrainConfig, TrainerConfig
from rlgym_llm.errors import ConfigError
from rlgym_llm.plugins import Plugins
from rlgym_llm.specs import Kind
from rlgym_llm_trainers.learner.correction_rules import correction_rules
from rlgym_llm_trainers.models.model_path import check_model_path
from rlgym_llm_trainers.models.starter import STARTER

__all__ = ["check_dump_folders", "check_dump_places", "check_settings"]


def check_settings(config: TrainConfig, plugins: Plugins) -> None:
    """Raises UserError for what needs neither a model nor tasks to be seen.

    Unknown algorithms, paths that are no models, what has no effect or counts twice.
    """
    plugins.get(Kind.ADVANTAGE, config.algorithm.adv_estimator)
    plugins.get(Kind.POLICY_LOSS, config.actor.policy_loss)
    for flag, path in (
        ("--model", config.model.path),
        ("--critic.model.path", config.critic.model.path),
    ):
        if path not in (None, STARTER):
            check_model_path(path, flag=flag)
    _check_staleness(config)
    _check_dumps_apart(config.trainer)


def check_dump_folders(trainer: TrainerConfig) -> None:
    """Raises ConfigError where a folder for generations is not this run's to fill."""
    for key in ("rollout_data_dir", "validation_data_dir"):
        _check_dump_folder(key, getattr(trainer, key))


def check_dump_places(trainer: TrainerConfig) -> None:
    """Raises ConfigError where a folder for generations cannot be made or written; makes none."""
    for key in ("rollout_data_dir", "validation_data_dir"):
        if (folder := getattr(trainer, key)) is None:
            continue
        place = Path(folder).absolute()
        while not place.exists():
            place = place.parent
        fault = None if os.access(place, os.W_OK) else f"{place} is not writable"
        fault = fault if place.is_dir() else f"{place} is no folder"
        if fault is not None:
            raise ConfigError(f"--trainer.{key} {folder}: {fault}; name another folder")


def _check_staleness(config: TrainConfig) -> None:
    rollout = config.rollout
    if rollout.stale == "drop" and not rollout.max_staleness:
        raise ConfigError("--rollout.stale drop has no effect with --rollout.max_staleness 0")
    correction_rules(config.algorithm.rollout_correction, max_staleness=rollout.max_staleness)


def _check_dumps_apart(trainer: TrainerConfig) -> None:
    """Both name their files by the step, so that one would write over the other's."""
    train, val = trainer.rollout_data_dir, trainer.validation_data_dir
    if train and val and Path(train).resolve() == Path(val).resolve():
        raise ConfigError(
            f"--trainer.validation_data_dir {val}: is the folder of --trainer.rollout_data_dir, "
            "and both hold a file a step; name another"
        )


def _check_dump_folder(key: str, folder: str | None) -> None:
    if folder is None:
        return
    path = Path(folder)
    try:
        if path.exists() and not path.is_dir():
            raise ConfigError(f"--trainer.{key} {path}: is a file; name a folder")
        if path.is_dir() and any(path.iterdir()):
            raise ConfigError(f"--trainer.{key} {path}: the folder is in use; name a new one")
    except OSError as error:  # a name too long, no permission
        raise ConfigError(f"--trainer.{key} {path}: cannot be used: {error.strerror}") from error
