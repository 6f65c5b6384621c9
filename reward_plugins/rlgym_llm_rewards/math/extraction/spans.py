r"""Find what running text writes as mathematics: ``$...$``, ``\(...\)``, numbers, letters."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

from rlgym_llm.lazy_pattern import lazy_pattern

__all__ = [
    "NUMBER",
    "SCRIPT",
    "THOUSANDS",
    "Piece",
    "first_math",
    "is_math",
    "last_math",
    "last_number",
    "math_spans",
    "tidy",
    "without_commands",
]

_EDGE = ' \t\n\r\f\v\0*`"“”\u00a0\u200b\u200c\u200d\u2060\u3000\ufeff'
# Direction marks and isolates (no overrides), arrows, emoji, check marks (no crosses).
_SYMBOLS = [
    (0x200E, 0x200F),
    (0x2066, 0x2069),
    (0x2190, 0x21FF),
    (0x25A0, 0x25B1),
    (0x2600, 0x2714),
]
_SYMBOLS += [(0x2719, 0x274B), (0x274D, 0x27BF), (0x2B00, 0x2BFF), (0xFE0E, 0xFE0F)]
_SYMBOLS += [(0x1F000, 0x1FAFF)]
_EDGES = _EDGE + "".join(chr(code) for first, last in _SYMBOLS for code in range(first, last + 1))
_ENDS_IN = (".", "。", "\\", "~", "_", "$", *(f"\\{space}" for space in (*",;:!", "quad", "qquad")))
_STARTS_WITH = ("\\", "~")
_LEADING = lazy_pattern(r"(?:[\s~]|\\(?:[,;:!\s]|q?quad(?![A-Za-z])|\\(?![A-Za-z{}])))++")
_LABEL = lazy_pattern(
    r"\\(?:text\w*|mathrm|mbox)\s*\{[^{}]*?(?:[A-Za-z]{3}[^{}]*\}\s*[=:]|:\s*\})\s*(?=\S)"
)

_DELIMITER = lazy_pattern(r"(?<!\\)\$\$?|(?<!\\)\\[()\[\]]")
_CLOSING_DOLLAR = lazy_pattern(r"\$(?!\d|<<)")
_CLOSING = {"$": "$", "$$": "$$", r"\(": r"\)", r"\[": r"\]"}
_NO_WORDS = lazy_pattern(
    r"\\(?:text\w*|math[a-z]+|mbox|operatorname|begin|end)\s*\{[^{}]*+\}|\\(?:[A-Za-z]++|[,;:!])"
)
_WORD = lazy_pattern(r"[^\W\d_]{3,}")
_DANGLING = lazy_pattern(r"(?:\band|\bor|[-+=,])\s*\Z")
_MAYBE = r"(?:maybe|perhaps|possibly|alternatively)"
_JOINT = lazy_pattern(
    rf"\s*(?:[,;/&]|,?\s*(?:and|(?:or\s+)?{_MAYBE}|or|et|ou|und|oder|y|o|e|и|или|和|或|及|与))?\s*"
)
# What other languages, and doubt, put between two values.
_OTHER_JOINT = lazy_pattern(
    rf"""(?<=[\d)}}\]%])
    (?: (?P<or>,?\s+(?:oder|ou|или)\s+ | (?<=\d)\s+o\s+(?=[-−]?\d) | \s*或者?\s*
          | [,;]?\s\(?(?:or\s+)?{_MAYBE}\s+ )
      | \s+(?:et|und|и)\s+ | \s*[和与及、]\s* | (?<=\d)\s+[ye]\s+(?=[-−]?\d) )
    (?=(?:[A-Za-z]\s?=\s?)?[-−]?[$\\(\[√\d])""",
    re.VERBOSE,
)
_TIE = lazy_pattern(r"(?<=\d)~(?=\d{3}(?!\d))")

_UNIT = r"""(?:
    \s?(?:\\?%|‰|°\s?[CF]?|\^?\{?\\(?:degree|circ)\b\}?|[€£¥](?!\d)|\\?\$(?![\w\\(]))
  | \s?(?:percent(?:age)?|pct|degrees?|dollars?|cents?|euros?|pounds?|hours?|minutes?|seconds?
      |hundred|thousand|million|billion|trillion|dozen|days?|weeks?|months?|years?|meters?|metres?|feet|foot|inches|miles?|grams?|kilograms?|liters?
      |[ap]\.m\.|[AP]\.M\.|am|pm|AM|PM|km/h|m/s|mph|[mcdk]?m|[mk]?g|mL|ml|[Ll]|lbs?|oz|ft|yd|hrs?|h|min|s)(?:[²³]|\^\{?[23]\}?)?(?![A-Za-z])
  | [A-Za-zµ]++[²³]?+ )"""
THOUSANDS = r"(?<!\d[ ])[1-9]\d{0,2}(?:(?:[ ~\u00a0\u2009\u202f]|\\,)\d{3})+(?![\d/-]|[ ]\d)"
"""Groups of three digits that spaces part: 1 250 000. A row of numbers is longer or has others."""
_DIGITS = rf"(?:{THOUSANDS}(?:[.,]\d++)?+|\d++(?:[.,]\d++|\{{,\}}\d++|\\,\d{{3}})*+|\.\d++)"
NUMBER = rf"""
    (?:(?<![\w)\]}}.])[-+−]\s?)?+ (?:\\?\$\s?|[€£¥]\s?)?+ (?:(?<=[$€£¥])[-−])?+
    (?<![A-Za-z_\d.]){_DIGITS} (?:(?:[ ]:[ ]|:){_DIGITS})*+
    (?:[ ]\d++/\d++|[ ]?/[ ]?{_DIGITS})?+
    (?:[eE][-+]?\d++|[ ]?[×x*][ ]?10(?:\s?\^\s?\{{?[-−]?\d++\}}?|[⁻⁺]?[⁰¹²³⁴-⁹]++))?+
    (?:[ ]?[¼½¾⅓⅔⅛⅜⅝⅞])?+ [²³]*+ (?:,(?=\D|$))?(?<!,)
    {_UNIT}?+"""
"""A number in running text: sign, currency, time or ratio, fraction, power of ten, unit."""

_NAME = r"(?:[A-Za-zπθ∞](?![^\W\d_]|['’]s)|(?:sqrt|pi|sin|cos|tan|log|ln|exp)(?![A-Za-z]))"
_ATOM = rf"""[(\[{{|√]*+ (?:{NUMBER} | (?<![^\W\d]){_NAME})
    (?: [)\]}}|!⁻⁺⁰¹²³⁴-⁹]++ | [_^]\{{?[-−]?\w++\}}? )*+"""
# Atoms joined by operators, or standing without a space beside a bracket.
_EXPRESSION = lazy_pattern(
    rf"(?>{_ATOM}(?:(?:[ ]?(?:[-+−*/×÷·^]|\*\*)[ ]?|(?=[(\[√πA-Za-z])){_ATOM})*+)",
    re.VERBOSE,
)
SCRIPT = (
    r"(?![万億亿百兆]|千(?![克米]))(?=[\u0400-\u065f\u066e-\u06ef\u0900-\u0965\u0e00-\u1fff"
    r"\u3001-\u9fff\uac00-\ud7af\uff01-\uff0f])"
)
"""Before a letter or sign of a script in which units and words follow a number without a space."""
_SIMPLE = lazy_pattern(r"[-−]?[$€£¥]?\d+(?:[.,]\d+)*")
_SUFFIX = lazy_pattern(rf"(?:{_UNIT})?+", re.VERBOSE)
_ENDS = lazy_pattern(r"(?=[\s.,;:!?)*`\"'”’<]|$)(?!\s?[¼½¾⅓⅔⅛⅜⅝⅞])|" + SCRIPT)
_NAMED = r"([A-Za-z])(?:_?\d|[₀-₉])?\s?=\s?"
_LIST_JOINT = lazy_pattern(
    rf"""(?: \s?,\s?(?:(?:and|or)\s)?(?:{_MAYBE}\s)? | \s?;\s?
      | \s(?:and|or|et|ou|und|oder|y|e|o|и|или)\s(?:{_MAYBE}\s)? | [和或及与、] ) (?:{_NAMED})?""",
    re.VERBOSE,
)
_NAME_BEFORE = lazy_pattern(rf"(?<![^\W\d]){_NAMED}\Z")
_NAMES = lazy_pattern(rf"(?<![^\W\d]){_NAMED}")
_SAYS_LIST = lazy_pattern(r"(?:\b(?:is|are|be|either)|[:=：])\s*\Z")
_LAST_WORD = lazy_pattern(
    rf"(?:\b(?:or|and|not|be|ou|o|oder|et|y|e|und|{_MAYBE})|или|и|n['’]t|\d(?:\s:)?|[^\w\s=:：.]"
    rf"|(?:\b(?:and|or)|,)\s{_NAMED})\s*\Z"
)
_UNREAD = lazy_pattern(r"\s?(?:[+^]|\*(?!\*))\s?\w")  # 10+John's age
_OPENED, _CLOSED = lazy_pattern(r"[(\[{]"), lazy_pattern(r"[)\]}]")
_BALANCED = lazy_pattern(r"[^()\[\]{}]*")


class Piece(NamedTuple):
    """A piece of a text, and what it says without its delimiters."""

    start: int
    end: int
    text: str


def tidy(text: str) -> str:
    r"""The text without what only sets it off: space, emphasis, a closing full stop, a label.

    >>> tidy(" **42.**"), tidy("1, 2, ..."), tidy(r"\,\sqrt{2}\ "), tidy(r"$\text{Area} = 9.$")
    ('42', '1, 2, ...', '\\sqrt{2}', '9')
    >>> tidy("2 и 5"), tidy("5 oder 6")
    ('2 and 5', '5 or 6')
    """
    if text.isdecimal():
        return text
    text = text.strip(_EDGE if text.isascii() else _EDGES)
    if "~" in text:
        text = _TIE.sub(" ", text)
    if " " in text or not text.isascii():
        text = _OTHER_JOINT.sub(lambda joint: " or " if joint["or"] else " and ", text)
    if text.endswith(_ENDS_IN) or text.startswith(_STARTS_WITH):
        return _pared(text)
    return text


def _pared(text: str) -> str:
    lead = _LEADING.match(text)
    start, end = lead.end() if lead else 0, len(text)
    is_emphasized = False
    while start < end and (text[end - 1] in _EDGES or text.endswith(_ENDS_IN, start, end)):
        last = text[end - 1]
        if last == "$" or text.endswith("..", start, end):
            break
        is_emphasized |= last == "_"
        # A macro goes whole: its backslash is the last one.
        is_macro = last.isalpha() or (last in ",;:!" and text[end - 2] == "\\")
        end = text.rindex("\\", start, end) if is_macro else end - 1
    while is_emphasized and start < end and text[start] == "_":
        start += 1
    text = text[start:end]
    if text.startswith("$") and text.endswith("$"):
        inner = text.strip("$")
        if inner and "$" not in inner.replace("\\$", ""):
            return tidy(inner)
    label = _LABEL.match(text)
    if label and text.count("\\text") < 2:
        return tidy(text[label.end() :])
    return text


def is_math(inner: str) -> bool:
    """Whether the inside of a delimiter pair is no prose: two dollar amounts enclose some."""
    if not inner.strip() or "\n\n" in inner or _DANGLING.search(inner):
        return False
    return len(_WORD.findall(without_commands(inner))) <= 2


def without_commands(text: str) -> str:
    r"""The text without its LaTeX commands and what ``\text{...}`` and its kin hold."""
    return _NO_WORDS.sub("", text)


def math_spans(text: str) -> list[Piece]:
    r"""The delimited math in a text, in order. Dollar signs of amounts delimit none.

    >>> [span.text for span in math_spans(r"It costs $5 to $7, so $x=6$ and \(y = 1\).")]
    ['x=6', 'y = 1']
    """
    # No dollar sign that could close: each is followed by an amount.
    if "\\" not in text and not ("$" in text and _CLOSING_DOLLAR.search(text)):
        return []
    marks = list(_DELIMITER.finditer(text))
    spans: list[Piece] = []
    index = 0
    while index < len(marks):
        mark = marks[index]
        index += 1
        closing = _CLOSING.get(mark[0])
        # A display may hold others: \[ x \text{ if $y$} \].
        within = 1 if closing in ("$", "$$") else 8
        for ahead, other in enumerate(marks[index : index + within], index + 1):
            if other[0] == closing:
                inner = text[mark.end() : other.start()]
                if _delimits(mark[0], inner, text[other.end() : other.end() + 1]):
                    spans.append(Piece(mark.start(), other.end(), tidy(inner)))
                    index = ahead
                break
    return spans


def _delimits(mark: str, inner: str, behind: str) -> bool:
    if mark == "$" and (behind.isdecimal() or inner[:1].isspace() != inner[-1:].isspace()):
        return False
    if inner[:1] in ("?", "!"):  # the signs of two amounts enclose the end of a sentence
        return False
    return is_math(inner)


def first_math(text: str, spans: list[Piece]) -> Piece:
    """The first of the spans with those joined to it: ``$3$ and $4$`` is ``3 and 4``."""
    last = 0
    while last + 1 < len(spans) and _joined(text, spans[last], spans[last + 1]):
        last += 1
    return _group(text, spans[: last + 1])


def last_math(text: str, spans: list[Piece]) -> Piece:
    """The last of the spans with those joined to it."""
    first = len(spans) - 1
    while first > 0 and _joined(text, spans[first - 1], spans[first]):
        first -= 1
    return _group(text, spans[first:])


def _joined(text: str, left: Piece, right: Piece) -> bool:
    return right.start - left.end < 20 and bool(_JOINT.fullmatch(text, left.end, right.start))


def _group(text: str, spans: list[Piece]) -> Piece:
    said = spans[0].text
    for left, right in pairwise(spans):
        said += text[left.end : right.start] + right.text
    end = spans[-1].end
    suffix = _SUFFIX.match(text, end)
    if suffix and suffix.end() > end and not text[end].isalpha():
        said, end = said + suffix[0], suffix.end()
    return Piece(spans[0].start, end, said)


def last_number(text: str, end: int, num_parts: int = 1) -> Piece | None:
    """The number, or plain expression, whose last digit stands before ``end``.

    Numbers joined by "and" or "or" are given together; those joined by commas alone where they
    follow "is", "are", a colon or an equals sign, or where several are asked for.

    >>> text = "It takes 12 - 5 = 7 days."
    >>> last_number(text, text.rindex("7") + 1).text
    '7 days'
    """
    # Nearly always the last word is the number, and the one before it no operator.
    start = max(text.rfind(" ", 0, end), text.rfind("\n", 0, end)) + 1
    is_operand = _LAST_WORD.search(text, max(start - 14, 0), start)
    if _SIMPLE.fullmatch(text, start, end) and not is_operand:
        suffix = _SUFFIX.match(text, end)
        stop = suffix.end() if suffix else end
        if _ENDS.match(text, stop):
            return Piece(start, stop, text[start:stop])
    line = max(text.rfind("\n", 0, end) + 1, end - 1000)
    pieces = [
        match
        for match in _EXPRESSION.finditer(text, line, min(len(text), end + 40))
        if match.start() < end
        and any(map(str.isdecimal, match[0]))
        and not _NAMES.match(text, match.start())
    ]
    if not pieces:
        return None
    first = len(pieces) - 1
    words = False
    while first > 0:
        joint = _LIST_JOINT.fullmatch(text, pieces[first - 1].end(), pieces[first].start())
        if joint is None or (joint[1] and _name_before(text, pieces[first - 1]) != joint[1]):
            break
        words |= any(map(str.isalpha, joint[0]))
        first -= 1
    start = pieces[first].start()
    says_list = _SAYS_LIST.search(text, max(start - 12, 0), start) or text[start] in "([{"
    if not (words or says_list or num_parts > 1):
        start = pieces[-1].start()
    stop = pieces[-1].end()
    if _UNREAD.match(text, stop):
        return None
    said = _NAMES.sub("", text[start:stop])
    # Brackets of two kinds may close each other: (1, 5].
    if len(_OPENED.findall(said)) != len(_CLOSED.findall(said)):
        said = said.strip("()[]{}")
        if not _BALANCED.fullmatch(said):
            return None
    return Piece(start, stop, said)


def _name_before(text: str, number: re.Match[str]) -> str | None:
    """The name that the number is set equal to: ``x`` in "x = 3"."""
    name = _NAME_BEFORE.search(text, max(number.start() - 8, 0), number.start())
    return None if name is None else name[1]
