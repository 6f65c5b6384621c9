"""Imports a Python file that is no part of any package: a plugin, or a function of the user's."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import re
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

from rlgym_llm.working_folder import inside

__all__ = ["import_file", "import_named"]

_SOURCE = "__rlgym_source__"
"""Of a module: the bytes that were executed."""


def import_named(where: str) -> ModuleType:
    """The module that ``package.module`` names, or the file that ``folder/file.py`` does.

    >>> import_named("rlgym_llm.types").__name__
    'rlgym_llm.types'
    """
    return import_file(Path(where)) if where.endswith(".py") else importlib.import_module(where)


def import_file(path: Path) -> ModuleType:
    """The module of ``path``, executed once a process, under a name that is the same in every one.

    A file that has changed since is executed again, as a new module of that name: what is built
    from here on is of the new one, what was built before stays as it was. Modules that the file
    imports are not looked at. So ``"module:attr"`` resolves anywhere, and files of the same name
    do not meet. A directory that the file changes to is left again. Raises ImportError where the
    file is no Python, and whatever the file itself raises.
    """
    path = path.resolve()
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:12]
    name = f"rlgym_file_{re.sub(r'[^A-Za-z0-9_]', '_', path.stem)}_{digest}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or not isinstance(spec.loader, SourceFileLoader):
        raise ImportError(f"{path} is no Python file")
    source = path.read_bytes()
    before = sys.modules.get(name)
    if before is not None and vars(before).get(_SOURCE) == source:
        return before
    # Before it runs: dataclasses and pickle look a class's module up there.
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    vars(module)[_SOURCE] = source
    try:
        # Compiled here, for compiled files are told from stale ones by whole seconds and sizes.
        code = spec.loader.source_to_code(source, str(path))
        with inside(None):
            exec(code, vars(module))
    except BaseException:
        del sys.modules[name]
        if before is not None:  # for what was built of it
            sys.modules[name] = before
        raise
    return module
