"""Choices that an answer names only to set them aside: "Rome, not Oslo"."""

from __future__ import annotations

import re
from collections.abc import Callable

__all__ = ["without_denied"]

_NOT = r"(?:not|rather\s+than|instead\s+of|as\s+opposed\s+to|(?P<over>over))\s+"
# "not only A" denies nothing, and neither do "if not A", "or not A", "why not A".
_ONLY = r"(?!(?:only|just|merely|simply|necessarily|sure|certain)\b)"
_UNSURE = re.compile(r"\b(?:if|or|why|whether|maybe|perhaps|possibly|probably)\W*\Z", re.IGNORECASE)
# "I choose A over B", but no "5 over 2".
_PREFERS = re.compile(
    r"\b(?:choose|chose|pick|prefer|select|take|favou?r)(?:s|ed|ing)?\b[^.;!?\n]*\Z", re.IGNORECASE
)
_DENIAL = re.compile(
    rf"""(?: \A\W{{0,8}} | [\s,;.:!?()\[–—-]{{1,8}} (?:(?:and|but)\s+)? (?:it(?:['’]s|\s+is)\s+)? )
    {_NOT}{_ONLY} (?P<denied> (?: [^.;!?\n<}}] | \.(?=\S) )+ )""",
    re.VERBOSE | re.IGNORECASE,
)
_BUT = re.compile(r",?\s+but\s+(?:rather\s+|it(?:['’]s|\s+is)\s+)?", re.IGNORECASE)
_JOINT = re.compile(r"\s*(?:[,;/]|\b(?:or|nor|and|not)\b)\s*", re.IGNORECASE)
_EDGE = " \t*_`$.,;:)(]["
_MAX_CHARS = 2000
_MAX_DENIALS = 4


def without_denied(said: str, is_choice: Callable[[str], bool]) -> str:
    """The text without the choices that it sets aside, where nothing else is set aside with them.

    >>> cities = {"Rome", "Oslo", "Paris"}.__contains__
    >>> without_denied("Rome, not Oslo", cities), without_denied("not Oslo but Rome", cities)
    ('Rome', ' Rome')
    >>> without_denied("Rome rather than Oslo or Paris.", cities)
    'Rome.'
    >>> without_denied("Rome, not only Oslo", cities), without_denied("Rome, not sure", cities)
    ('Rome, not only Oslo', 'Rome, not sure')
    """
    if len(said) > _MAX_CHARS:
        return said
    start = 0
    for _ in range(_MAX_DENIALS):
        match = _DENIAL.search(said, start)
        if match is None:
            break
        denied, *rest = _BUT.split(match["denied"], maxsplit=1)
        before = said[: match.start()]
        is_open = _UNSURE.search(before) or (match["over"] and not _PREFERS.search(before))
        if is_open or not _is_list(denied, is_choice):
            start = match.start("denied")
            continue
        kept = f" {rest[0]}" if rest else ""
        said = before + kept + said[match.end() :]
        start = match.start()
    return said


def _is_list(denied: str, is_choice: Callable[[str], bool]) -> bool:
    denied = denied.strip(_EDGE)
    pieces = [piece.strip(_EDGE) for piece in _JOINT.split(denied)]
    return is_choice(denied) or (any(pieces) and all(map(is_choice, filter(None, pieces))))
