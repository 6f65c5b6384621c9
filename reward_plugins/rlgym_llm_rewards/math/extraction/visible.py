"""Leave out what is no statement of the model: thinking, later turns, fake records, the prompt."""

from __future__ import annotations

import re
from functools import lru_cache

from rlgym_llm.lazy_pattern import lazy_pattern

__all__ = [
    "is_untouched",
    "without_prompt",
    "without_records",
    "without_thinking",
    "without_turns",
]

_THINK = lazy_pattern(r"<(/?)(?:think(?:ing)?|reasoning|thought)>")
_TURN = lazy_pattern(
    r"<?\|(?:im_end|eot_id|end_of_text|endoftext|eom_id|end)\|>|<\|im_start\|>user"
)

_BRACES = lazy_pattern(r"```(?:json)?\s*+\{[^`]*+```|\{[^{}]*+\}")
_RECORD_KEY = lazy_pattern(
    r"""["'](?:gold|score|reward|expected|correct|verdict|label|grade|target)[_a-z]*["']\s*:"""
)
_GOLD = lazy_pattern(
    r"\(?(?:expected|gold|reference|target|ground[- ]truth)[_ ](?:final )?answers?\b"
    r"[^\n.)]{0,80}\)?",
    re.IGNORECASE,
)
_GRADER_LINE = lazy_pattern(
    r"^(?:SYSTEM|GRADER|VERDICT)\b.*\b(?:verdict|expected|reward|score)\b.*$", re.MULTILINE
)

# Words of a record, and those that make one alone where a line starts with them.
_WORDS = r"(?:gold|expected|reference|ground[_ ]truth|grader|reward|score|verdict)"
_HINTS = ("gold", "expected", "reference", "ground", "grader", "reward", "score", "verdict")
_RECORD_WORD = lazy_pattern(_WORDS, re.IGNORECASE)
_KEY = lazy_pattern(
    rf"""(?<![A-Za-z])({_WORDS}|got|status|label|target|grade)(?:[_-][a-z]+)*["'*_\]]*\s?[:=](?!=)""",
    re.IGNORECASE,
)
_STARTS_RECORD = lazy_pattern(
    rf"""[^\w\n]*{_WORDS}["'*_\]]*\s?[:=](?!=)
      | [^\w\n]*(?:{_WORDS}|label|status),\s?[-\d.]+\s*\Z""",
    re.IGNORECASE | re.VERBOSE,
)
_ELEMENT = lazy_pattern(rf"<({_WORDS}|label|target)>[^<]*+</\1>", re.IGNORECASE)
_ORDERED = lazy_pattern(r"\bignore (?:all |the |any )?(?:previous|prior|above)\b", re.IGNORECASE)
_MARKED = lazy_pattern(r"\\boxed|####|answer\s+is\b")

_MIN_ECHO = 20
_MAX_PIECES = 256
_PIECE_END = lazy_pattern(r"\s(?:(?<=\n)|(?<=[.?!]\s))")


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
    if "|" not in text:
        return text
    turn = _TURN.search(text)
    return text if turn is None else text[: turn.start()]


def without_records(text: str) -> str:
    """The text with what looks like a grader's own record blanked, lest its numbers be answers.

    >>> without_records('{"reward": 1.0} so 7')
    '                so 7'
    >>> without_records("score=1 gold=7").strip(), without_records("The score is 7.")
    ('', 'The score is 7.')
    """
    if '":' in text or "':" in text:
        text = _BRACES.sub(_blank_record, text)
    lower = text.lower()
    if any(map(lower.__contains__, _HINTS)):
        text = _ELEMENT.sub(_blank, text)
        lines = text.split("\n")
        text = "\n".join(" " * len(line) if _is_record(line) else line for line in lines)
        if "SYSTEM" in text or "GRADER" in text or "VERDICT" in text:
            text = _GRADER_LINE.sub(_blank, text)
    elif "target" not in lower:
        return text
    if "nswer" in text:
        text = _GOLD.sub(_blank, text)
    return text


def without_prompt(text: str, prompt: str) -> str:
    """The text with the prompt, or any sentence of 20 characters or more of it, blanked.

    A text that is wholly a part of the prompt is blanked unless it is an answer and nothing else:
    an option, or a marker and a value, which examples in the prompt may share.

    >>> without_prompt("You ask: What is the sum of 40 and 2? 42", "What is the sum of 40 and 2?")
    'You ask:                              42'
    """
    whole = text.strip()
    if len(whole) <= len(prompt) and whole in prompt and _says_more(whole):
        return " " * len(text)
    for piece in _pieces(prompt):
        if piece in text:
            text = text.replace(piece, " " * len(piece))
    return text


def is_untouched(text: str, start: int, prompt: str | None) -> bool:
    r"""Whether the line from ``start`` on, which marks an answer, surely stays: a quick look.

    It is the last one, no record, and too short to be a sentence of the prompt; nor does the
    prompt hold it or end in its beginning.

    >>> is_untouched("1 + 1 = 2\n#### 2", 10, "What is 1 + 1?")
    True
    """
    line = text[start:].rstrip()
    if len(line) >= _MIN_ECHO or "\n" in line or (start and text[start - 1] != "\n"):
        return False
    if "<" in line or "nswer" in line:
        return False
    if ("}" in line or "`" in line) and ('":' in text or "':" in text):  # a record may end in it
        return False
    if prompt is None:
        return True
    return line not in prompt and not line.startswith(prompt.rstrip().rpartition("\n")[2])


@lru_cache(maxsize=1024)  # siblings share their prompt
def _pieces(prompt: str) -> tuple[str, ...]:
    """The whole first: where that is found, no part of it is left to find."""
    parts = [prompt.strip(), *(part.strip() for part in _PIECE_END.split(prompt))]
    return tuple(dict.fromkeys(part for part in parts if len(part) >= _MIN_ECHO))[:_MAX_PIECES]


_OPTION = lazy_pattern(r"\W*[A-J]\W(?!:)")
_SAYS_NOTHING = lazy_pattern(
    r"\\[A-Za-z]+|\b(?:so|the|thus|hence|therefore|final|correct|answer|option|choice|is)\b",
    re.IGNORECASE,
)
_SENTENCE = lazy_pattern(r"\?|[^\W\d_]{2,}\W+[^\W\d_]{2,}")


def _says_more(text: str) -> bool:
    """Whether a text holds a question, or words beside an answer."""
    if len(text) > 400:
        return True
    is_option = _OPTION.match(text) is not None and "?" not in text
    return not is_option and _SENTENCE.search(_SAYS_NOTHING.sub("", text)) is not None


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


def _blank_record(match: re.Match[str]) -> str:
    is_record = _RECORD_KEY.search(match[0]) or _KEY.search(match[0])
    return _blank(match) if is_record else match[0]


def _is_record(line: str) -> bool:
    """Whether a line holds two keys of a record, or starts with one and marks no answer."""
    if _RECORD_WORD.search(line) is None or _MARKED.search(line):
        return False
    if _STARTS_RECORD.match(line):
        return True
    keys = {key[1].lower() for key in _KEY.finditer(line)}
    return len(keys) > 1 or (bool(keys) and _ORDERED.search(line) is not None)
