"""Scaffold: write a plugin distribution that installs, registers and passes its own tests."""

from __future__ import annotations

import importlib.util
import keyword
import re
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template
from typing import Literal

from rlgym_llm.errors import UserError

__all__ = ["EnvKind", "scaffold"]

EnvKind = Literal["single", "multi", "tool"]
"""One turn, several turns, or Python functions as tools."""

_REWARD_NAME = re.compile(r"[a-z][a-z0-9_]*")
_ENV_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_VERSION = re.compile(r".+-v\d+")
_SUFFIX = ".tmpl"
_LONGEST_NAME = 80


def scaffold(
    what: Literal["reward", "env"], name: str, folder: Path, *, kind: EnvKind = "single"
) -> list[Path]:
    """Writes the distribution of a new plugin into ``folder`` and returns its files.

    The reward ``unit_tests`` becomes the distribution ``rlgym-llm-unit-tests`` with the package
    ``rlgym_llm_unit_tests``, as does the environment ``unit-tests``, which is of that ``kind``.
    Raises UserError for a reward that is no snake_case word, an environment that is no kebab-case
    one, a package that is installed already, and a folder that is in use; then nothing is written.
    """
    _check_name(what, name)
    if len(name) > _LONGEST_NAME:
        raise UserError(f"a name of {len(name)} characters; at most {_LONGEST_NAME} are taken")
    words = _words(name)
    if importlib.util.find_spec(words["package"]) is not None:
        raise UserError(f"the package {words['package']} is installed already; take another name")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is in use; name another folder with --output")
    root = resources.files("rlgym_llm") / "templates" / what
    roots = [root] if what == "reward" else [root / "shared", root / kind]
    written = []
    for parts, template in (found for root in roots for found in _templates(root)):
        path = folder.joinpath(*(words["package"] if part == "package" else part for part in parts))
        text = Template(template.read_text("utf-8")).substitute(words)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UserError(f"{path}: {error.strerror or error}") from error
        written.append(path)
    return written


def _check_name(what: Literal["reward", "env"], name: str) -> None:
    if what == "reward":
        if not _REWARD_NAME.fullmatch(name) or keyword.iskeyword(name):
            raise UserError(
                f"reward name {name!r} is no snake_case word, such as brevity or unit_tests"
            )
    elif _VERSION.fullmatch(name):
        raise UserError(f"environment name {name!r} holds a version; that belongs in its EnvSpec")
    elif not _ENV_NAME.fullmatch(name):
        raise UserError(
            f"environment name {name!r} is no kebab-case word, such as countdown or guess-word"
        )


def _words(name: str) -> dict[str, str]:
    """What the templates ask for."""
    parts = re.split("[-_]", name)
    return {
        "name": name,
        "dashed": "-".join(parts),
        "package": f"rlgym_llm_{'_'.join(parts)}",
        "class_name": "".join(part.capitalize() for part in parts),
    }


def _templates(root: Traversable) -> list[tuple[tuple[str, ...], Traversable]]:
    found: list[tuple[tuple[str, ...], Traversable]] = []
    for item in sorted(root.iterdir(), key=lambda item: item.name):
        if item.is_dir():
            found += [((item.name, *parts), template) for parts, template in _templates(item)]
        elif item.name.endswith(_SUFFIX):
            found.append(((item.name.removesuffix(_SUFFIX),), item))
    return found
