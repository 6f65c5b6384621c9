"""Reward ``multiple_choice``: 1 where the completion decides for the right choice."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import Field

from rlgym_llm.errors import ConfigError
from rlgym_llm.inject import prompt_text
from rlgym_llm.rewards import Reward, RewardContext
from rlgym_llm.scores import Score, ScoreStatus
from rlgym_llm.types import Rollout, Task
from rlgym_llm_rewards.choice_list import ChoiceList, choice_list, repeated_text
from rlgym_llm_rewards.math.extraction.denial import is_denied
from rlgym_llm_rewards.math.extraction.extract import extract
from rlgym_llm_rewards.math.extraction.found import Found
from rlgym_llm_rewards.math.extraction.visible import without_thinking
from rlgym_llm_rewards.math.policy import Extraction, get_policy

__all__ = ["MultipleChoice"]

_MARKED = ("boxed", "hash", "tag", "phrase")
_MAX_MARKED = 2
"""Different choices that a completion may mark, one after the other: a second thought is one."""
_MAX_TRIES = 8
_MAX_LINE = 500
_MAX_BEFORE = 4000
_VERB = re.compile(r"(?:\b(?:is|are|was|were|be)\b|[:=]|\.\s|\n)\s*")
_OPTION_LINE = r"^[ \t>*_-]{0,8}\(?([A-J])(?:[).:]|\*\*)[^\n]*(?:\n|\Z)"
_LISTING = re.compile(rf"(?:{_OPTION_LINE}\n{{0,2}}){{2,}}", re.MULTILINE)
_OPTION = re.compile(_OPTION_LINE, re.MULTILINE)
_LONG_ENOUGH = 20


@dataclass(frozen=True, kw_only=True)
class MultipleChoice(Reward):
    r"""``[the one choice decided for is task.answer]``: 1.0 or 0.0.

    The final answer is found as `math` finds one (a box, ``####``, an answer tag, "the answer is",
    else the last statement); it names a choice by its letter, A to J, or by its text. Choices
    named together ("A or B"), all of them listed, a letter beside another choice's text, a choice
    that is denied ("not B"), and an answer within thinking earn nothing; one beside a choice that
    is set aside ("Rome, not Oslo") is decided for. Of two choices marked one after the other the
    last counts, as a second thought; three are a list, and earn nothing.

    The gold is a letter, the text of a choice, or with ``index_base`` a position. A gold that is
    no choice is an error, never a reward. ``info`` has ``answer`` (the choice decided for, None
    without one; ``chosen`` is the same), ``named``, ``gold``, ``where``.

    >>> from rlgym_llm.types import Completion, Task, Turn
    >>> task = Task(prompt="The capital of Italy?", answer="B", info={"choices": ["Oslo", "Rome"]})
    >>> def score(text):
    ...     turn = Turn(new_prompt_token_ids=(), completion=Completion(text=text))
    ...     rollout = Rollout(id="r", task=task, group_id="g", sample_index=0, seed=0,
    ...                       turns=(turn,))
    ...     return MultipleChoice().score(rollout, RewardContext()).value
    >>> score("So the answer is (B)."), score("Rome"), score("A or B"), score("It is not B.")
    (1.0, 1.0, 0.0, 0.0)
    """

    name = "multiple_choice"
    is_bounded = True
    needs = ("answer",)

    choices: str | tuple[str, ...] | None = None
    """The column that holds the choices (a list of texts, texts by label, or ``{label, text}``), or
    the texts themselves; None takes the column ``choices`` where a row has one."""
    num_choices: Annotated[int, Field(ge=2, le=10)] | None = None
    """How many letters there are where the texts are not known; None for A to J."""
    index_base: Literal[0, 1] | None = None
    """Where the gold is a position: what the first choice counts as."""
    extraction: Extraction = "standard"
    """Where an answer is looked for, as in `Policy`; ``strict`` takes marked ones only."""

    def __post_init__(self) -> None:
        """Raises ConfigError for choices that are none."""
        if isinstance(self.choices, str):
            vars(self).update(needs=("answer", self.choices))
        elif self.choices is not None:
            try:
                twice = repeated_text(choice_list(self.choices))
            except ValueError as wrong:
                raise ConfigError(f"reward 'multiple_choice', choices: {wrong}") from None
            if twice is not None:
                raise ConfigError(f"reward 'multiple_choice', choices: {twice!r} is given twice")
        if self.choices is not None and self.num_choices is not None:
            raise ConfigError("reward 'multiple_choice': give choices or num_choices, not both")

    def score(self, rollout: Rollout, ctx: RewardContext) -> Score:
        """1.0 where the answer names the gold choice and no other."""
        known = self._choices(rollout.task)
        answer = rollout.task.answer or ""
        gold = known.of_gold(answer, self.index_base)
        if gold is None:
            shown = repr(answer if len(answer) <= 80 else answer[:77] + "...")
            error = (
                f"the gold answer {shown} of task {rollout.task.id} is none of the choices "
                f"{', '.join(known.labels)}, nor one's text"
            )
            return Score(name=self.name, value=None, status=ScoreStatus.ERROR, error=error)
        named, where = self._named(rollout, known)
        chosen = named[0] if len(named) == 1 else None
        info = {
            "answer": chosen,
            "chosen": chosen,
            "named": list(named),
            "gold": gold,
            "where": where,
        }
        return Score(name=self.name, value=float(named == (gold,)), info=info)

    def _choices(self, task: Task) -> ChoiceList:
        if isinstance(self.choices, tuple):
            return choice_list(self.choices)
        return choice_list(task.info.get(self.choices or "choices"), self.num_choices)

    def _named(self, rollout: Rollout, known: ChoiceList) -> tuple[tuple[str, ...], str | None]:
        """The choices that the completion's answer names, and where that stood."""
        text = _LISTING.sub(_without_listing, rollout.text)
        prompt = _question(prompt_text(rollout.task), known)
        found = self._found(text, prompt)
        if (found is None or found.where not in _MARKED) and self.extraction != "strict":
            kept = _without_denied(text, known)
            if kept != text:
                text, found = kept, self._found(kept, prompt)
        named = () if found is None else known.named(found.text)
        if found is None or not (named or found.where in _MARKED):
            if self.extraction == "strict":
                return (), None
            return known.with_text(_last_words(_last_line(text))), "text"
        where = found.where
        at = text.find(found.text, found.start)
        if len(named) == 1 and at >= 0:
            line = text[at : at + _MAX_LINE].partition("\n")[0]
            named += known.beside(line, named[0])
        marked = set(named)
        for _ in range(_MAX_TRIES if where in _MARKED else 0):
            before = text[max(found.start - _MAX_BEFORE, 0) : found.start]
            found = self._found(before, prompt, marked_only=True)
            if found is None:
                break
            text = before
            marked.update(known.named(found.text))
            if len(marked) > _MAX_MARKED:
                return tuple(label for label in known.labels if label in marked), where
        return named, where

    def _found(self, text: str, prompt: str | None, *, marked_only: bool = False) -> Found | None:
        policy = get_policy("strict" if marked_only else self.extraction)
        return extract(text, policy, prompt=prompt, wants_choice=True)


