"""Where the starter models lie, how they were made, and how they are trained.

Light: no torch here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rlgym_llm.errors import ConfigError

__all__ = [
    "STARTER_DATA_SOURCE",
    "StarterKit",
    "starter_kit",
    "starter_model_path",
    "starter_recipe",
    "starter_run_path",
]

STARTER_DATA_SOURCE = "rlgym/starter"
"""The ``data_source`` of starter problems, by which a run knows that it trains on them."""

_FOLDER: Final = Path(__file__).parent / "starters"
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
    folder = Path(__file__).parent / "starter_model"
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(
            f"the starter model is not in {folder}; rebuild it with scripts/build_starter.py"
        )
    return folder


def starter_recipe() -> dict[str, Any]:
    """Return what recipe.json says: the recipe, the hashes and the measured accuracies.

    Keys: ``recipe``, ``recipe_sha256``, ``model_sha256``, ``tokenizer_sha256``, ``num_parameters``
    and ``measured`` (shares in 0..1 on 200 val problems: ``{"greedy_strict": 0.25, ...}``).

    Raises:
        FileNotFoundError: the installed package lacks the folder.
    """
    record: dict[str, Any] = json.loads(
        (starter_model_path() / "recipe.json").read_text(encoding="utf-8")
    )
    return record


def starter_run_path() -> Path:
    """Return the YAML file with the settings of the starter run, for ``--config``."""
    return Path(__file__).parent / "starter_run.yaml"
