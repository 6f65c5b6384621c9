"""Reward ``exact_match``: 1 where the text is the answer."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

from rlgym_llm.rewards import Reward, RewardContext
from rlgym_llm.types import Rollout

__all__ = ["ExactMatch"]

_PUNCTUATION = re.compile(r"[!-/:-@\[-`{-~]")
_SPACES = re.compile(r"\s+")
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


@dataclass(frozen=True, kw_only=True)
class ExactMatch(Reward):
    r"""``[text == answer]``: 1.0 where all sampled text equals ``task.answer``, else 0.0.

    The options say what is set aside on both sides; with the defaults ``" 42\n"`` matches ``"42"``
    and ``"Yes"`` does not match ``"yes"``. ``squad`` is the normalisation of SQuAD (arXiv
    1606.05250, its evaluation script): case, ASCII punctuation, the articles a, an, the, and
    runs of white space, so that ``"The Eiffel tower."`` matches ``"eiffel tower"``.

    >>> ExactMatch(squad=True).normal("The Eiffel tower.")
    'eiffel tower'
    """

    name = "exact_match"
    needs = ("answer",)

    strip: bool = True
    """Ignore white space around both."""
    casefold: bool = False
    """Ignore case, in any script."""
    spaces: bool = False
    """Take every run of white space for one space."""
    unicode: Literal["NFC", "NFKC"] | None = None
    """Normalise Unicode: ``NFC`` takes "é" in one character or two for the same, ``NFKC`` also
    full-width forms and ligatures for their letters; None compares what was written."""
    squad: bool = False
    """Compare as SQuAD does."""

    def score(self, rollout: Rollout, ctx: RewardContext) -> bool:
        """Whether the texts are equal."""
        return self.normal(rollout.text) == self.normal(rollout.task.answer or "")

    def normal(self, text: str) -> str:
        """The text without what the options set aside."""
        if self.unicode is not None:
            text = unicodedata.normalize(self.unicode, text)
        if self.squad:
            text = _ARTICLE.sub(" ", _PUNCTUATION.sub("", text.lower()))
        if self.squad or self.spaces:
            text = _SPACES.sub(" ", text)
        if self.strip or self.squad:
            text = text.strip()
        return text.casefold() if self.casefold else text
