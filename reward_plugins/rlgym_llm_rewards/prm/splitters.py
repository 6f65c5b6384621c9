"""Split a rollout into its steps, each with the exact characters it covers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from rlgym_llm.errors import UserError
from rlgym_llm.types import Rollout

__all__ = ["Split", "Step", "check_split", "split_rollout", "split_text"]

Split = Literal["newline", "blank_line", "sentence", "step", "regex", "separator"]
"""How steps are told apart:

- ``newline``: every line that is not blank.
- ``blank_line``: paragraphs, parted by at least one blank line.
- ``sentence``: ends of lines, and ``.``, ``!``, ``?`` before white space (also their full-width
  forms), but not in ``e.g.``, ``Mr.`` and the like, nor after the number of a list's item.
- ``step``: a line that begins with ``Step 1:`` (or ``Step one:``, ``**Step 1.**``, ``- Step #1 -``)
  opens one, and so does ``Step 1`` where nothing follows it or a heading's ``#`` goes before it.
- ``regex``: what ``pattern`` matches parts two steps and belongs to neither; a pattern of no
  width, such as ``(?=^\\d+\\.)``, cuts where it stands.
- ``separator``: the text ``pattern`` itself, such as ``<extra_0>``, parts two steps.
"""

_STEP_NUMBER = (
    r"step[^\S\n]{1,4}[#(]?(?:\d{1,4}|[ivx]{1,6}|one|two|three|four|five|six|seven|eight|nine|ten"
    r"|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|eighteen|nineteen|twenty)(?![^\W_])"
)
_CUTS: Mapping[str, re.Pattern[str]] = {
    "newline": re.compile(r"\n"),
    "blank_line": re.compile(r"\n[^\S\n]*\n\s*"),
    # Every run is bounded: a line of a million spaces must cost no more than another.
    "step": re.compile(
        r"^(?=[^\S\n]{0,8}[#>*_\-•]{0,8}[^\S\n]{0,4}[*_]{0,3}"
        rf"{_STEP_NUMBER}[^\S\n]{{0,4}}(?:[:.)*_\-–—]|$)"
        rf"|[^\S\n]{{0,8}}#{{1,6}}[^\S\n]{{0,4}}[*_]{{0,3}}{_STEP_NUMBER})",
        re.IGNORECASE | re.MULTILINE,
    ),
    "sentence": re.compile(r"\n|(?<=[.!?])[\"')\]]*\s+|(?<=[。！？])"),
}
_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:e\.g|i\.e|cf|vs|mr|mrs|ms|dr|prof|fig|eq|approx|resp|st)\.$", re.IGNORECASE
)
_ITEM_NUMBER = re.compile(r"\s*[#>*_\-]*\s*(?:step\s+)?\(?(?:\d{1,3}|[a-z])\.$", re.IGNORECASE)
_MAX_ITEM_CHARS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step: its text, where it stands in ``rollout.text``, and in which turn.

    ``text == rollout.text[char_start:char_end]``, without white space at either end.
    """

    text: str
    char_start: int
    char_end: int
    turn: int


def split_text(text: str, split: Split, pattern: str | None = None) -> list[tuple[int, int]]:
    r"""The spans [start, end) of the steps in a text, in order, none of them blank.

    >>> split_text("6 pens.\n\n6 * 2 = 12", "newline")
    [(0, 7), (9, 19)]
    >>> split_text("It costs 3.50 each. Two cost 7.", "sentence")
    [(0, 19), (20, 31)]
    >>> split_text("Let x = 2.\nStep 1: add.\nStep 2: stop.", "step")
    [(0, 10), (11, 23), (24, 37)]
    >>> split_text("6 * 2 = 12<extra_0>so 12", "separator", "<extra_0>")
    [(0, 10), (19, 24)]
    """
    spans = []
    start = 0
    for cut_start, cut_end in [*_cuts(text, split, pattern), (len(text), len(text))]:
        piece = text[start:cut_start]
        if stripped := piece.strip():
            left = start + len(piece) - len(piece.lstrip())
            spans.append((left, left + len(stripped)))
        start = cut_end
    return spans


def split_rollout(rollout: Rollout, split: Split, pattern: str | None = None) -> list[Step]:
    """The steps of every turn in order; no step reaches over a turn's end."""
    steps = []
    offset = 0
    for number, turn in enumerate(rollout.turns):
        text = turn.completion.text
        for start, end in split_text(text, split, pattern):
            step = Step(
                text=text[start:end],
                char_start=offset + start,
                char_end=offset + end,
                turn=number,
            )
            steps.append(step)
        offset += len(text) + 1  # rollout.text joins the turns by one newline
    return steps


def check_split(split: Split, pattern: str | None) -> None:
    """Raises UserError where ``pattern`` is missing, superfluous, or no regular expression."""
    if split not in ("regex", "separator"):
        if pattern is not None:
            raise UserError(f"split: {split} takes no pattern; use split: regex")
        return
    if not pattern:
        raise UserError(f"split: {split} needs a pattern")
    if split == "regex":
        try:
            re.compile(pattern, re.MULTILINE)
        except re.error as wrong:
            raise UserError(f"pattern {pattern!r} is no regular expression: {wrong}") from None


def _cuts(text: str, split: Split, pattern: str | None) -> Iterator[tuple[int, int]]:
    """The spans between steps."""
    if split in ("regex", "separator"):
        source = pattern or ""
        found = re.compile(source if split == "regex" else re.escape(source), re.MULTILINE)
    else:
        found = _CUTS[split]
    start = 0
    for match in found.finditer(text):
        if split == "sentence" and _goes_on(text, start, match.start()):
            continue
        yield match.span()
        start = match.end()


def _goes_on(text: str, start: int, end: int) -> bool:
    """Whether the full stop before ``end`` belongs to an abbreviation or an item's number."""
    if text[end - 1 : end] != ".":
        return False
    is_item = end - start <= _MAX_ITEM_CHARS and _ITEM_NUMBER.match(text[start:end])
    return bool(is_item or _ABBREVIATION.search(text[max(start, end - 12) : end]))
