"""``rlgym verify``: a verdict with all that it rests on, so that any 0 can be understood."""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from rlgym_llm.attribute_docs import attribute_docs
from rlgym_llm.cli import CommandParser, plugin_parser
from rlgym_llm.errors import DataError, nearest
from rlgym_llm_rewards.math.extraction.extract import extract
from rlgym_llm_rewards.math.gold import read_gold
from rlgym_llm_rewards.math.policy import POLICIES, Policy, get_policy
from rlgym_llm_rewards.math.verdict import Verdict, VerdictStatus
from rlgym_llm_rewards.math.verify import verify

__all__ = ["RULES", "main"]

NOT_CORRECT, NOT_JUDGED = 1, 2

_DESCRIPTION = r"""
Judges the final answer of COMPLETION against GOLD, and says why.

  rlgym verify "So x = \boxed{\frac{2}{4}}" 0.5
  rlgym verify --completion-file answer.txt 0.5       (- reads stdin)

What starts with - is text unless it is an option's name: -5 needs no care. Behind a -- all is text.

exit code: 0 correct, 1 not correct, 2 nothing was judged: wrong usage, a gold that cannot be read,
or a comparison that was cut off by its deadline"""

RULES = {
    "identical": "both are the same text, or read as the same tree",
    "number": "two plain numbers as exact fractions, with their percent and currency signs",
    "choice": "the letter of multiple choice, or the text of its option",
    "words": "words, whatever their case and markup",
    "kind": "things of two kinds that cannot be read as one another",
    "exact": "the exact normal forms of both values",
    "rounded": "a decimal of enough digits, for a value without a finite one",
    "gold rounded": "a value that rounds to the gold decimal",
    "percent": "a percentage and the bare number it is written with",
    "unit": "the units",
    "base": "the digits, and the base where both write one",
    "congruence": "congruences: the residue by its modulus",
    "infinity": "infinity and its sign",
    "structure": "values that cannot be worked out, by their form alone",
    "probe": "the values at the same points, in 50 digits",
    "symbolic": "sympy, on values that agree at every point tried",
    "contradiction": "an equation chain whose numbers contradict each other",
    "set": "sets of real numbers, piece by piece with their ends",
    "variables": "the names of the variables",
    "assignments": "the values of variables of the same names",
    "alternatives": "alternatives that are all one value, or all another",
    "size": "the number of elements",
    "elements": "elements one to one, in any order",
    "elements in order": "elements in their order",
    "brackets": "the kind of brackets",
    "shape": "the shape of the matrices",
    "entries": "the entries of the matrices",
    "ratio": "ratios by proportion",
    "time": "times of day, part by part",
    "factor": "equations up to a factor, inequalities up to a positive one",
    "relation": "the signs of the relations",
    "members": "relations, member by member",
    "form": "the form that the policy asks for, of an answer whose value is right",
}
"""What each rule of a verdict compares."""

_PLACES = {
    "boxed": "a box",
    "hash": "a line with ####",
    "tag": "an answer tag",
    "phrase": 'a phrase such as "the answer is"',
    "math": "the last mathematics, unmarked",
    "number": "the last number, unmarked",
    "text": "the text itself",
}
_COLOURS = {VerdictStatus.CORRECT: "bold green", VerdictStatus.WRONG: "bold red"}
_NAME = re.compile(r"--[a-z][a-z-]*|-h")
_MAX_SHOWN = 500


def main(argv: Sequence[str]) -> int:
    """Prints one verdict; 0 where it is correct, 1 where it is not, 2 where nothing was judged."""
    options, texts = _read_arguments(argv)
    completion, gold = texts
    chosen = {f.name: vars(options)[f.name] for f in fields(Policy) if f.name in vars(options)}
    policy = replace(get_policy(options.policy), **chosen)
    verdict = verify(completion, gold, prompt=options.prompt, policy=policy)
    start = _start(verdict, completion, gold, options.prompt, policy)
    (_print_json if options.json else _print_text)(verdict, completion, start, policy)
    if verdict.is_correct:
        return 0
    unjudged = (VerdictStatus.BAD_GOLD, VerdictStatus.TIMEOUT)
    return NOT_JUDGED if verdict.status in unjudged else NOT_CORRECT


# -- arguments -----------------------------------------------------------------------------------


