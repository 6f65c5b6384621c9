"""Writes docs/files.md: every source file and the first line of its docstring.

python scripts/file_map.py
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "files.md"
PACKAGES = (
    "rlgym_llm",
    "envs/rlgym_llm_envs",
    "reward_plugins/rlgym_llm_rewards",
    "trainers/rlgym_llm_trainers",
)
"""The source roots, the core first."""


def file_map() -> str:
    """The page: a heading for each folder, a line for each file."""
    lines = [
        "# Every file, by its own first line",
        "",
        "Written by `python scripts/file_map.py` from the docstrings, and tested to be up to date.",
    ]
    for package in PACKAGES:
        for folder, files in groupby(_sources(ROOT / package), key=lambda path: path.parent):
            found = list(files)
            init = folder / "__init__.py"
            lines += ["", f"## {folder.relative_to(ROOT)}/", "", _first_line(init), ""]
            lines += [f"- `{path.name}`: {_first_line(path)}" for path in found if path != init]
    return "\n".join(lines) + "\n"


def _sources(package: Path) -> Iterator[Path]:
    """Python files of the package, folder by folder; templates are no code of its own."""
    folders = sorted({path.parent for path in package.rglob("*.py")})
    for folder in folders:
        if "templates" not in folder.parts:
            yield from sorted(folder.glob("*.py"))


def _first_line(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.split("\n\n")[0].replace("\n", " ").strip()


if __name__ == "__main__":
    PAGE.write_text(file_map(), encoding="utf-8")
