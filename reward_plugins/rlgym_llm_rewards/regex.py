"""Reward ``regex``: whether, or how often, a pattern matches the text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal

import regex
from pydantic import Field

from rlgym_llm.errors import ConfigError
from rlgym_llm.rewards import Reward, RewardContext
from rlgym_llm.scores import Score, ScoreStatus
from rlgym_llm.types import Rollout

__all__ = ["Regex"]

Flag = Literal["ignorecase", "multiline", "verbose", "ascii"]


@dataclass(frozen=True, kw_only=True)
class Regex(Reward):
    r"""``[the pattern matches]``: 1.0 or 0.0; in mode ``count`` the number of matches.

    - ``search``: it matches anywhere in the sampled text.
    - ``fullmatch``: it matches the whole text, white space at its ends included.
    - ``count``: how many matches there are that do not overlap; 0 or more, without a bound.

    With ``group`` a match is right where that group is ``task.answer``, white space around both
    set aside; under ``search`` the last match decides, so that listing many answers earns nothing.
    ``info["answer"]`` is what the group matched, None where there is no match.

    The syntax is that of the ``regex`` package, which reads the patterns of ``re`` (and more) and
    can be stopped: a pattern that runs away is a ``timeout`` after ``max_seconds``, never a
    reward. ``.`` matches newlines too unless ``dotall`` is off: reasoning has many lines.

    >>> from rlgym_llm.types import Completion, Task, Turn
    >>> turn = Turn(new_prompt_token_ids=(), completion=Completion(text="x = 1\ny = 2"))
    >>> rollout = Rollout(id="r", task=Task(prompt="y?", answer="2"), group_id="g",
    ...                   sample_index=0, seed=0, turns=(turn,))
    >>> ctx = RewardContext()
    >>> Regex(pattern="x.*y").score(rollout, ctx).value
    1.0
    >>> Regex(pattern=r"= (\d)", group=1).score(rollout, ctx).value
    1.0
    >>> Regex(pattern="=", mode="count").score(rollout, ctx).value
    2.0
    """

    name = "regex"

    pattern: str
    """The regular expression."""
    mode: Literal["search", "fullmatch", "count"] = "search"
    """What is asked of the pattern, as above."""
    flags: tuple[Flag, ...] = ()
    """Flags of `re`, by their names."""
    dotall: bool = True
    """Whether ``.`` matches a newline."""
    group: int | str | None = None
    """The group that must be the answer: its number (0 is the whole match) or its name."""
    max_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """Seconds of the process's processor time that the pattern may take on one text."""

    def __post_init__(self) -> None:
        """Raises ConfigError for a pattern that does not compile or lacks the group."""
        try:
            compiled = self._compiled()
        except (regex.error, RecursionError, OverflowError) as wrong:
            shown = repr(self.pattern if len(self.pattern) <= 80 else self.pattern[:77] + "...")
            raise ConfigError(f"reward 'regex': the pattern {shown} is wrong: {wrong}") from None
        if self.group is None:
            pass
        elif self.mode == "count":
            raise ConfigError("reward 'regex': mode count takes no group")
        elif self.group not in (*range(compiled.groups + 1), *compiled.groupindex):
            names = "".join(f", {name!r}" for name in compiled.groupindex)
            raise ConfigError(
                f"reward 'regex': the pattern has no group {self.group!r} "
                f"(groups: 0 to {compiled.groups}{names})"
            )
        vars(self).update(
            range=(0.0, math.inf if self.mode == "count" else 1.0),
            needs=() if self.group is None else ("answer",),
        )

    def score(self, rollout: Rollout, ctx: RewardContext) -> Score:
        """The verdict of the pattern, or a ``timeout``."""
        try:
            return self._score(rollout)
        except TimeoutError:
            size = len(rollout.text)
            error = f"the pattern took more than {self.max_seconds:g} s on {size} characters"
            return Score(name=self.name, value=None, status=ScoreStatus.TIMEOUT, error=error)

    def _score(self, rollout: Rollout) -> Score:
        compiled, text = self._compiled(), rollout.text
        match: Any = None
        if self.mode == "count":
            count = sum(1 for _ in compiled.finditer(text, timeout=self.max_seconds))
            return Score(name=self.name, value=float(count))
        if self.mode == "fullmatch":
            match = compiled.fullmatch(text, timeout=self.max_seconds)
        elif self.group is None:
            match = compiled.search(text, timeout=self.max_seconds)
        else:
            for match in compiled.finditer(text, timeout=self.max_seconds):  # noqa: B007  the last
                pass
        if self.group is None:
            return Score(name=self.name, value=float(match is not None))
        said = None if match is None else match[self.group]
        answer = None if said is None else said.strip()
        value = float(answer is not None and answer == (rollout.task.answer or "").strip())
        return Score(name=self.name, value=value, info={"answer": answer})

    def _compiled(self) -> Any:
        return _compile(self.pattern, (*self.flags, "dotall") if self.dotall else self.flags)


@lru_cache(maxsize=64)
def _compile(pattern: str, flags: tuple[str, ...]) -> Any:
    value = regex.VERSION0
    for flag in flags:
        value |= getattr(regex, flag.upper())
    return regex.compile(pattern, value)
