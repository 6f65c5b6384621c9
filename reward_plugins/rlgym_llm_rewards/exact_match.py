"""Reward ``exact_match``: 1 where the text is the answer."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

from rlgym_llm.errors import ConfigError
from rlgym_llm.rewards import Reward, RewardContext
from rlgym_llm.scores import Score
from rlgym_llm.types import Rollout

__all__ = ["ExactMatch"]

_PUNCTUATION = re.compile(r"[!-/:-@\[-`{-~]")
_SPACES = re.compile(r"\s+")
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_MAX_ANSWER_CHARS = 500


@dataclass(frozen=True, kw_only=True)
class ExactMatch(Reward):
    r"""``[text == answer]``: 1.0 where all sampled text equals ``task.answer``, else 0.0.

    The options say what is set aside on both sides; with the defaults ``" 42\n"`` matches ``"42"``
    and ``"Yes"`` does not match ``"yes"``. ``squad`` is the normalisation of SQuAD (arXiv
    1606.05250, its evaluation script): case, ASCII punctuation, the articles a, an, the, and
    runs of white space, so that ``"The Eiffel tower."`` matches ``"eiffel tower"``.
    ``info["answer"]`` is the text as it was compared, unless it is longer than 500 characters.

    >>> ExactMatch(squad=True).normal("The Eiffel tower.")
    'eiffel tower'
    """

    name = "exact_match"
    is_bounded = True
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

    def __post_init__(self) -> None:
        """Raises ConfigError for white space that is to count under ``squad``."""
        if self.squad and not self.strip:
            raise ConfigError("reward 'exact_match': squad sets white space aside; leave out strip")

    def score(self, rollout: Rollout, ctx: RewardContext) -> Score:
        """Whether the texts are equal."""
        said = self.normal(rollout.text)
        info = {"answer": said} if len(said) <= _MAX_ANSWER_CHARS else {}
        value = float(said == self.normal(rollout.task.answer or ""))
        return Score(name=self.name, value=value, info=info)

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
