"""Every example runs, and says what it should."""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path

import pytest

import rlgym_llm
from rlgym_llm import Plugins
from rlgym_llm.check_env import check_env
from rlgym_llm.check_reward import check_reward

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(monkeypatch, name, *arguments):
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def test_every_example_is_tested():
    assert {path.name for path in EXAMPLES.glob("*.py")} == {
        "compose_rewards.py",
        "my_plugin.py",
        "score_offline.py",
    }


def test_the_readme_composes_as_it_says():
    readme = (EXAMPLES.parent / "README.md").read_text(encoding="utf-8")
    block = next(b for b in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "make(" in b)
    found = {}
    exec(block, found)
    assert found["reward"] == pytest.approx(1.18)
    assert found["info"]["components"] == {"correct": 1.0, "format": 1.0, "brevity": 20.0}


def test_compose_rewards(monkeypatch, capsys):
    run(monkeypatch, "compose_rewards.py")
    out = capsys.readouterr().out
    # 28 characters at -0.001 each: 1.0 + 0.2 - 0.028; and 17 of them: -0.017.
    assert "reward 1.172" in out
    assert "reward -0.017" in out


def test_score_offline(monkeypatch, capsys, tmp_path):
    rows = [
        {"prompt": "2 + 3?", "completion": "2 + 3 = 5\n#### 5", "answer": "5"},
        {"prompt": "2 + 3?", "completion": "It is 5.", "answer": "5"},
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run(monkeypatch, "score_offline.py", path, "--reward", "math", "--reward", "format=0.2")
    scored = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["reward"] for row in scored] == pytest.approx([1.2, 1.0])
    assert [row["completion"] for row in scored] == [row["completion"] for row in rows]


def test_my_plugin_passes_the_shipped_contracts():
    plugins = Plugins.discover([EXAMPLES / "my_plugin.py"])
    check_env(rlgym_llm.make("reverse-text", plugins=plugins))
    check_reward(plugins.load(plugins.rewards()["reversed"]))
