"""Guess a number within a few turns: the smallest task that several turns make sense for."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final

from rlgym_llm.check_argument import check_number
from rlgym_llm.drawn_tasks import drawn_tasks
from rlgym_llm.errors import UserError
from rlgym_llm.multi_turn import MultiTurnEnv, Reply
from rlgym_llm.splits import Split, check_split, drawn_size, drawn_split
from rlgym_llm.types import Action, Message, Task

__all__ = ["GuessNumberEnv", "GuessState"]

_NUMBER: Final = re.compile(r"(?<![0-9.])-?[0-9]++(?!\.[0-9])")
_MAX_DIGITS: Final = 9
_COST: Final = 0.1


@dataclass(slots=True, kw_only=True)
class GuessState:
    """What is known of the number."""

    low: int
    """Least number that it can still be."""
    high: int
    """Greatest number that it can still be."""
    num_guesses: int = 0
    """Turns so far, those without a number included."""


class GuessNumberEnv(MultiTurnEnv[GuessState]):
    """The secret is a whole number of a known range; every guess is answered higher or lower.

    The number that is guessed is the last one that stands in the turn; a turn without one is
    answered too and counts. The reward is 1.0 where the number is found within as many guesses as
    halving the range needs at most, 0.1 less for each guess beyond, never below 0.1, and 0.0 where
    it is not found.

    Args:
        low: Least number of all.
        high: Greatest number of all.
        size: Numbers in the range of one task, which is drawn; None takes all from low to high.
        split: ``"train"``, ``"val"`` or ``"test"``; the last two are the same tasks, and share
            none with the first.
        num_problems: Number of tasks; 4096 to train on and 200 otherwise by default.
        seed: Seed of the tasks.
        max_turns: Guesses in an episode.
        options: Arguments of `TextEnv`, such as ``rewards``.
    """

    gold_reward: ClassVar[float | None] = 1.0
    starter: ClassVar[str | None] = "guess-number"

    def __init__(
        self,
        *,
        low: int = 1,
        high: int = 32,
        size: int | None = 16,
        split: Split = "train",
        num_problems: int | None = None,
        seed: int = 0,
        max_turns: int | None = 8,
        **options: Any,
    ) -> None:
        for name, number in (("low", low), ("high", high), ("size", size), ("seed", seed)):
            check_number(name, number)
        check_number("num_problems", num_problems, least=1)
        check_split(split)
        size = high - low + 1 if size is None else size
        if not 2 <= size <= high - low + 1:
            raise UserError(f"size={size} must be at least 2 and fit between {low} and {high}")
        if max(abs(low), abs(high)) >= 10**_MAX_DIGITS:
            raise UserError(f"low and high have at most {_MAX_DIGITS} digits")
        tasks = drawn_tasks(
            partial(_draw, low=low, high=high, size=size),
            num_tasks=drawn_size(split, num_problems),
            seed=seed,
            split=drawn_split(split),
        )
        super().__init__(tasks=tasks, max_turns=max_turns, **options)

    def start(self, task: Task) -> GuessState:
        """Nothing is known but the range."""
        return GuessState(low=task.info["low"], high=task.info["high"])

    def respond(self, state: GuessState, action: Action) -> Reply:
        """Higher, lower, or the end."""
        info: Mapping[str, Any] = self.task.info
        state.num_guesses += 1
        guess = _guess(action.text)
        if guess is None:
            return _said("Write one whole number.")
        secret = info["secret"]
        if guess == secret:
            num_needed = (info["high"] - info["low"] + 1).bit_length()
            num_beyond = max(0, state.num_guesses - num_needed)
            return Reply(reward=max(_COST, 1.0 - _COST * num_beyond), terminated=True)
        if guess < secret:
            state.low = max(state.low, guess + 1)
            return _said("Higher.")
        state.high = min(state.high, guess - 1)
        return _said("Lower.")

    def gold_action(self, task: Task) -> str:
        """The middle of what the number can still be."""
        return str((self.state.low + self.state.high) // 2)


def _draw(index: int, rng: random.Random, *, low: int, high: int, size: int) -> Task:
    first = rng.randint(low, high - size + 1)
    last = first + size - 1
    secret = rng.randint(first, last)
    asked = (
        f"I think of a whole number from {first} to {last}. Guess it: write one number. "
        "I say whether mine is higher or lower."
    )
    return Task(
        prompt=(Message(role="user", content=asked),),
        answer=str(secret),
        data_source="rlgym/guess-number",
        info={"low": first, "high": last, "secret": secret},
    )


def _guess(text: str) -> int | None:
    """The last whole number of a text; None where there is none of at most nine digits."""
    found = _NUMBER.findall(text)
    if not found or len(found[-1].lstrip("-")) > _MAX_DIGITS:
        return None
    return int(found[-1])


def _said(words: str) -> Reply:
    return Reply(messages=(Message(role="user", content=words),), reward=0.0)
