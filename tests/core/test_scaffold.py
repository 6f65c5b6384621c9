import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from rlgym_llm.errors import UserError
from rlgym_llm.scaffold import scaffold


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


@pytest.mark.parametrize("name", ["", "Bad", "2nd", "class", "a-b", "../up", "a b"])
def test_names_that_are_no_module(name, tmp_path):
    with pytest.raises(UserError, match="snake_case"):
        scaffold("reward", name, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_it_installs_and_passes_its_own_tests(tmp_path):
    folder = tmp_path / "new"
    scaffold("reward", "brevity_bonus", folder)
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site]
    subprocess.run(
        [*install, "--no-build-isolation", folder], check=True, capture_output=True, timeout=120
    )
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", *command],
            cwd=folder / "tests",
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
        )

    tests = run("pytest", "-q", "-p", "no:cacheprovider")
    assert tests.returncode == 0, tests.stdout
    assert "2 passed" in tests.stdout
    shown = subprocess.run(
        [Path(sys.executable).with_name("rlgym"), "reward", "show", "brevity_bonus"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "from rlgym_llm_brevity_bonus.reward:BrevityBonus" in shown.stdout
