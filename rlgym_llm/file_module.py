"""Imports a Python file that is no part of any package: a plugin, or a function of the user's."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

__all__ = ["import_file"]


def import_file(path: Path) -> ModuleType:
    """The module of ``path``, executed once a process, under a name that is the same in every one.

    So ``"module:attr"`` resolves anywhere, and files of the same name do not meet. Raises
    ImportError where the file is no Python, and whatever the file itself raises.
    """
    path = path.resolve()
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:12]
    name = f"rlgym_file_{re.sub(r'[^A-Za-z0-9_]', '_', path.stem)}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    # Before it runs: dataclasses and pickle look a class's module up there.
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
