"""Reward ``length``: how long the rollout is, or what that is worth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from pydantic import Field

from rlgym_llm.errors import ConfigError
from rlgym_llm.inject import sample_columns
from rlgym_llm.rewards import Reward, RewardContext
from rlgym_llm.types import Rollout, RolloutGroup
from rlgym_llm_rewards.length_curves import cosine, group_relative, soft_overlong

__all__ = ["Length"]

Mode = Literal["linear", "cosine", "soft_overlong", "group_relative", "target"]
Unit = Literal["tokens", "chars", "words", "turns"]
_Finite = Annotated[float, Field(allow_inf_nan=False)]

_COSINE = ("value_correct_at_0", "value_correct_at_max", "value_wrong_at_0", "value_wrong_at_max")
_OPTIONS: Mapping[Mode, tuple[str, ...]] = {
    "linear": (),
    "cosine": (*_COSINE, "value_exceeded", "max_len", "correct", "correct_from"),
    "soft_overlong": ("max_len", "cache", "factor"),
    "group_relative": ("correct", "correct_from"),
    "target": ("target", "factor"),
}


@dataclass(frozen=True, kw_only=True)
class Length(Reward):
    """``n``, the number of sampled units, or what ``mode`` makes of it.

    - ``linear``: ``n`` itself, 0 or more; with weight -0.001 each token costs 0.001.
    - ``cosine``: from ``value_*_at_0`` to ``value_*_at_max`` along half a cosine, one curve for
      correct rollouts and one for wrong ones (arXiv 2502.03373; `cosine`). With the defaults a
      correct one earns 1 at length 0, 0.75 halfway and 0.5 from ``max_len`` on.
    - ``soft_overlong``: 0 up to ``max_len - cache``, linear to ``-factor`` at ``max_len``, and
      capped (DAPO, arXiv 2503.14476; `soft_overlong`). Limit 1000, cache 200: 900 costs 0.5.
    - ``group_relative``: 0.5 for the shortest sibling down to -0.5 for the longest, wrong ones
      never above 0 (Kimi k1.5, arXiv 2501.12599; `group_relative`). Its scope is ``group``.
    - ``target``: ``-factor |n - target|`` (L1-Exact, arXiv 2503.04697, where factor is 0.0003 and
      the reward for correctness is another component).

    ``range`` follows from the options. Tokens count the end-of-text token, for it was sampled;
    text without token ids (scored from a file, say) is an error under ``tokens``. Where the
    component ``correct`` has no value the length is worth nothing either: it does not apply, and
    is left out of what siblings are compared with.

    >>> from rlgym_llm.types import Completion, Task, Turn
    >>> turn = Turn(new_prompt_token_ids=(), completion=Completion(text="x" * 900))
    >>> rollout = Rollout(id="r", task=Task(prompt="?"), group_id="g", sample_index=0, seed=0,
    ...                   turns=(turn,))
    >>> overlong = Length(mode="soft_overlong", unit="chars", max_len=1000, cache=200)
    >>> overlong.score(rollout, RewardContext()), overlong.range
    (-0.5, (-1.0, 0.0))
    """

    name = "length"
    is_bounded = True

    mode: Mode = "linear"
    unit: Unit = "tokens"
    """What is counted; words are what white space parts."""
    max_len: Annotated[int, Field(gt=0)] | None = None
    """Units at which ``cosine`` and ``soft_overlong`` reach their end."""
    cache: Annotated[int, Field(gt=0)] | None = None
    """Units before ``max_len`` over which ``soft_overlong`` falls."""
    factor: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """The largest penalty of ``soft_overlong``; the price of one unit off the ``target``."""
    target: Annotated[int, Field(ge=0)] | str | None = None
    """Units asked for, or the column of the row that holds their number."""
    correct: str | None = None
    """The component that tells which rollouts are correct; None takes all for correct."""
    correct_from: _Finite = 1.0
    """Raw value of that component from which a rollout is correct."""
    value_correct_at_0: _Finite = 1.0
    """What ``cosine`` gives a correct rollout of length 0."""
    value_correct_at_max: _Finite = 0.5
    """What it gives a correct one from ``max_len`` on."""
    value_wrong_at_0: _Finite = -1.0
    """What it gives a wrong rollout of length 0: by default wrong ones had better think longer."""
    value_wrong_at_max: _Finite = -0.5
    """What it gives a wrong one from ``max_len`` on."""
    value_exceeded: _Finite | None = None
    """What it gives from ``max_len`` on, right or wrong; None keeps the ends of the curves."""

    def __post_init__(self) -> None:
        """Raises ConfigError for options that the mode lacks or does not know."""
        self._check_options()
        vars(self).update(
            scope="group" if self.mode == "group_relative" else "sample",
            range=self._range(),
            uses=() if self.correct is None else (self.correct,),
            needs=(self.target,) if isinstance(self.target, str) else (),
        )

    def score(self, rollout: Rollout, ctx: RewardContext) -> float | None:
        """The worth of one length, in every mode but ``group_relative``."""
        length = self._count(rollout)
        if self.mode == "soft_overlong":
            return soft_overlong(
                length, self.max_len or 0, cache=self.cache or 0, factor=self.factor
            )
        if self.mode == "target":
            return 0.0 - self.factor * abs(length - self._target(rollout))
        if self.mode == "linear":
            return float(length)
        is_correct = self._correctness(ctx, 1)[0]
        if is_correct is None:
            return None
        max_len = self.max_len or 0
        if length >= max_len and self.value_exceeded is not None:
            return self.value_exceeded
        at_0, at_max = self._ends(is_correct)
        return cosine(length, max_len, at_0=at_0, at_max=at_max)

    def score_group(self, group: RolloutGroup, ctx: RewardContext) -> Sequence[float | None]:
        """The worth of each length among its siblings, in mode ``group_relative``."""
        are_correct = self._correctness(ctx, len(group.rollouts))
        compared = [
            (index, self._count(rollout), is_correct)
            for index, (rollout, is_correct) in enumerate(
                zip(group.rollouts, are_correct, strict=True)
            )
            if is_correct is not None
        ]
        values: list[float | None] = [None] * len(group.rollouts)
        if compared:
            indices, lengths, known = zip(*compared, strict=True)
            for index, value in zip(indices, group_relative(lengths, known), strict=True):
                values[index] = value
        return values

    def _check_options(self) -> None:
        used = _OPTIONS[self.mode]
        for field in fields(self):
            is_given = getattr(self, field.name) != field.default
            if is_given and field.name not in ("mode", "unit", *used):
                modes = [mode for mode, names in _OPTIONS.items() if field.name in names]
                raise ConfigError(
                    f"reward 'length': {field.name} is an option of mode {' and '.join(modes)}, "
                    f"not of {self.mode}"
                )
        for name in ("max_len", "cache", "target"):
            if name in used and getattr(self, name) is None:
                raise ConfigError(f"reward 'length': mode {self.mode} needs the option {name}")
        if self.max_len is not None and self.cache is not None and self.cache > self.max_len:
            raise ConfigError(
                f"reward 'length': the cache {self.cache} is longer than max_len {self.max_len}"
            )
        if self.correct is None:
            for name in ("value_wrong_at_0", "value_wrong_at_max", "correct_from"):
                if getattr(self, name) != getattr(type(self), name):
                    raise ConfigError(
                        f"reward 'length': {name} needs the option correct, the name of the "
                        "component that tells wrong from right"
                    )

    def _range(self) -> tuple[float, float]:
        if self.mode == "linear":
            return (0.0, math.inf)
        if self.mode == "soft_overlong":
            return (-self.factor, 0.0)
        if self.mode == "group_relative":
            return (-0.5, 0.5)
        if self.mode == "target":
            return (-math.inf, 0.0)
        ends = list(self._ends(True)) + ([] if self.correct is None else list(self._ends(False)))
        if self.value_exceeded is not None:
            ends.append(self.value_exceeded)
        return (min(ends), max(ends))

    def _ends(self, is_correct: bool) -> tuple[float, float]:
        if is_correct:
            return self.value_correct_at_0, self.value_correct_at_max
        return self.value_wrong_at_0, self.value_wrong_at_max

    def _correctness(self, ctx: RewardContext, count: int) -> list[bool | None]:
        """Whether each rollout of this call is correct, None where that is not known."""
        if self.correct is None:
            return [True] * count
        if self.correct not in ctx.components:
            known = ", ".join(sorted(ctx.components)) or "none"
            raise LookupError(f"no component {self.correct!r} was scored before (scored: {known})")
        values = ctx.components[self.correct]
        if len(values) != count:
            raise ValueError(
                f"component {self.correct!r} has {len(values)} values for {count} rollouts"
            )
        return [None if value is None else value >= self.correct_from for value in values]

    def _target(self, rollout: Rollout) -> float:
        if not isinstance(self.target, str):
            return self.target or 0
        target: Any = sample_columns(rollout)[self.target]
        try:
            number = float(target)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise ValueError(f"column {self.target!r} holds {target!r}, no number of {self.unit}")
        return number

    def _count(self, rollout: Rollout) -> int:
        if self.unit == "turns":
            return rollout.num_turns
        if self.unit == "chars":
            return len(rollout.text)
        if self.unit == "words":
            return len(rollout.text.split())
        for turn in rollout.turns:
            if turn.completion.text and not turn.completion.token_ids:
                raise ValueError("the completion carries no token ids; use unit: chars")
        return rollout.num_tokens
