from __future__ import annotations

import io
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest

from rlgym_llm.cli import guarded, main
from rlgym_llm.commands.table import print_table
from rlgym_llm.errors import RewardError, UserError
from rlgym_llm.plugins import Plugins

MINE = """
    from rlgym_llm import CommandSpec, RewardSpec, hookimpl, reward

    @reward("brevity", range=(0, 2), needs=("answer",))
    def brevity(completion, answer, *, limit: int = 10):
        "2 where the reply is short."
        return 2.0 * (len(completion) <= limit)

    def hello(argv):
        print("hello", *argv)
        return 5

    @hookimpl
    def rlgym_register(kind):
        if kind == "command":
            return [CommandSpec(name="hello", entry_point=f"{__name__}:hello", description="hi")]
        if kind == "reward":
            return [RewardSpec(name="brevity", entry_point=f"{__name__}:brevity")]
        return []
"""

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def mine(tmp_path: Path) -> str:
    path = tmp_path / "mine.py"
    path.write_text(textwrap.dedent(MINE))
    return str(path)


@pytest.fixture
def broken(tmp_path: Path) -> str:
    path = tmp_path / "broken.py"
    path.write_text("1 / 0\n")
    return str(path)


def refuse(argv: Sequence[str], capsys: Captured) -> str:
    """The one line that a command line which cannot work prints."""
    assert main(argv) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err


class TestHelp:
    @pytest.mark.parametrize("argv", [[], ["--help"], ["-h"]])
    def test_lists_every_command(self, argv: list[str], capsys: Captured) -> None:
        with pytest.raises(SystemExit) as ended:
            main(argv)
        assert ended.value.code == 0
        out = capsys.readouterr().out
        assert out.startswith("usage: rlgym [--help] [--version] [--plugin PATH] COMMAND ...")
        for command in ("env", "plugins", "reward", "train"):
            assert f"\n  {command} " in out

    def test_lists_those_of_a_file(self, mine: str, capsys: Captured) -> None:
        with pytest.raises(SystemExit):
            main(["--plugin", mine, "--help"])
        assert "\n  hello    hi\n" in capsys.readouterr().out

    def test_broken_plugins_do_not_stop_it(self, broken: str, capsys: Captured) -> None:
        with pytest.raises(SystemExit) as ended:
            main(["--plugin", broken, "--help"])
        assert ended.value.code == 0
        assert f"broken, see `rlgym plugins`: plugin {broken}" in capsys.readouterr().out

    def test_version(self, capsys: Captured) -> None:
        with pytest.raises(SystemExit) as ended:
            main(["--version"])
        assert ended.value.code == 0
        assert capsys.readouterr().out.startswith("rlgym_llm 0.")

    def test_imports_nothing_but_the_specs(self) -> None:
        program = """
            import sys
            from rlgym_llm.cli import main
            try:
                main(["--help"])
            except SystemExit:
                pass
            heavy = {"numpy", "gymnasium", "rich", "pydantic", "torch"} & set(sys.modules)
            ours = [m for m in sys.modules if m.startswith("rlgym_llm_") and "." in m]
            ours += [m for m in sys.modules if m.startswith("rlgym_llm.commands")]
            print(sorted(heavy), ours, file=sys.stderr)
        """
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr.strip() == "[] []"


class TestRefusals:
    def test_unknown_command(self, capsys: Captured) -> None:
        message = refuse(["rewrad"], capsys)
        assert message.startswith("rlgym: unknown command 'rewrad'; did you mean 'reward'?")

    def test_unknown_reward(self, capsys: Captured) -> None:
        message = refuse(["reward", "show", "mth"], capsys)
        assert message.startswith("rlgym: unknown reward 'mth'; did you mean 'math'?")

    def test_unknown_environment(self, capsys: Captured) -> None:
        assert "did you mean 'math-gsm8k'?" in refuse(["env", "show", "math-gsm"], capsys)

    @pytest.mark.parametrize(
        "argv",
        [
            ["reward", "show"],
            ["reward", "list", "math"],
            ["env", "lst"],
            ["env"],
            ["env", "list", "--colour"],
            ["--plug", "x.py", "env", "list"],
            ["plugins", "extra"],
        ],
    )
    def test_wrong_usage(self, argv: list[str], capsys: Captured) -> None:
        assert "--help)" in refuse(argv, capsys)

    def test_a_file_that_is_broken_or_gone(self, broken: str, capsys: Captured) -> None:
        message = refuse(["env", "list", "--plugin", broken], capsys)
        assert "ZeroDivisionError: division by zero; see `rlgym plugins --plugin" in message
        assert "does not exist" in refuse(["--plugin", "gone.py", "plugins"], capsys)


