from __future__ import annotations

import ast
import importlib
import pkgutil
from pathlib import Path

import pytest

import rlgym_llm

SOURCE = Path(rlgym_llm.__file__)


def type_checked_names() -> set[str]:
    """Names that type checkers see: those under ``if TYPE_CHECKING``."""
    names: set[str] = set()
    for node in ast.parse(SOURCE.read_text()).body:
        if isinstance(node, ast.If):
            for statement in node.body:
                if isinstance(statement, ast.ImportFrom):
                    names.update(alias.asname or alias.name for alias in statement.names)
                elif isinstance(statement, ast.AnnAssign):
                    assert isinstance(statement.target, ast.Name)
                    names.add(statement.target.id)
    return names


def test_all_is_what_type_checkers_see_and_what_is_imported() -> None:
    assert set(rlgym_llm.__all__) == type_checked_names()
    assert set(rlgym_llm.__all__) == {*rlgym_llm._MODULES, "__version__"}
    assert len(rlgym_llm.__all__) == len(set(rlgym_llm.__all__))


@pytest.mark.parametrize("name", rlgym_llm.__all__)
def test_every_name_is_its_modules_public_name(name: str) -> None:
    value = getattr(rlgym_llm, name)
    if name != "__version__":
        module = importlib.import_module(rlgym_llm._MODULES[name])
        assert value is getattr(module, name)
        assert name in module.__all__


def test_dir_shows_them_and_unknown_names_raise() -> None:
    assert set(rlgym_llm.__all__) <= set(dir(rlgym_llm))
    with pytest.raises(AttributeError, match="module 'rlgym_llm' has no attribute 'Rewrad'"):
        _ = rlgym_llm.Rewrad  # type: ignore[attr-defined]


def test_no_name_is_that_of_a_module() -> None:
    # Importing a module binds it in its package, over a function of the same name.
    modules = {module.name for module in pkgutil.iter_modules(rlgym_llm.__path__)}
    assert not modules & set(rlgym_llm.__all__)


def test_public_names_are_documented() -> None:
    for name in rlgym_llm.__all__:
        value = getattr(rlgym_llm, name)
        if isinstance(value, type) or callable(value):
            assert (value.__doc__ or "").strip(), name


def test_every_module_has_all_of_its_own() -> None:
    for module in pkgutil.iter_modules(rlgym_llm.__path__, "rlgym_llm."):
        if module.ispkg:
            continue
        found = importlib.import_module(module.name)
        assert all(hasattr(found, name) for name in found.__all__), module.name
