"""Reads Python's literals and calls of them with keywords, without evaluating anything."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["NotLiteralError", "read_calls"]

_TOKEN = re.compile(
    r"""\s*+(?:
      (?P<string>[rRbBuUfF]{0,2}+(?:"(?:[^"\\\n]|\\.)*+"|'(?:[^'\\\n]|\\.)*+'))
    | (?P<number>[-+]?+(?:[0-9][0-9_]*+(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][-+]?+[0-9]++)?+)
    | (?P<name>[^\W\d][\w.]*+)
    | (?P<mark>[\[\](){},:=])
    )""",
    re.VERBOSE | re.DOTALL,
)
_CONSTANTS = {
    "True": True,
    "False": False,
    "None": None,
    "true": True,
    "false": False,
    "null": None,
}
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{1,3}|.)", re.DOTALL)
_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "\n": ""}
_CLOSING = {"[": "]", "(": ")", "{": "}"}
_MOST_LEVELS = 100
_MOST_DIGITS = 4000
_MOST_TOKENS = 50_000


class NotLiteralError(ValueError):
    """No list of calls stands there; the message is for the model."""


def read_calls(text: str, start: int, most: int) -> tuple[list[tuple[str, dict[str, Any]]], int]:
    """The calls ``[name(key=literal, ...), ...]`` that begin at ``start``, and where they end.

    Raises NotLiteralError for anything else, and for more than ``most`` calls.

    >>> read_calls("[add(a=1, b=[2.5, 'x'])] done", 0, 64)
    ([('add', {'a': 1, 'b': [2.5, 'x']})], 24)
    """
    reader = _Reader(text, start)
    reader.take("[")
    calls: list[tuple[str, dict[str, Any]]] = []
    while True:
        if len(calls) == most:
            raise NotLiteralError(f"at most {most} calls in one reply")
        name = reader.name()
        reader.take("(")
        calls.append((name, reader.keywords()))
        if not reader.takes(","):
            break
    reader.take("]")
    return calls, reader.place


class _Reader:
    """Goes through the tokens, one ahead."""

    def __init__(self, text: str, place: int) -> None:
        self._text = text
        self.place = place
        """End of the last token taken."""
        self._num_left = _MOST_TOKENS
        self._peek()

    def take(self, mark: str) -> None:
        if not self.takes(mark):
            found = repr(self._token) if self._kind else "the end"
            raise NotLiteralError(f"expecting {mark!r}, not {found[:60]}")

    def takes(self, mark: str) -> bool:
        if self._kind != "mark" or self._token != mark:
            return False
        self._next()
        return True

    def name(self) -> str:
        if self._kind != "name":
            raise NotLiteralError(f"expecting a name, not {self._token[:60]!r}")
        name = self._token
        self._next()
        return name

    def keywords(self) -> dict[str, Any]:
        """The arguments up to the closing parenthesis, which is taken."""
        found: dict[str, Any] = {}
        while not self.takes(")"):
            key = self.name() if self._kind == "name" else ""
            if not self.takes("="):
                raise NotLiteralError("write every argument as name=value")
            if key in found:
                raise NotLiteralError(f"argument {key[:60]!r} is given twice")
            found[key] = self.value(0)
            if not self.takes(","):
                self.take(")")
                break
        return found

    def value(self, level: int) -> Any:
        kind, token = self._kind, self._token
        if level > _MOST_LEVELS:
            raise NotLiteralError("it is nested too deeply")
        if kind == "mark" and token in _CLOSING:
            self._next()
            return self._mapping(level) if token == "{" else self._list(level, _CLOSING[token])
        self._next()
        if kind == "string":
            return _string(token)
        if kind == "number":
            return _number(token)
        if kind == "name" and token in _CONSTANTS:
            return _CONSTANTS[token]
        raise NotLiteralError(f"expecting a literal value, not {token[:60]!r}")

    def _list(self, level: int, closing: str) -> list[Any]:
        found = []
        while not self.takes(closing):
            found.append(self.value(level + 1))
            if not self.takes(","):
                self.take(closing)
                break
        return found

    def _mapping(self, level: int) -> dict[str, Any]:
        found = {}
        while not self.takes("}"):
            key = self.value(level + 1)
            if not isinstance(key, str):
                raise NotLiteralError("the keys of a mapping are strings")
            self.take(":")
            found[key] = self.value(level + 1)
            if not self.takes(","):
                self.take("}")
                break
        return found

    def _next(self) -> None:
        self._num_left -= 1
        if not self._num_left:
            raise NotLiteralError("it is too long")
        self.place = self._end
        self._peek()

    def _peek(self) -> None:
        match = _TOKEN.match(self._text, self.place)
        if match is None:
            self._kind, self._token = "", self._text[self.place : self.place + 20].strip()
            self._end = self.place
        else:
            self._kind = match.lastgroup or ""
            self._token, self._end = match[self._kind], match.end()


def _string(token: str) -> str:
    quote = token[-1]
    prefix, _, rest = token.partition(quote)
    if prefix.lower() not in ("", "r", "u"):
        raise NotLiteralError(f"strings take no prefix {prefix!r}")
    inner = rest[:-1]
    return inner if prefix.lower() == "r" else _ESCAPE.sub(_unescape, inner)


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] in "xuU" and len(code) > 1:
        number = int(code[1:], 16)
        return chr(number) if number < 0x110000 else "\ufffd"
    if code[0] in "01234567":
        return chr(int(code, 8))
    if code in "\\'\"/":
        return code
    return _SIMPLE.get(code, match[0])


def _number(token: str) -> int | float:
    if len(token) > _MOST_DIGITS:
        raise NotLiteralError("a number has too many digits")
    digits = token.replace("_", "")
    if any(mark in digits for mark in ".eE"):
        number = float(digits)
        if number in (float("inf"), float("-inf")):
            raise NotLiteralError("a number is too large")
        return number
    return int(digits)
