"""Scaffold: write a plugin distribution that installs, registers and passes its own tests."""

from __future__ import annotations

import keyword
import re
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template
from typing import Literal

from rlgym_llm.errors import UserError

__all__ = ["scaffold"]

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_SUFFIX = ".tmpl"


def scaffold(kind: Literal["reward"], name: str, folder: Path) -> list[Path]:
    """Writes the distribution of a new plugin into ``folder`` and returns its files.

    ``brevity`` becomes the distribution ``rlgym-llm-brevity`` with the package
    ``rlgym_llm_brevity``. Raises UserError for a name that is no snake_case word, and for a folder
    that is in use; then nothing is written.
    """
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise UserError(
            f"{kind} name {name!r} is no snake_case word, such as brevity or unit_tests"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is in use; name another folder with --output")
    words = {
        "name": name,
        "dashed": name.replace("_", "-"),
        "package": f"rlgym_llm_{name}",
        "class_name": "".join(part.capitalize() for part in name.split("_")),
    }
    written = []
    for parts, template in _templates(resources.files("rlgym_llm") / "templates" / kind):
        path = folder.joinpath(*(words["package"] if part == "package" else part for part in parts))
        path.parent.mkdir(parents=True, exist_ok=True)
        text = Template(template.read_text("utf-8")).substitute(words)
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


def _templates(root: Traversable) -> list[tuple[tuple[str, ...], Traversable]]:
    found: list[tuple[tuple[str, ...], Traversable]] = []
    for item in sorted(root.iterdir(), key=lambda item: item.name):
        if item.is_dir():
            found += [((item.name, *parts), template) for parts, template in _templates(item)]
        elif item.name.endswith(_SUFFIX):
            found.append(((item.name.removesuffix(_SUFFIX),), item))
    return found
