import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import get_args

import pytest

from rlgym_llm.errors import UserError
from rlgym_llm.scaffold import EnvKind, scaffold


def test_the_files(tmp_path):
    folder = tmp_path / "new"
    written = scaffold("reward", "unit_tests", folder)
    names = sorted(str(path.relative_to(folder)) for path in written)
    assert names == [
        "README.md",
        "pyproject.toml",
        "rlgym_llm_unit_tests/__init__.py",
        "rlgym_llm_unit_tests/reward.py",
        "tests/test_reward.py",
    ]
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert project["name"] == "rlgym-llm-unit-tests"
    assert project["entry-points"]["rlgym_llm"] == {"unit_tests": "rlgym_llm_unit_tests"}
    assert "class UnitTests(Reward)" in (folder / "rlgym_llm_unit_tests/reward.py").read_text()
    assert not any("$" in path.read_text() for path in written)


def test_a_folder_in_use_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="is in use"):
        scaffold("reward", "brevity", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


KINDS = get_args(EnvKind)
FILES = {
    "single": ["env.py", "train.jsonl", "val.jsonl"],
    "multi": ["env.py"],
    "tool": ["env.py"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_files_of_an_environment(kind, tmp_path):
    folder = tmp_path / "new"
    written = scaffold("env", "guess-word", folder, kind=kind)
    package = "rlgym_llm_guess_word"
    names = sorted(str(path.relative_to(folder)) for path in written)
    assert names == [
        "README.md",
        "pyproject.toml",
        *(f"{package}/{name}" for name in ["__init__.py", *FILES[kind]]),
        "tests/test_env.py",
    ]
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert project["name"] == "rlgym-llm-guess-word"
    assert project["entry-points"]["rlgym_llm"] == {"guess-word": package}
    assert "class GuessWordEnv(" in (folder / package / "env.py").read_text()
    assert not any("$" in path.read_text() for path in written)


@pytest.mark.parametrize("name", ["", "Bad", "2nd", "a_b", "a--b", "-a", "a-", "../up", "a b", "ä"])
def test_names_that_are_no_environment(name, tmp_path):
    with pytest.raises(UserError, match="kebab-case"):
        scaffold("env", name, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_version_is_no_part_of_a_name(tmp_path):
    # Gymnasium and `rlgym_llm.make` would read guess-word-v2 as version 2 of guess-word.
    with pytest.raises(UserError, match="holds a version"):
        scaffold("env", "guess-word-v2", tmp_path / "new")


@pytest.mark.parametrize("what", ["reward", "env"])
def test_a_package_that_is_there_is_not_shadowed(what, tmp_path):
    # The project's own environments are the package rlgym_llm_envs.
    with pytest.raises(UserError, match="rlgym_llm_envs is installed already"):
        scaffold(what, "envs", tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["", "Bad", "2nd", "class", "a-b", "../up", "a b"])
def test_names_that_are_no_module(name, tmp_path):
    with pytest.raises(UserError, match="snake_case"):
        scaffold("reward", name, tmp_path / "new")
    assert not (tmp_path / "new").exists()


class Installed:
    """A distribution that was written, built and installed into a folder of its own."""

    def __init__(self, folder: Path, site: Path) -> None:
        self._tests = folder / "tests"
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site]
        subprocess.run(
            [*install, "--no-build-isolation", folder], check=True, capture_output=True, timeout=120
        )
        path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
        self._environment = {**os.environ, "PYTHONPATH": path}

    def run(self, program: str, *arguments: str) -> str:
        """Runs a program of this Python's beside the tests; what it printed."""
        done = subprocess.run(
            [Path(sys.executable).with_name(program), *arguments],
            cwd=self._tests,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def test_a_reward_installs_and_passes_its_own_tests(tmp_path):
    scaffold("reward", "brevity_bonus", tmp_path / "new")
    installed = Installed(tmp_path / "new", tmp_path / "site")
    assert "2 passed" in installed.run("pytest", "-q", "-p", "no:cacheprovider")
    shown = installed.run("rlgym", "reward", "show", "brevity_bonus")
    assert "from rlgym_llm_brevity_bonus.reward:BrevityBonus" in shown


@pytest.mark.parametrize("kind", KINDS)
def test_an_environment_installs_registers_and_passes_its_own_tests(kind, tmp_path):
    name = f"scaffolded-{kind}"
    scaffold("env", name, tmp_path / "new", kind=kind)
    installed = Installed(tmp_path / "new", tmp_path / "site")
    assert re.search(r"\d passed in", installed.run("pytest", "-q", "-p", "no:cacheprovider"))
    row = f"rlgym_llm/{name}-v0 +plugin '{name}' of rlgym-llm-{name} 0.1.0"
    assert re.search(row, installed.run("rlgym", "env", "list"))


SLOW_KINDS = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("multi", "tool")]


@pytest.mark.parametrize("kind", ["single", *SLOW_KINDS])
def test_an_environment_trains_as_its_readme_says(kind, tmp_path):
    name = f"scaffolded-{kind}"
    scaffold("env", name, tmp_path / "new", kind=kind)
    installed = Installed(tmp_path / "new", tmp_path / "site")
    readme = (tmp_path / "new" / "README.md").read_text()
    [line] = re.findall(r"^rlgym-train (.*)$", readme, re.MULTILINE)
    trained = installed.run("rlgym-train", *shlex.split(line))
    assert "step 2/2" in trained
    assert f"on {name}: " in trained
