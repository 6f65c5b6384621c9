"""Files of the user's: run once, run again where they have changed, and never from a stale copy."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path

import pytest

from rlgym_llm.file_module import import_file
from rlgym_llm.plugins import Plugins
from rlgym_llm.rewards import RewardContext, build_reward
from rlgym_llm.score import score_rollouts
from rlgym_llm.specs import Kind
from rlgym_llm.types import Completion, Rollout, Task, Turn

ROLLOUT = Rollout(
    id="r",
    task=Task(prompt="?"),
    group_id="g",
    sample_index=0,
    seed=0,
    turns=(Turn(new_prompt_token_ids=(), completion=Completion(text="a")),),
)

PLUGIN = """
from rlgym_llm import RewardSpec, hookimpl, reward

@reward("edited")
def edited(completion):
    return {value}

@hookimpl
def rlgym_register(kind):
    edited = RewardSpec(name="edited", entry_point=f"{{__name__}}:edited")
    return [edited] if kind == "reward" else []
"""


def test_a_file_runs_once_while_it_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("class A: pass")
    module = import_file(path)
    os.utime(path, (1, 1))  # its time alone says nothing
    assert import_file(path) is module
    assert pickle.loads(pickle.dumps(module.A)) is module.A


def test_a_file_that_has_changed_runs_again(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    for value in (1, 2, 3):  # of the same length, and within the same second
        path.write_text(f"def f(): return {value}")
        os.utime(path, (1, 1))
        assert import_file(path).f() == value
    assert list(tmp_path.iterdir()) == [path]  # nothing compiled is left beside it


def test_what_was_built_before_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("N = 1\ndef f(): return N")
    before = import_file(path)
    path.write_text("N = 2\ndef f(): return N")
    after = import_file(path)
    assert (before.f(), after.f()) == (1, 2)
    assert before.__name__ == after.__name__
    assert sys.modules[after.__name__] is after


def test_a_change_that_does_not_run_is_told_and_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("class A: pass")
    before = import_file(path)
    path.write_text("class A(: pass")
    for _ in range(2):
        with pytest.raises(SyntaxError):
            import_file(path)
    assert pickle.loads(pickle.dumps(before.A)) is before.A
    path.write_text("A = 3")
    assert import_file(path).A == 3


def test_a_plugin_and_a_function_are_those_of_the_file_as_it_is(tmp_path: Path) -> None:
    plugin, mine = tmp_path / "plugin.py", tmp_path / "mine.py"
    for value in (0.25, 0.75):
        plugin.write_text(PLUGIN.format(value=value))
        mine.write_text(f"def score(completion): return {value}")
        plugins = Plugins.discover([plugin])
        found = [
            build_reward(plugins.load(plugins.get(Kind.REWARD, "edited"))),
            build_reward(
                plugins.load(plugins.get(Kind.REWARD, "function")), {"path": f"{mine}:score"}
            ),
        ]
        for built in found:
            assert score_rollouts(built, [ROLLOUT], RewardContext())[0].value == value


def test_a_folder_that_a_file_changes_to_is_left_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("import os\nos.chdir('/')\nHERE = os.getcwd()")
    assert import_file(Path("mine.py")).HERE == "/"
    assert Path.cwd() == tmp_path.resolve()


def test_what_is_no_python_is_said(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(ImportError, match="is no Python file"):
        import_file(tmp_path / "mine.txt")
    with pytest.raises(FileNotFoundError):
        import_file(tmp_path / "none.py")
