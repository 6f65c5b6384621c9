from __future__ import annotations

import ast
import dataclasses
import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from rlgym_llm_rewards import math
from rlgym_llm_rewards.commands.verify import RULES
from rlgym_llm_rewards.math import Policy, VerdictStatus

from rlgym_llm.cli import main

Captured = pytest.CaptureFixture[str]
SOURCES = sorted(Path(math.__file__).parent.rglob("*.py"))


def verify(capsys: Captured, *argv: str) -> tuple[int, str]:
    """Exit code and what was printed; nothing may stand on stderr."""
    code = main(["verify", *argv])
    printed = capsys.readouterr()
    assert printed.err == ""
    return code, printed.out


def refuse(capsys: Captured, *argv: str) -> str:
    """The one line of a call that cannot work."""
    assert main(["verify", *argv]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err


def lines_of(out: str) -> dict[str, str]:
    """What stands behind each label; forms under ``answer reads as`` and ``gold reads as``."""
    found, above = {}, ""
    for line in out.splitlines()[1:]:
        label, value = line[:15].strip(), line[15:]
        if line[2] != " ":
            above = label
        found[label if line[2] != " " else f"{above} {label}"] = value
    return found


def run(
    argv: Sequence[str], given: bytes = b"", **environ: str
) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", "import sys; from rlgym_llm.cli import main; sys.exit(main())"]
    environment = {**os.environ, **environ}
    return subprocess.run(
        [*command, *argv], input=given, capture_output=True, env=environment, check=False
    )


class TestVerdict:
    def test_says_all_that_it_rests_on(self, capsys: Captured) -> None:
        code, out = verify(capsys, "First a guess.\nSo it is $\\boxed{\\frac{2}{4}}$.", "0.5")
        assert code == 0
        assert out.splitlines()[0] == "correct"
        said = lines_of(out)
        assert said.pop("rule").startswith("number: two plain numbers as exact fractions")
        assert said == {
            "answer": r"\frac{2}{4}",
            "answer stands in": "a box, line 2, column 11",
            "answer reads as": "1/2",
            "gold": "0.5",
            "gold reads as": "1/2",
            "policy": "standard",
        }

    @pytest.mark.parametrize(
        ("completion", "gold", "code", "status"),
        [
            ("#### 7200", "72", 1, "wrong"),
            ("I cannot tell.", "72", 1, "no_answer"),
            ("The answer is 5 or 6.", "5", 1, "ambiguous"),
            (r"\boxed{\frac{1}{0}}", "5", 1, "unparsable"),
            (r"\boxed{9^{9^{9^9}}}", "5", 1, "limit"),
            ("5", "1/0", 2, "bad_gold"),
            ("5", "", 2, "bad_gold"),
        ],
    )
    def test_every_zero_has_its_words(
        self, capsys: Captured, completion: str, gold: str, code: int, status: str
    ) -> None:
        found, out = verify(capsys, completion, gold)
        assert (found, out.splitlines()[0]) == (code, status)
        said = lines_of(out)
        assert said.get("why") or said["rule"]

    def test_the_policy_decides_and_is_named(self, capsys: Captured) -> None:
        assert verify(capsys, "So we get 72.", "72")[0] == 0
        code, out = verify(capsys, "So we get 72.", "72", "--policy", "strict")
        assert (code, out.splitlines()[0]) == (1, "no_answer")
        assert lines_of(out)["policy"] == "strict"

    def test_options_change_the_policy(self, capsys: Captured) -> None:
        code, out = verify(capsys, "--form", "reduced", r"\boxed{2/4}", "1/2")
        assert (code, lines_of(out)["policy"]) == (1, "standard, form=reduced")
        assert lines_of(out)["rule"].startswith("form: ")
        assert lines_of(out)["why"] == "a fraction that is not in lowest terms"
        assert verify(capsys, "--min-digits=3", r"\boxed{3.14}", r"\pi")[0] == 0
        assert verify(capsys, "--no-percent-bare", r"\boxed{25}", r"25\%")[0] == 1
        assert verify(capsys, "--require-box", "#### 5", "5")[0] == 1

    def test_the_prompt_is_no_answer(self, capsys: Captured) -> None:
        prompt = "I had 72 clips and sold some. How many are left?"
        argv = [f"You ask: {prompt}", "72"]
        assert verify(capsys, *argv)[0] == 0
        assert verify(capsys, *argv, "--prompt", prompt)[0] == 1

    def test_json(self, capsys: Captured) -> None:
        code, out = verify(capsys, "a\nb \\boxed{½}", "0.5", "--json", "--units", "match")
        assert code == 0
        assert out.count("\n") == 1
        assert out.isascii()
        found = json.loads(out)
        assert found["policy"] == dataclasses.asdict(Policy(units="match"))
        assert {key: found[key] for key in ("correct", "status", "answer", "where", "gold")} == {
            "correct": True,
            "status": "correct",
            "answer": "½",
            "where": "boxed",
            "gold": "0.5",
        }
        assert (found["start"], found["line"], found["column"]) == (4, 2, 3)

    def test_json_of_no_answer(self, capsys: Captured) -> None:
        found = json.loads(verify(capsys, "--json", "No idea.", "5")[1])
        assert found["answer"] is found["line"] is found["start"] is None
        assert found["correct"] is False


class TestArguments:
    @pytest.mark.parametrize(
        ("argv", "code"),
        [
            (["-5", "-5"], 0),
            (["-5", "5"], 1),
            (["-x+1", "1-x"], 0),
            ([r"-\frac{1}{2}", "-0.5"], 0),
            (["-x", "--policy", "lenient", "-x"], 0),
            (["--prompt", "-5?", "-5", "-5"], 0),
            (["---\n#### -5", "-5"], 0),
            (["--x = 5", "--x = 5"], 0),
            (["--", "-h", "-h"], 0),
            (["-5", "--", "-5"], 0),
            (["", "5"], 1),
        ],
    )
    def test_text_may_start_with_a_minus(
        self, capsys: Captured, argv: list[str], code: int
    ) -> None:
        assert verify(capsys, *argv)[0] == code

    @pytest.mark.parametrize(
        ("argv", "words"),
        [
            ([], "give COMPLETION and GOLD, each as one argument in quotes; 0 were given"),
            (["5"], "1 were given"),
            (["5", "6", "7"], "3 were given"),
            (["5", "5", "--polcy", "strict"], "unknown option --polcy; did you mean --policy?"),
            (["5", "5", "--policy", "strct"], "unknown policy 'strct'; did you mean 'strict'?"),
            (["5", "5", "--policy"], "expected one argument"),
            (["5", "5", "--form", "short"], "invalid choice: 'short'"),
            (["5", "5", "--min-digits", "six"], "invalid int value: 'six'"),
            (["5", "5", "--json=yes"], "--json"),
            (["5", "5", "--completion-file", "x"], "not both"),
            (["--completion-file", "x"], "give GOLD beside --completion-file"),
            (["--completion-file", "gone.txt", "5"], "gone.txt: cannot be read: No such file"),
            (["--completion-file", ".", "5"], "cannot be read: Is a directory"),
        ],
    )
    def test_wrong_usage_is_one_line(self, capsys: Captured, argv: list[str], words: str) -> None:
        assert words in refuse(capsys, *argv)

    def test_help_names_every_choice(self, capsys: Captured) -> None:
        with pytest.raises(SystemExit) as ended:
            main(["verify", "--help"])
        assert ended.value.code == 0
        out = capsys.readouterr().out
        assert "exit code: 0 correct, 1 not correct, 2 nothing was judged" in out
        assert "Whether 25 and 25% accept each other" in out
        for field in dataclasses.fields(Policy):
            assert f"--{field.name.replace('_', '-')}" in out

    def test_it_is_listed(self, capsys: Captured) -> None:
        with pytest.raises(SystemExit):
            main(["--help"])
        assert "\n  verify   judge one answer against its gold, and say why\n" in (
            capsys.readouterr().out
        )


class TestFiles:
    def test_a_file(self, capsys: Captured, tmp_path: Path) -> None:
        path = tmp_path / "long.txt"
        path.write_text("x" * 100_000 + "\n#### ½\n", encoding="utf-8")
        code, out = verify(capsys, "--completion-file", str(path), "1/2")
        assert (code, lines_of(out)["answer stands in"]) == (
            0,
            "a line with ####, line 2, column 1",
        )

    def test_stdin(self, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"#### -5\n")))
        assert verify(capsys, "--completion-file", "-", "-5")[0] == 0

    def test_a_closed_stdin(self, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sys.stdin", None)
        assert "stdin: is closed" in refuse(capsys, "--completion-file", "-", "-5")

    def test_bytes_that_are_no_text(self, capsys: Captured, tmp_path: Path) -> None:
        path = tmp_path / "latin.txt"
        path.write_bytes("The answer is 5 é.".encode("latin-1"))
        message = refuse(capsys, "--completion-file", str(path), "5")
        assert "latin.txt: is no UTF-8 text (invalid continuation byte at byte 16)" in message


class TestTerminals:
    def test_a_colour_on_a_terminal_only(
        self, capsys: Captured, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.delenv("NO_COLOR", raising=False)
        terminal = io.StringIO()
        monkeypatch.setattr(terminal, "isatty", lambda: True)
        monkeypatch.setattr(sys, "stdout", terminal)
        assert main(["verify", "5", "5"]) == 0
        assert terminal.getvalue().startswith("\x1b[1;32mcorrect\x1b[0m\n")
        monkeypatch.undo()
        assert "\x1b" not in verify(capsys, "5", "5")[1]

    def test_model_text_does_not_reach_the_terminal_raw(self, capsys: Captured) -> None:
        _, out = verify(capsys, "\\boxed{\x1b[31m7\n8}", "5")
        assert "\x1b" not in out
        assert lines_of(out)["answer"] == r"\x1b[31m7\n8"

    def test_long_texts_are_cut_on_screen_and_whole_in_json(self, capsys: Captured) -> None:
        completion = r"\boxed{" + "1+" * 600 + "1}"
        assert lines_of(verify(capsys, completion, "601")[1])["answer"].endswith(
            "... (1,201 characters)"
        )
        found = json.loads(verify(capsys, "--json", completion, "601")[1])
        assert (found["correct"], len(found["answer"])) == (True, 1201)

    def test_an_ascii_terminal(self) -> None:
        done = run(["verify", r"\boxed{1\pm 2}", "½"], LC_ALL="C", PYTHONIOENCODING="ascii")
        assert (done.returncode, done.stderr) == (1, b"")
        assert b"reads as   1 ? 2" in done.stdout

    def test_arguments_that_are_no_utf8(self) -> None:
        done = run(["verify", "5 \udcff", "\udcff"])
        assert (done.returncode, done.stderr) == (2, b"")
        assert done.stdout.startswith(b"bad_gold\n")

    def test_a_closed_pipe_is_silent(self) -> None:
        program = f"'{sys.executable}' -c 'import sys; from rlgym_llm.cli import main; "
        program += "sys.exit(main())' verify 5 5 | true; exit ${PIPESTATUS[0]}"
        done = subprocess.run(["bash", "-c", program], capture_output=True, check=False)
        assert done.stderr == b""
        assert done.returncode in (0, 141)  # whichever of both ends first


def test_every_rule_is_explained() -> None:
    found = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if name in ("Decision", "Verdict", "verdict", "_verdict") and len(node.args) > 1:
                strings = (n.value for n in ast.walk(node.args[1]) if isinstance(n, ast.Constant))
                found |= {text for text in strings if isinstance(text, str) and text}
    # These two are a kind that both sides have.
    assert found | {"ratio", "time"} == set(RULES)


def test_every_status_without_a_rule_has_words() -> None:
    from rlgym_llm_rewards.commands.verify import _attribute_docs

    with_rule = {"CORRECT", "WRONG"}
    assert set(_attribute_docs(VerdictStatus)) == {s.name for s in VerdictStatus} - with_rule
