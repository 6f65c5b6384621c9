"""Decide whether a completion's final answer equals the gold answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Literal

from rlgym_llm_rewards.extract import Answer, Where, last_marked, last_number
from rlgym_llm_rewards.number import Number, parse_number

__all__ = ["Policy", "Verdict", "VerdictStatus", "verify"]

Policy = Literal["strict", "lenient"]
"""``strict`` reads marked answers only; ``lenient`` takes the text's last number otherwise."""


class VerdictStatus(StrEnum):
    """What came of one comparison."""

    CORRECT = "correct"
    WRONG = "wrong"
    NO_ANSWER = "no_answer"
    """The completion states no final answer where the policy looks for it."""
    UNPARSABLE = "unparsable"
    """An answer is there, but it is no number that can be read."""
    BAD_GOLD = "bad_gold"
    """The gold answer itself cannot be read: nothing was judged."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict and what it rests on."""

    status: VerdictStatus
    answer: str | None = None
    """The answer as it was written, None where there was none."""
    where: Where | None = None
    """Where in the completion it stood."""
    gold: str | None = None
    """The gold answer as it was read out of the text given."""

    @property
    def is_correct(self) -> bool:
        """Whether the answer is right."""
        return self.status is VerdictStatus.CORRECT


def verify(completion: str, gold: str, *, policy: Policy = "strict") -> Verdict:
    r"""Compares the completion's last marked answer with the gold one, as exact numbers.

    ``gold`` is an answer or a whole solution that ends in ``#### answer``, as in GSM8K. Never
    raises on text, and takes time linear in it.

    >>> verify("12 + 60 = 72\n#### 72", "He sold 72.\n#### 72").status
    <VerdictStatus.CORRECT: 'correct'>
    >>> verify("so it is 72", "72").status, verify("so it is 72", "72", policy="lenient").where
    (<VerdictStatus.NO_ANSWER: 'no_answer'>, 'last_number')
    """
    gold_text, gold_number = _read_gold(gold)
    if gold_number is None:
        return Verdict(VerdictStatus.BAD_GOLD, gold=gold_text)
    answer = last_marked(completion)
    number = parse_number(answer.text) if answer is not None else None
    if number is None and policy == "lenient":
        found = last_number(completion)
        if found is not None:
            answer, number = found, parse_number(found.text)
    status = _judge(answer, number, gold_number)
    if answer is None:
        return Verdict(status, gold=gold_text)
    return Verdict(status, answer.text, answer.where, gold_text)


def _judge(answer: Answer | None, number: Number | None, gold: Number) -> VerdictStatus:
    if answer is None or not answer.text:
        return VerdictStatus.NO_ANSWER
    if number is None:
        return VerdictStatus.UNPARSABLE
    return VerdictStatus.CORRECT if number.same_as(gold) else VerdictStatus.WRONG


@lru_cache(maxsize=4096)  # siblings share their gold
def _read_gold(gold: str) -> tuple[str, Number | None]:
    marked = last_marked(gold)
    text = marked.text if marked is not None else gold.strip()
    return text, parse_number(text)
