"""Rewards for the tests of the shims, as a plugin file: each of its own kind."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from rlgym_llm import Reward, RewardContext, RewardSpec, Rollout, RolloutGroup, hookimpl, reward
from rlgym_llm.rewards import RawScore

calls: list[list[str]] = []
"""The texts of every call of `Recorded`, one list a call."""
entered, gate = threading.Event(), threading.Event()


@reward("picky", needs=("answer",))
def picky(completion: str, answer: str) -> float | None:
    if completion == "boom":
        raise RuntimeError("kaput")
    return None if completion == "none" else float(completion == answer)


@reward("rank", scope="group", range=(0, 9))
def rank(completions: list[str]) -> list[float]:
    """How many siblings are shorter."""
    return [float(sum(len(other) < len(text) for other in completions)) for text in completions]


@reward("at_step", range=(0, 1))
def one(completion: str) -> float:
    return 1.0


@reward("asks", range=(0, 99))
def asks(prompt: str) -> int:
    return len(prompt)


@dataclass(frozen=True, kw_only=True)
class NeedsPrompt(Reward):
    name = "needs_prompt"
    needs = ("prompt",)

    def score(self, rollout: Rollout, ctx: RewardContext) -> RawScore:
        return 1.0


@dataclass(frozen=True, kw_only=True)
class Recorded(Reward):
    """Scores the length of the text; a batch that holds ``wait`` waits at the gate."""

    name = "recorded"
    range = (0, 1000)

    def score_batch(self, rollouts: Sequence[Rollout], ctx: RewardContext) -> list[float]:
        texts = [rollout.text for rollout in rollouts]
        calls.append(texts)
        if "wait" in texts:
            entered.set()
            assert gate.wait(60)
        return [float(len(text)) for text in texts]


@dataclass(frozen=True, kw_only=True)
class GroupSeen(Reward):
    name = "group_seen"
    scope = "group"
    range = (0, 99)

    def score_group(self, group: RolloutGroup, ctx: RewardContext) -> list[float]:
        """What each sibling's own prompt says, after the one word before it."""
        return [float(str(r.task.prompt).split()[-1]) for r in group.rollouts]


_NAMES = {
    "picky": "picky",
    "rank": "rank",
    "at_step": "one",
    "asks": "asks",
    "needs_prompt": "NeedsPrompt",
    "recorded": "Recorded",
    "group_seen": "GroupSeen",
}


@hookimpl
def rlgym_register(kind: str) -> list[RewardSpec]:
    if kind != "reward":
        return []
    return [
        RewardSpec(name=name, entry_point=f"{__name__}:{attribute}")
        for name, attribute in _NAMES.items()
    ]
