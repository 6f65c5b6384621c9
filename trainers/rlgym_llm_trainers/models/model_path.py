"""What is plainly no model, by its path alone. Light: no torch here."""

from __future__ import annotations

from pathlib import Path

from rlgym_llm.errors import UserError

__all__ = ["check_model_path"]


def check_model_path(path: str | Path, *, flag: str = "--model") -> None:
    """Raises UserError where ``path`` is plainly no model: cheap, so it comes before all work.

    What looks like a hub id (``org/name``) passes; whether the hub has it shows in `load_policy`.
    """
    folder = Path(path).expanduser()
    if folder.is_file():
        raise UserError(f"{flag} {path}: is a file; give a Hugging Face folder")
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise UserError(f"{flag} {path}: no config.json in that folder; give a Hugging Face one")
    looks_local = str(path).startswith((".", "/", "~")) or str(path).count("/") > 1
    if looks_local and not folder.is_dir():
        raise UserError(f"{flag} {path}: no such folder")
