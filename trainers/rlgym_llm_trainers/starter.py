"""Where the starter model lies, how it was made, and how it is trained. Light: no torch here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["STARTER_DATA_SOURCE", "starter_model_path", "starter_recipe", "starter_run_path"]

STARTER_DATA_SOURCE = "rlgym/starter"
"""The ``data_source`` of starter problems, by which a run knows that it trains on them."""


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
