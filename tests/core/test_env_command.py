"""``rlgym env``: list, show, new and try."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from rlgym_llm.cli import main

HIDDEN_NUMBER = '''
from rlgym_llm import EnvSpec, GeneratorTasks, Task, TextEnv, TurnOutcome, hookimpl
from rlgym_llm.types import Message


def make_task(index, seed):
    return Task(prompt=f"Find number {index}'s secret.", answer=str(index + 3))


class HiddenNumberEnv(TextEnv):
    """Find a number."""

    accuracy = "env"

    def __init__(self, *, num_tasks=4, max_turns=3, **options):
        tasks = GeneratorTasks(make_task, num_tasks=num_tasks)
        super().__init__(tasks=tasks, max_turns=max_turns, **options)

    def advance(self, action):
        if action.text == "break":
            raise RuntimeError("it broke")
        if action.text == self.task.answer:
            return TurnOutcome(env_reward=1.0, terminated=True)
        return TurnOutcome(reply=(Message(role="user", content="No."),), env_reward=-0.25)


@hookimpl
def rlgym_register(kind):
    if kind != "env":
        return []
    return [EnvSpec(name="hidden-number", entry_point=f"{__name__}:HiddenNumberEnv")]
'''


@pytest.fixture
def plugin(tmp_path):
    path = tmp_path / "hidden_number.py"
    path.write_text(HIDDEN_NUMBER)
    return str(path)


@pytest.fixture
def play(plugin, monkeypatch, capsys):
    """Plays with lines on stdin; returns the exit code and what was printed."""

    def run(lines, *flags, env="hidden-number"):
        monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
        code = main(["--plugin", plugin, "env", "try", env, *flags])
        said = capsys.readouterr()
        return code, said.out if code == 0 else said.out + said.err

    return run


def test_an_episode_by_hand_shows_every_turn_and_the_reward_by_component(play):
    code, out = play("1\n5\n", "--index", "2", "--seed", "7")
    assert code == 0
    assert out.splitlines() == [
        "hidden-number, task 2 of 4, seed 7",
        "",
        "Find number 2's secret.",
        "> 1",
        "[user] No.",
        "(the environment gives -0.25)",
        "> 5",
        "(the environment gives 1)",
        "",
        "the task is over after 2 turns; the answer is '5'",
        "reward 0.75",  # -0.25 + 1
        "component  raw   weight  adds  status",
        "env        0.75  1       0.75  ok",
    ]


def test_the_turns_run_out(play):
    code, out = play("1\n2\n3\n4\n", "--index", "0", "--option", "max_turns=2")
    assert code == 0
    assert "a budget ran out after 2 turns" in out
    assert "reward -0.5" in out
    assert "> 3" not in out


@pytest.mark.parametrize("lines", ["", "1\n"])
def test_the_end_of_the_input_leaves_the_episode(play, lines):
    code, out = play(lines)
    assert code == 0
    assert out.endswith("\nleft before the end: nothing is scored\n")


def test_a_backslash_goes_on_in_the_next_line(play):
    _, out = play("one\\\ntwo\n", "--option", "max_turns=1")
    assert "> one\\\n. two\n" in out
    # Two lines are one turn, and with one turn the budget is spent.
    assert "a budget ran out after 1 turn" in out


def test_a_last_line_without_its_newline_and_windows_ends_count(play):
    assert "the task is over after 1 turn" in play("3", "--index", "0")[1]
    assert "the task is over after 1 turn" in play("3\r\n", "--index", "0")[1]


def test_a_seed_repeats_the_task_and_without_one_it_is_told(play):
    heads = [play("", "--seed", seed)[1].splitlines()[0] for seed in ("5", "5")]
    assert heads[0] == heads[1]
    told = play("")[1].splitlines()[0]
    assert told == play("", "--seed", told.rpartition(" ")[2])[1].splitlines()[0]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--index", "4"], "task 4 does not exist: indices are 0 to 3"),
        (["--index", "-1"], "task -1 does not exist: indices are 0 to 3"),
        (["--seed", "-1"], "--seed -1: give 0 or more"),
        (["--max-tokens", "0"], "--max-tokens 0: give at least 1"),
        (["--option", "num_task=2"], "did you mean 'num_tasks'?"),
        (["--option", "num_tasks"], "--option 'num_tasks' is no KEY=VALUE"),
        (["--option", "a=1", "--option", "a=2"], "--option a is given twice"),
        (["--model", "./nowhere"], "--model ./nowhere: no such folder"),
    ],
)
def test_what_is_wrong_is_one_line(play, flags, message):
    code, out = play("1\n", *flags)
    assert code == 2
    assert message in out
    assert len(out.splitlines()) == 1


def test_an_unknown_id_names_the_nearest(play):
    code, out = play("", env="hidden-numbr")
    assert code == 2
    assert "did you mean 'hidden-number'?" in out


def test_the_starter_model_plays_the_episode_that_a_person_would(play):
    flags = ["--option", "source=starter", "--seed", "3"]
    _, by_hand = play("#### 1\n", *flags, env="math-gsm8k")
    code, out = play("", *flags, "--model", "starter", "--max-tokens", "64", env="math-gsm8k")
    assert code == 0
    opening = by_hand[: by_hand.index("> ")]
    assert out.startswith(opening)
    assert [line.split()[0] for line in out.splitlines()[-3:]] == ["math", "format", "lenient"]


def test_a_reply_of_the_model_that_its_budget_cut_is_told(play):
    flags = ["--option", "source=starter", "--model", "starter", "--max-tokens", "2"]
    _, out = play("", *flags, env="math-gsm8k")
    assert "(cut after 2 tokens)" in out
    assert "a budget ran out after 1 turn" in out


def test_an_episode_that_fails_under_a_model_is_told_and_is_1(play, plugin):
    path = Path(plugin)
    path.write_text(path.read_text().replace('action.text == "break"', "True"))
    code, out = play("", "--seed", "3", "--model", "starter")
    assert code == 1
    assert "the episode failed (environment_error)" in out
    assert "RuntimeError: it broke" in out


def test_an_environment_that_breaks_by_hand_keeps_its_traceback(play):
    with pytest.raises(RuntimeError, match="it broke"):
        play("1\nbreak\n")


def test_what_is_no_text_env_is_refused(tmp_path, capsys):
    path = tmp_path / "plain.py"
    path.write_text(
        "import gymnasium\n"
        "from rlgym_llm import EnvSpec, hookimpl\n"
        "class Plain(gymnasium.Env):\n"
        "    observation_space = action_space = gymnasium.spaces.Discrete(2)\n"
        "@hookimpl\n"
        "def rlgym_register(kind):\n"
        "    spec = EnvSpec(name='plain', entry_point=f'{__name__}:Plain')\n"
        "    return [spec] if kind == 'env' else []\n"
    )
    assert main(["env", "try", "plain", "--plugin", str(path)]) == 2
    assert "environment 'plain': Plain is no TextEnv" in capsys.readouterr().err


def test_the_terminal_itself(plugin):
    """A real terminal: the mark is shown, and Ctrl-D ends without a traceback."""
    parent, child = pty.openpty()
    arguments = ["--plugin", plugin, "env", "try", "hidden-number", "--index", "0"]
    script = f"import sys; from rlgym_llm.cli import main; sys.exit(main({arguments}))"
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=child,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    os.close(child)
    os.write(parent, b"1\n\x04")
    out, err = process.communicate(timeout=60)
    os.close(parent)
    assert process.returncode == 0, err
    assert b"[user] No." in out
    assert b"left before the end" in out


def test_new_writes_a_distribution_of_each_kind(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for kind in ("single", "multi", "tool"):
        assert main(["env", "new", f"word-{kind}", "--kind", kind]) == 0
        out = capsys.readouterr().out
        assert f"rlgym-llm-word-{kind}/rlgym_llm_word_{kind}/env.py" in out
        assert out.endswith(
            f"Next: cd rlgym-llm-word-{kind} && pip install -e '.[test]' && pytest\n"
        )
    assert main(["env", "new", "word-single"]) == 2
    assert "rlgym-llm-word-single is in use" in capsys.readouterr().err
    assert main(["env", "new", "word-single", "--output", "elsewhere"]) == 0


def test_new_refuses_a_name_that_is_taken(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["env", "new", "math-gsm8k"]) == 2
    assert "environment 'math-gsm8k' is there already, by plugin 'envs'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "argv",
    [["env"], ["env", "show"], ["env", "try"], ["env", "new"], ["env", "list", "x"]],
    ids=" ".join,
)
def test_what_an_action_needs(argv, capsys):
    assert main(argv) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