class TestCommands:
    def test_plugins(self, capsys: Captured) -> None:
        assert main(["plugins", "--strict"]) == 0
        out = capsys.readouterr().out
        assert "ok      plugin 'rewards' of rlgym-llm" in out
        assert "        reward: env, exact_match, format, function, judge, length, math" in out

    def test_plugins_with_a_broken_one(self, broken: str, capsys: Captured) -> None:
        assert main(["--plugin", broken, "plugins"]) == 0
        out = capsys.readouterr().out
        assert f"BROKEN  plugin {broken}" in out
        assert "        | ZeroDivisionError: division by zero" in out
        assert main(["plugins", "--plugin", broken, "--strict"]) == 1

    def test_plugins_with_a_clash(self, tmp_path: Path, mine: str, capsys: Captured) -> None:
        other = tmp_path / "other.py"
        other.write_text(Path(mine).read_text())
        argv = ["--plugin", mine, "--plugin", str(other), "plugins"]
        assert main(argv) == 0
        assert f"CLASH   reward 'brevity' is brought by plugin {mine} and" in (
            capsys.readouterr().out
        )
        assert main([*argv, "--strict"]) == 1

    def test_env_list(self, capsys: Captured) -> None:
        assert main(["env", "list"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].split() == ["id", "brought", "by", "what", "it", "is"]
        assert lines[1].split()[:5] == [
            "rlgym_llm/arithmetic-v0",
            "plugin",
            "'envs'",
            "of",
            "rlgym-llm",
        ]

    def test_env_show(self, capsys: Captured) -> None:
        assert main(["env", "show", "math-gsm8k"]) == 0
        out = capsys.readouterr().out
        assert out.startswith("rlgym_llm/math-gsm8k-v0\n  from rlgym_llm_envs.math_gsm8k:MathGsm8k")
        assert "  source: 'auto' | 'hub' | 'starter' = 'auto'\n" in out
        assert "  data: str | Path | None = None\n" in out
        assert "  few_shot: int = 0\n" in out
        assert "  defer_scoring: bool = False\n" in out  # an argument of the base class

    def test_reward_list(self, capsys: Captured) -> None:
        assert main(["reward", "list"]) == 0
        names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
        assert names == ["name", *sorted(Plugins.discover().rewards())]

    def test_reward_show_of_a_class(self, capsys: Captured) -> None:
        assert main(["reward", "show", "exact_match"]) == 0
        out = capsys.readouterr().out
        assert "  range 0 to 1, scope sample, backend inline\n  needs answer\n" in out
        assert "  strip: bool = True\n" in out
        assert "  unicode: 'NFC' | 'NFKC' | None = None\n" in out

    def test_reward_show_of_a_function(self, mine: str, capsys: Captured) -> None:
        assert main(["reward", "show", "--plugin", mine, "brevity"]) == 0
        out = capsys.readouterr().out
        said = "range 0 to 2, scope sample, backend inline\n  needs answer\n"
        assert f"{said}\n2 where the reply is short.\n" in out
        assert out.endswith("options:\n  limit: int = 10\n")

    def test_reward_show_says_what_the_options_make(self, capsys: Captured) -> None:
        assert main(["reward", "show", "length"]) == 0
        out = capsys.readouterr().out
        assert "  range 0 to inf, scope sample, backend inline (by its default options)\n" in out
        assert (
            "  unit: 'tokens' | 'chars' | 'words' | 'turns' = 'tokens'\n"
            "      What is counted; words are what white space parts.\n"
            "  max_len: int (> 0) | None = None\n"
        ) in out
        grouped = ["--option", "mode=group_relative", "--option", "correct=math"]
        assert main(["reward", "show", "length", *grouped]) == 0
        out = capsys.readouterr().out
        assert "  range -0.5 to 0.5, scope group, backend inline (by these options)\n" in out
        assert "  uses the components math\n" in out
        assert "has no option 'moed'" in refuse(
            ["reward", "show", "length", "--option", "moed=cosine"], capsys
        )

    def test_reward_show_of_one_that_needs_options(self, capsys: Captured) -> None:
        assert main(["reward", "show", "judge"]) == 0
        out = capsys.readouterr().out
        assert "scope sample, backend async\n" in out
        assert "is not built without: it needs base_url, model, criteria\n" in out
        assert main(["reward", "show", "function"]) == 0
        assert "  kwargs: Mapping[str, Any] = {}\n" in capsys.readouterr().out
        assert main(["reward", "show", "math"]) == 0
        out = capsys.readouterr().out  # its options are those of a base class
        assert "  extraction: 'strict' | 'standard' | 'lenient' = 'standard'\n      strict: " in out

    def test_reward_show_of_a_function_in_a_file(self, tmp_path: Path, capsys: Captured) -> None:
        path = tmp_path / "own.py"
        path.write_text(
            "from rlgym_llm import reward\n"
            "@reward('gap', scope='group', range=(-1, 1), uses=('math',))\n"
            "def gap(completions, components, *, limit: int | None = 3):\n"
            "    'How far apart.'\n"
            "    return [0.0 for _ in completions]\n"
        )
        assert main(["reward", "show", f"{path}:gap"]) == 0
        assert capsys.readouterr().out == (
            f"gap\n  from {path}:gap, by the reward 'function'\n"
            "  range -1 to 1, scope group, backend inline\n  uses the components math\n"
            "\nHow far apart.\n"
            "\narguments with defaults (its option kwargs):\n  limit: int | None = 3\n"
        )
        assert "did you mean 'gap'" in refuse(["reward", "show", f"{path}:gab"], capsys)

    def test_a_command_of_a_plugin(self, mine: str, capsys: Captured) -> None:
        assert main(["--plugin", mine, "hello", "--help", "x"]) == 5
        assert capsys.readouterr().out == f"hello --plugin {mine} --help x\n"


class TestTable:
    def test_plain_in_a_pipe(self, capsys: Captured) -> None:
        print_table(["a", "name"], [["long cell", "x"], ["y", ""]])
        assert capsys.readouterr().out == "a          name\nlong cell  x\ny\n"

    def test_no_markup_on_a_terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        terminal = io.StringIO()
        monkeypatch.setattr(terminal, "isatty", lambda: True)
        monkeypatch.setattr(sys, "stdout", terminal)
        print_table(["name"], [["[bold]x[/bold]"]])
        assert "[bold]x[/bold]" in terminal.getvalue()


class TestGuarded:
    def test_code_and_arguments_pass(self) -> None:
        assert guarded(lambda argv: len(argv), ["a", "b", "c"], "prog") == 3

    def test_user_error_is_one_line(self, capsys: Captured) -> None:
        def fail(argv: Sequence[str]) -> int:
            raise UserError("first\nsecond")

        assert guarded(fail, [], "prog") == 2
        assert capsys.readouterr().err == "prog: first second\n"

    def test_a_failure_on_the_way_is_one_line_with_its_notes(self, capsys: Captured) -> None:
        def fail(argv: Sequence[str]) -> int:
            error = RewardError("the judge is down")
            error.add_note("the model is in runs/x")
            raise error

        assert guarded(fail, [], "prog") == 1
        assert capsys.readouterr().err == "prog: the judge is down; the model is in runs/x\n"

    def test_interrupt(self, capsys: Captured) -> None:
        def fail(argv: Sequence[str]) -> int:
            raise KeyboardInterrupt

        assert guarded(fail, [], "prog") == 130
        assert capsys.readouterr().err == "prog: interrupted\n"

    def test_our_own_mistakes_keep_their_traceback(self) -> None:
        def fail(argv: Sequence[str]) -> int:
            raise ValueError("a bug")

        with pytest.raises(ValueError, match="a bug"):
            guarded(fail, [], "prog")

    def test_closed_pipe_is_silent(self) -> None:
        program = """
            import sys
            from rlgym_llm.cli import guarded
            def talk(argv):
                for _ in range(100_000):
                    print("line")
                return 0
            sys.exit(guarded(talk, [], "prog"))
        """
        with subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.readline()
            process.stdout.close()
            assert process.stderr.read() == b""
            assert process.wait() == 141


@pytest.mark.parametrize("close", [">&-", "</dev/null"])
def test_a_closed_descriptor_is_no_crash(close: str) -> None:
    command = f"'{sys.executable}' -c 'import sys; from rlgym_llm.cli import main; "
    command += f'sys.exit(main(["plugins"]))\' {close}'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_ascii_terminal_gets_question_marks_and_no_crash() -> None:
    program = (
        "import sys; from rlgym_llm.cli import guarded; "
        "sys.exit(guarded(lambda argv: print(chr(0x2502)) or 0, [], 'prog'))"
    )
    done = subprocess.run(
        [sys.executable, "-X", "utf8=0", "-c", program],
        capture_output=True,
        env={"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PATH": "/usr/bin"},
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, b"?\n")
