"""Errors by whose fault they are; every message says who, what, and the way out."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

__all__ = [
    "ConfigError",
    "DataError",
    "GeneratorError",
    "PluginError",
    "RewardError",
    "RlgymError",
    "ToolError",
    "UnknownNameError",
    "UserError",
    "WeightSyncError",
    "describe",
    "did_you_mean",
    "nearest",
    "one_line",
]


class RlgymError(Exception):
    """Base of every error that this project raises on purpose."""


class UserError(RlgymError, ValueError):
    """Something the caller gave is wrong and the caller can mend it.

    Command lines print the message as one line on stderr and exit with code 2.
    """


class ConfigError(UserError):
    """A configuration key or value is wrong: unknown, given twice, out of range, or indivisible."""


class DataError(UserError):
    """A data file or one of its rows cannot be used.

    >>> str(DataError("no column 'question'", path="train.jsonl", line=3))
    "train.jsonl:3: no column 'question'"
    """

    def __init__(
        self, message: str, *, path: str | Path | None = None, line: int | None = None
    ) -> None:
        where = "" if path is None else f"{path}: " if line is None else f"{path}:{line}: "
        super().__init__(where + message)
        self.path = path
        self.line = line


class UnknownNameError(UserError, LookupError):
    """A name that nothing is registered under; the message names the nearest one that exists.

    >>> str(UnknownNameError("reward", "mth", ["math", "format"]))
    "unknown reward 'mth'; did you mean 'math'? (known: format, math)"
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        hint = did_you_mean(name, names)
        super().__init__(f"unknown {kind} {name!r}{hint} (known: {', '.join(names) or 'none'})")
        self.kind = kind
        self.name = name


class PluginError(UserError):
    """A plugin is broken: it does not import, its hook is misspelt, or its names clash."""


class GeneratorError(RlgymError):
    """A generator failed to sample or broke its contract."""


class WeightSyncError(RlgymError):
    """New weights did not reach a generator, or are not those that it samples from."""


class ToolError(RlgymError):
    """A tool of an environment cannot go on: its episode has failed, and the model did not."""


class RewardError(RlgymError):
    """A reward failed and the error policy is ``raise``, or too many rewards failed."""


def one_line(words: object, longest: int | None = None) -> str:
    r"""The text of anything on one line; of an error that says nothing, the name of its class.

    Cut to ``longest`` characters; raises what ``__str__`` does.

    >>> one_line(ValueError("no\n such thing")), one_line(KeyError()), one_line("a\tb c", 3)
    ('no such thing', 'KeyError', 'a b')
    """
    # Half a surrogate pair, which no encoding carries, is written as its escape.
    text = " ".join(str(words).split()).encode("utf-8", "backslashreplace").decode()[:longest]
    return text or (type(words).__name__ if isinstance(words, BaseException) else "")


def describe(failure: BaseException | None) -> str:
    r"""The kind of a failure and what it says, on one line, whatever its own ``__str__`` does.

    >>> describe(ValueError("no number\nin 'abc'")), describe(AssertionError())
    ("ValueError: no number in 'abc'", 'AssertionError')
    """
    try:
        text = one_line(str(failure))
    except KeyboardInterrupt:
        raise
    except BaseException:
        text = "(its message cannot be read)"
    return f"{type(failure).__name__}: {text}" if text else type(failure).__name__


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` for the known name closest to ``name``, or nothing.

    >>> did_you_mean("mth", ["math", "format"]), did_you_mean("judge", ["math"])
    ("; did you mean 'math'?", '')
    """
    guess = nearest(name, known)
    return f"; did you mean {guess!r}?" if guess else ""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name closest to ``name``, or None where none is close.

    >>> nearest("mth", ["math", "format"])
    'math'
    """
    lowered = {candidate.lower(): candidate for candidate in known}
    matches = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.6)
    return lowered[matches[0]] if matches else None
