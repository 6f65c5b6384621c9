"""Reward ``format``: 1 where the completion is written the way it was asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from rlgym_llm.rewards import Reward, RewardContext
from rlgym_llm.types import Rollout, Score
from rlgym_llm_rewards.math.extraction.boxes import boxes
from rlgym_llm_rewards.math.number import parse_number

__all__ = ["Format"]

Style = Literal["hash", "boxed", "think_answer"]


@dataclass(frozen=True, kw_only=True)
class Format(Reward):
    r"""``[the completion has the style]``: 1.0 or 0.0. ``info["reason"]`` says what is amiss.

    - ``hash`` (GSM8K): exactly one line ``#### number``, and it is the last line that is not empty.
    - ``boxed`` (MATH): exactly one ``\boxed{...}``, balanced and not empty.
    - ``think_answer`` (DeepSeek-R1, arXiv 2501.12948): ``<think>...</think>`` then
      ``<answer>...</answer>``, each tag once, neither part empty, only white space around them.

    Of several turns the last is read.
    """

    name = "format"

    style: Style = "hash"
    require_reasoning: bool = False
    """Ask for text beside the answer in the styles ``hash`` and ``boxed``."""

    def score(self, rollout: Rollout, ctx: RewardContext) -> Score:
        """1.0 where nothing is amiss."""
        text = rollout.turns[-1].completion.text if rollout.turns else ""
        reason = _CHECKS[self.style](text, self.require_reasoning)
        info = {"style": self.style, "reason": reason}
        return Score(name=self.name, value=float(reason is None), info=info)


def _check_hash(text: str, require_reasoning: bool) -> str | None:
    body, _, last_line = text.rstrip().rpartition("\n")
    if not _is_answer_line(last_line):
        return "the last line is no '#### number'"
    if any(map(_is_answer_line, body.split("\n"))):
        return "there is more than one '#### number' line"
    if require_reasoning and not body.strip():
        return "there is no reasoning before the answer"
    return None


def _is_answer_line(line: str) -> bool:
    line = line.strip()
    return line.startswith("####") and parse_number(line[4:]) is not None


def _check_boxed(text: str, require_reasoning: bool) -> str | None:
    found = boxes(text)
    if len(found) != 1 or text.count("\\boxed") != 1:
        return "there is not exactly one balanced \\boxed{}"
    if not found[0].text:
        return "the \\boxed{} is empty"
    if require_reasoning and not text[: found[0].start].strip():
        return "there is no reasoning before the answer"
    return None


def _check_think_answer(text: str, require_reasoning: bool) -> str | None:
    rest = text
    parts = []
    for tag in ("<think>", "</think>", "<answer>", "</answer>"):
        if text.count(tag) != 1:
            return f"{tag} stands there {text.count(tag)} times, not once"
        before, found, rest = rest.partition(tag)
        if not found:
            return f"{tag} is out of order"
        parts.append(before.strip())
    before, thinking, between, answer = parts
    if before or between or rest.strip():
        return "there is text outside the tags"
    if not thinking or not answer:
        return "the thinking or the answer is empty"
    return None


_CHECKS: Mapping[Style, Callable[[str, bool], str | None]] = {
    "hash": _check_hash,
    "boxed": _check_boxed,
    "think_answer": _check_think_answer,
}