def _parser() -> CommandParser:
    parser = plugin_parser("rlgym verify", _DESCRIPTION)
    parser.usage = (
        "rlgym verify [options] COMPLETION GOLD\n"
        "       rlgym verify [options] --completion-file PATH GOLD"
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--completion-file", metavar="PATH", help="read COMPLETION from a file")
    parser.add_argument(
        "--prompt", metavar="TEXT", help="what is copied from it counts for nothing"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    names = ", ".join(POLICIES)
    parser.add_argument("--policy", metavar="NAME", default="standard", help=f"one of {names}")
    group = parser.add_argument_group("choices of the policy")
    hints, texts = get_type_hints(Policy), _attribute_docs(Policy)
    for field in fields(Policy):
        kind = hints[field.name]
        how: dict[str, Any] = {"type": kind, "metavar": "N"}
        default: object = field.default
        if kind is bool:
            how = {"action": argparse.BooleanOptionalAction}
            default = "yes" if default else "no"
        elif get_origin(kind) is Literal:
            how = {"choices": get_args(kind)}
        said = f"{texts[field.name]} (default: {default})".replace("%", "%%")
        flag = "--" + field.name.replace("_", "-")
        group.add_argument(flag, help=said, default=argparse.SUPPRESS, **how)
    return parser


def _attribute_docs(owner: type) -> dict[str, str]:
    """The strings under the attributes of a class, on one line each."""
    (tree,) = ast.parse(inspect.getsource(owner)).body
    assert isinstance(tree, ast.ClassDef)
    return {name: text.replace("``", "") for name, text in attribute_docs(tree).items()}


def _read_arguments(argv: Sequence[str]) -> tuple[argparse.Namespace, tuple[str, str]]:
    """The options, and the completion and the gold.

    argparse takes ``-x`` for an option wherever it stands; so the texts are set apart before, and
    values are tied to their options.
    """
    parser = _parser()
    known = parser._option_string_actions  # argparse has no public name for them
    given: list[str] = []
    texts: list[str] = []
    parts = iter(argv)
    for part in parts:
        name, tied, _ = part.partition("=")
        if part == "--":
            texts += parts
        elif not _NAME.fullmatch(name):
            texts.append(part)
        elif name not in known:
            guess = nearest(name, known)
            parser.error(f"unknown option {name}" + (f"; did you mean {guess}?" if guess else ""))
        else:
            takes_next = not tied and known[name].nargs != 0
            value = next(parts, None) if takes_next else None
            given.append(part if value is None else f"{name}={value}")
    options = parser.parse_args(given)
    path = options.completion_file
    if path is not None and len(texts) == 2:
        parser.error("give COMPLETION or --completion-file, not both")
    if len(texts) != (2 if path is None else 1):
        wanted = "COMPLETION and GOLD" if path is None else "GOLD beside --completion-file"
        parser.error(f"give {wanted}, each as one argument in quotes; {len(texts)} were given")
    return options, (texts[0] if path is None else _file_text(path), texts[-1])


def _file_text(path: str) -> str:
    """The text of a file or of stdin; raises DataError."""
    name = "stdin" if path == "-" else path
    try:
        if path != "-":
            data = Path(path).read_bytes()
        elif sys.stdin is None:
            raise DataError("is closed; pipe the completion in", path=name)
        else:
            data = sys.stdin.buffer.read()
        return data.decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", path=name) from None
    except UnicodeDecodeError as error:
        problem = f"{error.reason} at byte {error.start}"
        raise DataError(f"is no UTF-8 text ({problem}); save it as UTF-8", path=name) from None


# -- what is printed -----------------------------------------------------------------------------


def _start(
    verdict: Verdict, completion: str, gold: str, prompt: str | None, policy: Policy
) -> int | None:
    """Where in the completion the answer's marker stands, None where there is no answer."""
    if verdict.where is None:
        return None
    target = read_gold(gold, policy)
    found = extract(
        completion,
        policy,
        prompt=prompt,
        wants_choice=target.choice is not None,
        num_parts=target.num_parts,
    )
    # A completion that is the gold text is an answer as it stands.
    return found.start if found is not None and found.where == verdict.where else 0


def _line_and_column(text: str, start: int) -> tuple[int, int]:
    return text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start)


def _print_json(verdict: Verdict, completion: str, start: int | None, policy: Policy) -> None:
    line, column = (None, None) if start is None else _line_and_column(completion, start)
    facts = {
        "correct": verdict.is_correct,
        **asdict(verdict),
        "start": start,
        "line": line,
        "column": column,
        "policy": asdict(policy),
    }
    print(json.dumps(facts))  # in ASCII, whatever the terminal


def _print_text(verdict: Verdict, completion: str, start: int | None, policy: Policy) -> None:
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.text import Text

        Console().print(Text(verdict.status, _COLOURS.get(verdict.status, "bold yellow")))
    else:
        print(verdict.status)
    place = None
    if verdict.where is not None and start is not None:
        line, column = _line_and_column(completion, start)
        place = f"{_PLACES[verdict.where]}, line {line}, column {column}"
    rule = ": ".join(filter(None, [verdict.rule, RULES.get(verdict.rule)])) or None
    statuses = _attribute_docs(VerdictStatus)
    changed = [
        f"{name}={value}"
        for name, value in asdict(policy).items()
        if name != "extraction" and value != getattr(POLICIES["standard"], name)
    ]
    for label, value in (
        ("answer", verdict.answer),
        ("  stands in", place),
        ("  reads as", verdict.answer_form),
        ("gold", verdict.gold),
        ("  reads as", verdict.gold_form),
        ("rule", rule),
        ("why", verdict.reason or statuses.get(verdict.status.name)),
        ("policy", ", ".join([policy.extraction, *changed])),
    ):
        if value is not None:
            print(f"  {label:12} {_printable(value)}")


def _printable(text: str) -> str:
    """The text on one line, cut; what a terminal would obey rather than show is escaped."""
    shown = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in text[:_MAX_SHOWN]
    )
    return shown if len(text) <= _MAX_SHOWN else f"{shown}... ({len(text):,} characters)"