def _without_denied(text: str, known: ChoiceList) -> str:
    """The text without what its last line sets aside, unless a choice says just that."""
    line = _last_line(text)
    kept = known.without_denied(line)
    if kept == line or known.with_text(_last_words(line)):
        return text
    seen = without_thinking(text)[0].rstrip()
    return seen.removesuffix(line) + kept


def _last_line(text: str) -> str:
    """The end of what stands outside of thinking."""
    seen = without_thinking(text)[0].rstrip()
    return seen[max(seen.rfind("\n") + 1, len(seen) - _MAX_LINE, 0) :]


def _last_words(line: str) -> str:
    """What the line says behind its last verb, or all of it; empty where that is denied."""
    *_, start = [0, *(verb.end() for verb in _VERB.finditer(line))]
    return "" if is_denied(line, start) else line[start:]


def _without_listing(match: re.Match[str]) -> str:
    """Blanks lines that list several choices: to list them is not to choose."""
    lines = _OPTION.findall(match[0])
    return " " * len(match[0]) if len(set(lines)) > 1 else match[0]


@lru_cache(maxsize=1024)  # siblings share their prompt
def _question(prompt: str, known: ChoiceList) -> str:
    """The prompt without its choices, which an answer may well repeat."""
    long = [text for text in known.texts if len(text) >= _LONG_ENOUGH]
    lines = _OPTION.sub("\n", prompt).split("\n")
    return "\n".join(line for line in lines if not any(text in line for text in long))
