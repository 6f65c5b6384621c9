"""The verdict: right or wrong, and all that it rests on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Verdict", "VerdictStatus"]


_LONGEST = 200


class VerdictStatus(StrEnum):
    """What came of one comparison. Only ``correct`` earns anything."""

    CORRECT = "correct"
    WRONG = "wrong"
    NO_ANSWER = "no_answer"
    """The completion states no final answer where the policy looks for it."""
    AMBIGUOUS = "ambiguous"
    """Several final answers, and no decision between them: "5 or 6"."""
    UNPARSABLE = "unparsable"
    """An answer is there, but it cannot be read."""
    LIMIT = "limit"
    """The answer is too large, too deep or too costly to be worked out."""
    TIMEOUT = "timeout"
    """The symbolic comparison reached its deadline or its worker died; ``reason`` says which."""
    BAD_GOLD = "bad_gold"
    """The gold answer itself cannot be read: nothing was judged."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict and what it rests on."""

    status: VerdictStatus
    rule: str = ""
    """The rule that decided, such as ``number``, ``exact`` or ``symbolic``."""
    answer: str | None = None
    """The answer as it was written, None where there was none."""
    where: str | None = None
    """Where in the completion it stood, such as ``boxed`` or ``phrase``."""
    answer_form: str | None = None
    """The answer's normal form, None where it was not needed or could not be made."""
    gold: str | None = None
    """The gold answer as it was read out of the text given."""
    gold_form: str | None = None
    """The gold answer's normal form."""
    reason: str | None = None
    """Why there is no verdict, in words."""

    def as_info(self) -> dict[str, str | None]:
        """The verdict as plain data, long texts cut: what a score carries along.

        >>> Verdict(VerdictStatus.WRONG, "number", "5").as_info()["rule"]
        'number'
        """
        info = {
            "status": str(self.status),
            "rule": self.rule,
            "answer": self.answer,
            "where": self.where,
            "answer_form": self.answer_form,
            "gold": self.gold,
            "gold_form": self.gold_form,
            "reason": self.reason,
        }
        if sum(map(len, filter(None, info.values()))) > _LONGEST:
            info = {key: _cut(text) for key, text in info.items()}
        return info

    @property
    def is_correct(self) -> bool:
        """Whether the answer is right."""
        return self.status is VerdictStatus.CORRECT


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
