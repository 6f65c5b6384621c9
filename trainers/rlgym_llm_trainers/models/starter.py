"""Where the starter models lie, and the settings of their runs.

Light: no torch here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rlgym_llm.errors import ConfigError

__all__ = [
    "STARTER",
    "STARTER_DATA_SOURCE",
    "StarterKit",
    "starter_kit",
    "starter_model_path",
    "starter_run_path",
]

STARTER: Final = "starter"
"""What stands for the model, and for the problems, of a run that names none."""
STARTER_DATA_SOURCE: Final = "rlgym/starter"
"""The ``data_source`` of starter problems, by which a run knows that it trains on them."""

_FOLDER: Final = Path(__file__).parents[1] / "starters"
_MODELS: Final[Mapping[str, str]] = {"guess-number": "multi_turn", "gsm8k-calculator": "multi_turn"}
"""Kits, and the folders of their models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StarterKit:
    """What a run takes where neither a model nor data is named."""

    model: Path
    """Folder of a tiny model that was warm-started for the environment."""
    run: Path
    """YAML file with settings under which it learns, for ``--config``."""


def starter_kit(name: str | None = None) -> StarterKit:
    """Return the kit that an environment names in `TextEnv.starter`; None is the starter model's.

    Example: ``starter_kit("guess-number").run.name`` is ``"guess-number.yaml"``.

    Raises:
        ConfigError: there is no such kit.
        FileNotFoundError: the installed package lacks the starter model.
    """
    if name is None:
        return StarterKit(model=starter_model_path(), run=starter_run_path())
    if name not in _MODELS:
        raise ConfigError(
            f"there is no starter kit {name!r}, only {', '.join(_MODELS)}; give --model"
        )
    return StarterKit(model=_FOLDER / _MODELS[name], run=_FOLDER / f"{name}.yaml")


def starter_model_path() -> Path:
    """Return the folder of the starter model: ordinary Hugging Face, at most 4,000,000 bytes.

    Example: ``AutoModelForCausalLM.from_pretrained(starter_model_path())`` gives a Llama of about
    0.9M float32 parameters.

    Raises:
        FileNotFoundError: the installed package lacks the folder.
    """
    folder = Path(__file__).parents[1] / "starter_model"
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(
            f"the starter model is not in {folder}; rebuild it with scripts/build_starter.py"
        )
    return folder


def starter_run_path() -> Path:
    """Return the YAML file with the settings of the starter run, for ``--config``."""
    return Path(__file__).parents[1] / "starter_run.yaml"
