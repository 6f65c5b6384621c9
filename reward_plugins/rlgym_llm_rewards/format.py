"""Reward ``format``: 1 where the completion is written the way it was asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from rlgym_llm.errors import ConfigError
from rlgym_llm.rewards import Reward, RewardContext
from rlgym_llm.scores import Score, ScoreStatus
from rlgym_llm.types import Rollout
from rlgym_llm.unchecked import unchecked
from rlgym_llm_rewards.format_demands import Demand, box_demands, hash_demands, tag_demands

__all__ = ["Format"]

Style = Literal["hash", "boxed", "think", "think_answer", "tags"]
_TAGS: dict[Style, tuple[str, ...]] = {"think": ("think",), "think_answer": ("think", "answer")}
_score = unchecked(Score)  # millions are made, of a share of demands
_TAG = re.compile(r"[A-Za-z][\w-]*")


@dataclass(frozen=True, kw_only=True)
class Format(Reward):
    r"""``[every demand is met]``: 1.0 or 0.0; with ``credit: partial`` met demands / all demands.

    - ``hash`` (GSM8K): exactly one line ``#### number``, and it is the last that is not empty.
    - ``boxed`` (MATH): exactly one ``\boxed{...}``, balanced and not empty, and no other box.
    - ``think`` (what DeepSeek-R1 writes): ``<think>...</think>``, then the answer in the open.
    - ``think_answer`` (the R1-Zero template, arXiv 2501.12948): ``<think>...</think>`` then
      ``<answer>...</answer>``.
    - ``tags``: the option ``tags`` in its order, such as ``[reasoning, answer]``.

    Of tags each stands there once, opened and closed, neither part is empty, none is nested, and
    only white space stands outside; parts may have many lines. Under ``hash`` and ``boxed`` an
    answer within thinking is none, and thinking that is repeated or not closed spoils all. Of
    several turns the last is read.

    ``info["reason"]`` names the first demand that is not met, ``met`` and ``demands`` count.
    Partial credit (2k + 2 demands of k tags, 2 of the other styles) eases a cold start and can be
    gamed by parts; ``<think></think>a`` earns 1/6 of ``think_answer`` by it, and 0 by default.

    >>> from rlgym_llm.types import Completion, Task, Turn
    >>> turn = Turn(new_prompt_token_ids=(), completion=Completion(text="so\n</think>\n7"))
    >>> rollout = Rollout(id="r", task=Task(prompt="?"), group_id="g", sample_index=0, seed=0,
    ...                   turns=(turn,))
    >>> Format(style="think", opened_by_prompt=True).score(rollout, RewardContext()).value
    1.0
    >>> Format(style="think").score(rollout, RewardContext()).info["reason"]
    '<think> stands there 0 times, not once'
    """

    name = "format"
    is_bounded = True
    version = 2

    style: Style = "hash"
    credit: Literal["strict", "partial"] = "strict"
    """``strict``: all or nothing; ``partial``: the share of the demands that are met."""
    tags: tuple[str, ...] = ()
    """Names of the tags of style ``tags``, in their order, without angle brackets."""
    may_be_empty: tuple[str, ...] = ()
    """Tags whose part may be empty."""
    opened_by_prompt: bool = False
    """Whether the prompt ends with the first tag (``<think>`` under ``hash`` and ``boxed``), as
    chat templates of reasoning models do: the completion then starts inside it."""
    text_after: bool = False
    """Ask for text behind the last tag of style ``tags``, as ``think`` does."""
    require_reasoning: bool = False
    """Ask for text before the answer in the styles ``hash`` and ``boxed``."""

    def __post_init__(self) -> None:
        """Raises ConfigError for options that do not go together."""
        is_tags = self.style not in ("hash", "boxed")
        if bool(self.tags) != (self.style == "tags"):
            says = "needs tags, such as [think, answer]" if not self.tags else "takes no tags"
            raise ConfigError(f"reward 'format': style {self.style} {says}")
        if self.text_after and self.style != "tags":
            raise ConfigError(f"reward 'format': style {self.style} takes no text_after")
        if self.require_reasoning and is_tags:
            raise ConfigError(
                f"reward 'format': style {self.style} takes no require_reasoning; "
                "a tag's part is required unless may_be_empty names it"
            )
        if wrong := [tag for tag in self.tags if not _TAG.fullmatch(tag)]:
            raise ConfigError(f"reward 'format': {wrong[0]!r} is no tag's name, such as think")
        if len({tag.casefold() for tag in self.tags}) < len(self.tags):
            raise ConfigError(f"reward 'format': a tag is repeated in {list(self.tags)}")
        if strange := [tag for tag in self.may_be_empty if tag not in self._tag_names()]:
            raise ConfigError(
                f"reward 'format': may_be_empty names {strange[0]!r}, which is none of the tags "
                f"{list(self._tag_names())} of style {self.style}"
            )

    def score(self, rollout: Rollout, ctx: RewardContext) -> Score:
        """1.0 where all demands are met; else 0.0, or the share of those that are."""
        demands = self._demands(rollout.turns[-1].completion.text if rollout.turns else "")
        met = sum(demand.is_met for demand in demands)
        reason = next((demand.complaint for demand in demands if not demand.is_met), None)
        share = met / len(demands)
        value = share if self.credit == "partial" else float(reason is None)
        info = {"style": self.style, "reason": reason, "met": met, "demands": len(demands)}
        return _score(self.name, value, ScoreStatus.OK, (), info, None, 0.0)

    def _tag_names(self) -> tuple[str, ...]:
        return _TAGS.get(self.style, self.tags)

    def _demands(self, text: str) -> list[Demand]:
        tags = self._tag_names()
        if self.opened_by_prompt:
            text = f"<{tags[0] if tags else 'think'}>{text}"
        if self.style == "hash":
            return hash_demands(text, require_reasoning=self.require_reasoning)
        if self.style == "boxed":
            return box_demands(text, require_reasoning=self.require_reasoning)
        return tag_demands(
            text,
            tags,
            may_be_empty=self.may_be_empty,
            text_after=self.text_after or self.style == "think",
        )
