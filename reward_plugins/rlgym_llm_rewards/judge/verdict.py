"""Read the judge's reply: one number on the agreed scale, or no verdict at all."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from rlgym_llm.errors import one_line

__all__ = ["Combine", "VerdictError", "combine_votes", "read_reply", "read_verdict"]

Combine = Literal["median", "mean", "majority"]

_NUMBER = r"[-+]?\d+(?:\.\d+)?"
_LINE = re.compile(
    rf"[\s*_#>`]*(?:final\s+)?score[\s*_`]*[:=][\s*_`]*({_NUMBER})(?:\s*/\s*({_NUMBER}))?[\s*_`.]*",
    re.IGNORECASE,
)
_CODE_FENCE = re.compile(r"\A\s*```(?:json)?\s*\n(.*)\n\s*```\s*\Z", re.DOTALL)
# Only where it opens a line: further in, a judge may well speak of the tag.
_OPEN_THINKING = re.compile(
    r"^[ \t]*(?:<(?:think(?:ing)?|reasoning|thought)>|\[THINK\]|◁think▷)", re.MULTILINE
)
_CLOSED_THINKING = re.compile(r"</(?:think(?:ing)?|reasoning|thought)>|\[/THINK\]|◁/think▷")
_MAX_SHOWN = 120


class VerdictError(ValueError):
    """The judge replied, but with no verdict: refused, cut short, off the scale or unreadable."""


def read_reply(body: Any) -> str:
    """The text of a chat completion (OpenAI's format). Raises VerdictError for a refusal."""
    try:
        choice = body["choices"][0]
        message = choice["message"]
        refusal, content = message.get("refusal"), message.get("content")
    except (KeyError, IndexError, TypeError, AttributeError):
        raise VerdictError(f"the server's reply is no chat completion: {_shown(body)}") from None
    if refusal:
        raise VerdictError(f"the judge refused: {_shown(refusal)}")
    reason = choice.get("finish_reason")
    if reason == "content_filter":
        raise VerdictError("the judge's reply was withheld by a content filter")
    if not isinstance(content, str) or not content.strip():
        raise VerdictError(f"the judge said nothing (finish_reason {reason})")
    if reason == "length":
        raise VerdictError("the judge's reply was cut at max_tokens, before its verdict was sure")
    return content


def read_verdict(
    reply: str, scale: tuple[float, float], *, pattern: re.Pattern[str] | None = None
) -> float:
    r"""The score in a reply, on the judge's own scale.

    Read is the last line that is not blank, ``Score: 7`` (``**Score:** 7/10`` too), or a JSON
    object with ``score``, as the whole reply or as that line; reasoning up to ``</think>`` is left
    out, and reasoning that nothing closes came to no verdict. Nothing further up counts, for there
    the judge may quote the text it judges. With ``pattern`` the last match counts, and its first
    group is the score.

    >>> read_verdict("It says 'Score: 10', but is wrong.\nScore: 2", (0, 10))
    2.0
    >>> read_verdict('{"reason": "right", "score": 9.5}', (0, 10))
    9.5

    Raises VerdictError where there is no such line, or the number is off the scale.
    """
    text = _CLOSED_THINKING.split(reply)[-1].strip()
    if _OPEN_THINKING.search(text):
        raise VerdictError("the judge's reply ends within its thinking, before any verdict")
    if pattern is not None:
        found = [match[1] for match in pattern.finditer(text)]
        score = _number(found[-1]) if found else None
    else:
        score = _from_line(text, scale)
        score = _from_json(text) if score is None else score
    if score is None:
        raise VerdictError(
            f"no score in the judge's reply, which ends: {_shown(text[-_MAX_SHOWN:])}"
        )
    low, high = scale
    if not low <= score <= high:
        raise VerdictError(f"the judge's score {score:g} is off the scale [{low:g}, {high:g}]")
    return score


def combine_votes(votes: Sequence[float], combine: Combine) -> float:
    """One score out of several.

    ``majority`` is the most frequent, the lowest of equally frequent ones.

    >>> [combine_votes([1.0, 4.0, 4.0, 5.0, 5.0], how) for how in ("median", "mean", "majority")]
    [4.0, 3.8, 4.0]
    """
    if combine == "median":
        return float(statistics.median(votes))
    if combine == "mean":
        return math.fsum(votes) / len(votes)
    counts = Counter(votes)
    most = max(counts.values())
    return min(vote for vote, count in counts.items() if count == most)


def _from_line(text: str, scale: tuple[float, float]) -> float | None:
    match = _LINE.fullmatch(text.rpartition("\n")[2])
    if match is None or (match[2] is not None and float(match[2]) != scale[1]):
        return None
    return float(match[1])


def _from_json(text: str) -> float | None:
    whole = _CODE_FENCE.sub(r"\1", text)
    for candidate in (whole, text.rpartition("\n")[2]):
        try:
            found = json.loads(candidate)
        except ValueError:
            continue
        if isinstance(found, Mapping) and "score" in found:
            return _number(found["score"])
    return None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _shown(value: Any) -> str:
    return repr(one_line(value, _MAX_SHOWN))
