"""Replies compared with the answer as text: exactly, or through a regular expression."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal, get_args

from rlgym_llm.check_argument import check_choice
from rlgym_llm.drawn_tasks import Draw
from rlgym_llm.errors import UserError
from rlgym_llm.types import Task
from rlgym_llm_envs.generated import DataEnv
from rlgym_llm_envs.prompts import TEXT_PROMPT

__all__ = ["TextMatchEnv"]

Match = Literal["exact", "regex"]

_SYLLABLES: Final = ("ba", "do", "fi", "gu", "ka", "le", "mi", "no", "pu", "ra", "so", "ti", "ve")


class TextMatchEnv(DataEnv):
    r"""Any file with a prompt and an answer; a reply is right where its text is the answer.

    The starter problems are words to be written backwards; their data_source is
    ``rlgym/text-match``.

    Args:
        match: ``"exact"`` compares the whole reply, white space around it set aside; ``"regex"``
            compares what ``pattern`` finds in it.
        casefold: Ignore case in an exact match.
        spaces: Take every run of white space for one space in an exact match.
        pattern: The regular expression, such as ``r"Answer: (\w+)"``; the last match decides.
        group: The group of ``pattern`` that must be the answer; None where matching is enough.
        reply: How a right reply looks, such as ``"Answer: {answer}"``.
        system_prompt: What the model is told first; empty for nothing.
        options: Arguments of `DataEnv`, such as ``data`` and ``columns``.
    """

    default_rewards: ClassVar[Mapping[str, Any]] = {
        "components": {"match": {"reward": "exact_match", "weight": 1.0}}
    }
    accuracy: ClassVar[str | None] = "match"
    data_files: ClassVar[tuple[str, ...]] = ("data", "few_shot_data")

    def __init__(
        self,
        *,
        match: Match = "exact",
        casefold: bool = False,
        spaces: bool = False,
        pattern: str | None = None,
        group: int | str | None = 1,
        reply: str = "{answer}",
        system_prompt: str = TEXT_PROMPT,
        rewards: Any = None,
        **options: Any,
    ) -> None:
        check_choice("match", match, get_args(Match))
        if (match == "regex") != (pattern is not None):
            raise UserError("match='regex' needs a pattern, and match='exact' takes none")
        if match == "regex" and (casefold or spaces):
            raise UserError("casefold and spaces are for match='exact'; a pattern may say (?i)")
        if "{answer}" not in reply:
            raise UserError(f"reply must hold {{answer}}, got {reply!r}")
        self.reply = reply
        if rewards is None and pattern is not None:
            rewards = _rewards("regex", pattern=pattern, group=group)
        elif rewards is None:
            rewards = _rewards("exact_match", casefold=casefold, spaces=spaces)
        super().__init__(system_prompt=system_prompt, rewards=rewards, **options)

    def drawer(self) -> Draw:
        """Draws a word to be written backwards."""
        return _draw

    def gold_action(self, task: Task) -> str:
        """The answer, put into ``reply``."""
        return self.reply.replace("{answer}", super().gold_action(task))


def _rewards(name: str, **options: Any) -> Mapping[str, Any]:
    return {"components": {"match": {"reward": name, "weight": 1.0, "options": options}}}


def _draw(index: int, rng: random.Random) -> Task:
    word = "".join(rng.choices(_SYLLABLES, k=rng.randint(2, 4)))  # never the same backwards
    return Task(
        prompt=f"Write the word {word} backwards.",
        answer=word[::-1],
        data_source="rlgym/text-match",
        info={"word": word},
    )
