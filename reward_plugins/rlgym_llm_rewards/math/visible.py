"""Leave out what is no statement of the model: thinking, later turns, fake records, the prompt."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["without_prompt", "without_records", "without_thinking", "without_turns"]

_THINK = re.compile(r"<(/?)(?:think(?:ing)?|reasoning|thought)>")
_TURN = re.compile(r"<?\|(?:im_end|eot_id|end_of_text|endoftext|eom_id|end)\|>|<\|im_start\|>user")

_BRACES = re.compile(r"```(?:json)?\s*+\{[^`]*+```|\{[^{}]*+\}")
_RECORD_KEY = re.compile(
    r"""["'](?:gold|score|reward|expected|correct|verdict|label|grade|target)[_a-z]*["']\s*:"""
)
_GOLD = re.compile(
    r"\(?(?:expected|gold|reference|target|ground[- ]truth)[_ ](?:final )?answers?\b"
    r"[^\n.)]{0,80}\)?",
    re.IGNORECASE,
)
_GRADER_LINE = re.compile(
    r"^(?:SYSTEM|GRADER|VERDICT)\b.*\b(?:verdict|expected|reward|score)\b.*$", re.MULTILINE
)

_MIN_ECHO = 20
_MAX_PIECES = 256
_PIECE_END = re.compile(r"\n|(?<=[.?!])\s")


def without_thinking(text: str) -> tuple[str, bool]:
    """The text with every thinking block blanked, and whether one of them was closed.

    A closing tag that nothing opened ends thinking that began with the text; an opening tag that
    nothing closes starts thinking to the end. Indices stay as they were.

    >>> without_thinking("<think>5?</think>6")
    ('                 6', True)
    """
    if "think>" not in text and "ing>" not in text and "thought>" not in text:
        return text, False
    kept: list[tuple[int, int]] = []  # what is no thinking
    end = 0  # of the last block
    is_open = closed = False
    for tag in _THINK.finditer(text):
        if tag[1]:
            if not is_open:
                kept = []
            is_open, closed, end = False, True, tag.end()
        elif not is_open:
            kept.append((end, tag.start()))
            is_open = True
    if not is_open:
        kept.append((end, len(text)))
    pieces = []
    last = 0
    for start, stop in kept:
        pieces += [" " * (start - last), text[start:stop]]
        last = stop
    pieces.append(" " * (len(text) - last))
    return "".join(pieces), closed


def without_turns(text: str) -> str:
    """The text up to the token that ends the model's turn, where one stands in it.

    >>> without_turns("It is 42<|im_end|> Next: 43")
    'It is 42'
    """
    if "|>" not in text:
        return text
    turn = _TURN.search(text)
    return text if turn is None else text[: turn.start()]


def without_records(text: str) -> str:
    """The text with what looks like a grader's own record blanked, lest its numbers be answers.

    >>> without_records('{"reward": 1.0} so 7')
    '                so 7'
    """
    if '":' in text or "':" in text:
        text = _BRACES.sub(_blank_record, text)
    if "SYSTEM" in text or "GRADER" in text or "VERDICT" in text:
        text = _GRADER_LINE.sub(_blank, text)
    if "nswer" in text:
        text = _GOLD.sub(_blank, text)
    return text


def without_prompt(text: str, prompt: str) -> str:
    """The text with the prompt, or any sentence of 20 characters or more of it, blanked.

    >>> without_prompt("You ask: What is the sum of 40 and 2? 42", "What is the sum of 40 and 2?")
    'You ask:                              42'
    """
    for piece in _pieces(prompt):
        if piece in text:
            text = text.replace(piece, " " * len(piece))
    return text


@lru_cache(maxsize=1024)  # siblings share their prompt
def _pieces(prompt: str) -> tuple[str, ...]:
    """The whole first: where that is found, no part of it is left to find."""
    parts = [prompt.strip(), *(part.strip() for part in _PIECE_END.split(prompt))]
    return tuple(dict.fromkeys(part for part in parts if len(part) >= _MIN_ECHO))[:_MAX_PIECES]


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


def _blank_record(match: re.Match[str]) -> str:
    return _blank(match) if _RECORD_KEY.search(match[0]) else match[0]
