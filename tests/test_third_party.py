"""A stranger's distribution, written from the pages alone in an environment of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_PATH = re.compile(r"# ([\w./]+\.py)\n")


def blocks(page: str) -> list[tuple[str, str]]:
    """Language and text of every fenced block of a page."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    return [(found[1], found[2]) for found in _FENCE.finditer(text)]


def block(page: str, start: str) -> str:
    """The one block of a page that opens like this."""
    [found] = [text for _, text in blocks(page) if text.startswith(start)]
    return found


class Newcomer:
    """A fresh virtual environment with the project's wheel, and a folder to work in.

    What the project depends on is borrowed from this Python, since torch is large; the project
    itself is not: a path in a ``.pth`` file brings no ``.pth`` files of its own.
    """

    def __init__(self, folder: Path) -> None:
        self.work = folder / "work"
        self.work.mkdir()
        self._bin = folder / "venv" / "bin"
        venv.create(folder / "venv", with_pip=True)
        python = self._bin / "python"
        ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
        site = subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True)
        borrowed = Path(site.stdout.strip()) / "borrowed.pth"
        borrowed.write_text(sysconfig.get_path("purelib") + "\n")
        pytest_program = self._bin / "pytest"
        pytest_program.write_text(f'#!/bin/sh\nexec {python} -m pytest "$@"\n')
        pytest_program.chmod(0o755)
        self.run(f"pip wheel --quiet --no-deps --wheel-dir ../dist {ROOT}")
        self.run("pip install --quiet --no-deps ../dist/rlgym_llm-*.whl")

    def run(self, commands: str) -> str:
        """Runs a block of a page as bash does; what it printed."""
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))},
            "PATH": f"{self._bin}:{os.environ['PATH']}",
            "PIP_NO_BUILD_ISOLATION": "0",  # pip's word for: there is none
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "HF_HUB_OFFLINE": "1",
        }
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=self.work,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def write(self, path: str, text: str) -> None:
        """Writes a file as an editor would."""
        (self.work / path).write_text(text, "utf-8")

    def rewards(self, path: str) -> list[float]:
        """The rewards in a file that was scored."""
        lines = (self.work / path).read_text("utf-8").splitlines()
        return [json.loads(line)["rlgym"]["reward"] for line in lines]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_distribution_written_from_the_pages_alone(tmp_path: Path) -> None:
    newcomer = Newcomer(tmp_path)
    where = newcomer.run("python -c 'import rlgym_llm; print(rlgym_llm.__file__)'")
    assert where.startswith(str(tmp_path / "venv"))
    assert "opposites" not in newcomer.run("rlgym env list")

    # The environment and the reward as two pages show them, and replies to score.
    newcomer.write("opposites.py", block("environments.md", "# opposites.py"))
    newcomer.write("one_word.py", block("write_a_reward.md", "# one_word.py"))
    newcomer.write("make_replies.py", block("write_a_reward.md", "import json"))
    newcomer.run("python make_replies.py")

    # The third page from top to bottom.
    printed = ""
    for language, text in blocks("distribution.md"):
        if language == "python" and (path := _PATH.match(text)):
            newcomer.write(f"rlgym-llm-opposites/{path[1]}", text)
        elif language == "toml":
            assert text in (newcomer.work / "rlgym-llm-opposites/pyproject.toml").read_text()
        else:
            assert language in ("", "bash"), language
            printed += newcomer.run(re.sub(r"^\$ ", "", text, flags=re.MULTILINE))

    assert "1 passed" in printed
    owner = "plugin 'opposites' of rlgym-llm-opposites 0.1.0"
    assert re.search(f"rlgym_llm/opposites-v0 +{owner} +Opposites of words.", printed)
    assert newcomer.rewards("scored.jsonl") == [1.0, 0.0]
    # One word of one, and one of three.
    assert newcomer.rewards("both.jsonl") == pytest.approx([1 + 0.1, 0.1 / 3])
    assert "step 2/2" in printed
    assert re.search(r"one_word \d", printed)
    for name in ("env", "one_word"):
        ask = f"import rlgym_llm_opposites.{name} as found; print(found.__file__)"
        assert newcomer.run(f"python -c '{ask}'").startswith(str(tmp_path / "venv"))
