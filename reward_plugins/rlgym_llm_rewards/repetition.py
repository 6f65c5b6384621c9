"""Reward ``repetition``: a penalty for saying the same again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import regex
from pydantic import Field

from rlgym_llm.rewards import Reward, RewardContext
from rlgym_llm.scores import Score
from rlgym_llm.types import Completion, Rollout

__all__ = ["Repetition", "count_ngrams", "words"]

# Scripts that put no space between words: each of their characters stands for a word.
_UNSPACED = (
    r"\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"
    r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
# A word is cut after 32 characters, so that one letter held down is no single word. `regex` knows
# that the vowel signs of many scripts belong to their word; `re` does not, and is faster.
_WORD = regex.compile(rf"[{_UNSPACED}]|(?:(?![{_UNSPACED}])\w){{1,32}}|[^\w\s]")
_ASCII_WORD = re.compile(r"\w{1,32}|[^\w\s]")


@dataclass(frozen=True, kw_only=True)
class Repetition(Reward):
    """``-max_penalty (1 - distinct / total)`` over the n-grams: in [-max_penalty, 0].

    The share of n-grams that are repeats (open-r1's repetition penalty; Yeo et al., arXiv
    2502.03373, penalise the repeating tokens themselves). "a b a b a b" has the 3-grams aba, bab,
    aba, bab: 2 distinct of 4, so -0.5. Texts of fewer than ``ngram`` units have none, and get 0.
    N-grams end with their turn. ``info`` has ``distinct`` and ``total``. Time and memory are
    linear in the text; its n-grams are compared exactly, not by a hash.

    >>> from rlgym_llm.types import Completion, Task, Turn
    >>> turn = Turn(new_prompt_token_ids=(), completion=Completion(text="a b a b a b"))
    >>> rollout = Rollout(id="r", task=Task(prompt="?"), group_id="g", sample_index=0, seed=0,
    ...                   turns=(turn,))
    >>> Repetition().score(rollout, RewardContext()).value
    -0.5
    """

    name = "repetition"
    is_bounded = True
    range = (-1.0, 0.0)

    ngram: Annotated[int, Field(gt=0)] = 3
    """Units in a row that are compared; 3 words is strict with texts of many formulas."""
    unit: Literal["words", "chars", "tokens"] = "words"
    """What an n-gram is made of; `words` says what is one in any language."""
    max_penalty: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    """The penalty of a text that says but one thing, without end."""

    def __post_init__(self) -> None:
        vars(self).update(range=(0.0 - self.max_penalty, 0.0))

    def score(self, rollout: Rollout, ctx: RewardContext) -> Score:
        """The penalty, 0 or less."""
        turns = [self._units(turn.completion) for turn in rollout.turns]
        distinct, total = count_ngrams(turns, self.ngram)
        value = 0.0 - self.max_penalty * (total - distinct) / total if total else 0.0
        return Score(name=self.name, value=value, info={"distinct": distinct, "total": total})

    def _units(self, completion: Completion) -> Sequence[Any]:
        if self.unit == "words":
            return words(completion.text)
        if self.unit == "chars":
            return completion.text
        if completion.text and not completion.token_ids:
            raise ValueError("the completion carries no token ids; use unit: words")
        return completion.token_ids


def words(text: str) -> list[str]:
    """Words without case, and every other sign alone; so in any language.

    A character of a script without spaces between words is a word; a word of more than 32
    characters is cut into several.

    >>> words("Ja, ja!"), words("我我 ok"), words("हिन्दी")
    (['ja', ',', 'ja', '!'], ['我', '我', 'ok'], ['हिन्दी'])
    """
    found: list[str] = (_ASCII_WORD if text.isascii() else _WORD).findall(text.casefold())
    return found


def count_ngrams(turns: Sequence[Sequence[Any]], ngram: int) -> tuple[int, int]:
    """How many n-grams are distinct, and how many there are, over all turns.

    Windows get names, the same to equal ones, and two windows that overlap name a longer one: the
    width doubles, so that log2(ngram) passes suffice.

    >>> count_ngrams(["ababab"], 3)
    (2, 4)
    """
    first: dict[Any, int] = {}
    named = [[first.setdefault(unit, len(first)) for unit in units] for units in turns]
    width, count = 1, len(first)
    while width < ngram:
        step = min(width, ngram - width)
        names: dict[tuple[int, int], int] = {}
        named = [
            [names.setdefault(pair, len(names)) for pair in zip(row, row[step:], strict=False)]
            for row in named
        ]
        width, count = width + step, len(names)
    return count, sum(map(len, named))
