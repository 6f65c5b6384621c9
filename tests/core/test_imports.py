from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "ray", "vllm", "transformers", "datasets", "pandas", "pyarrow")
PLUGINS = ("rlgym_llm_envs", "rlgym_llm_rewards", "rlgym_llm_trainers")
PUBLIC_NAMES = "import rlgym_llm; [getattr(rlgym_llm, name) for name in rlgym_llm.__all__]"


def loaded_by(program: str) -> set[str]:
    """Top-level packages that a fresh interpreter has loaded after the program."""
    program += "; import sys; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_the_core_is_light() -> None:
    loaded = loaded_by("import rlgym_llm")
    assert "rlgym_llm" in loaded
    assert not loaded & {*HEAVY, *PLUGINS, "gymnasium", "numpy", "pydantic", "pluggy", "rich"}


def test_every_public_name_is_light() -> None:
    loaded = loaded_by(PUBLIC_NAMES)
    assert "gymnasium" in loaded  # TextEnv is a gymnasium.Env
    assert not loaded & {*HEAVY, *PLUGINS}


def test_every_module_of_the_core_is_light() -> None:
    walk = (
        "import importlib, pkgutil, rlgym_llm; "
        "[importlib.import_module(m.name) "
        "for m in pkgutil.walk_packages(rlgym_llm.__path__, 'rlgym_llm.') "
        "if not m.name.endswith('__main__')]"
    )
    assert not loaded_by(walk) & {*HEAVY, *PLUGINS}


@pytest.mark.parametrize("package", PLUGINS)
def test_a_plugin_package_is_light(package: str) -> None:
    loaded = loaded_by(f"import {package}")
    assert package in loaded
    assert not loaded & {*HEAVY, *(set(PLUGINS) - {package}), "gymnasium", "numpy"}


def test_listing_everything_is_light() -> None:
    program = (
        "from rlgym_llm import Kind, Plugins; p = Plugins.discover(); [p.table(k) for k in Kind]"
    )
    loaded = loaded_by(program)
    assert set(PLUGINS) <= loaded
    assert not loaded & {*HEAVY, "gymnasium", "numpy"}


def test_importing_the_core_is_quick() -> None:
    # CPU time, the least of three: what else the machine does is none of ours. It takes about
    # 0.1 s, and Gymnasium with NumPy alone would take 0.25 s.
    program = "import rlgym_llm, time; print(time.process_time())"
    runs = [subprocess.check_output([sys.executable, "-c", program]) for _ in range(3)]
    assert min(map(float, runs)) < 0.3
