"""Rewards that behave as the text tells them to; worker processes import them from here."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlgym_llm import hookimpl
from rlgym_llm.rewards import Reward, RewardContext, reward
from rlgym_llm.scores import Score, StepScore
from rlgym_llm.specs import RewardSpec
from rlgym_llm.types import Rollout, RolloutGroup


def wait_forever() -> None:
    threading.Event().wait(600)


def eat() -> int:
    return len(bytearray(10 << 30))


def eat_slowly() -> None:
    eaten = []
    while True:
        eaten.append(b"x" * (64 << 20))
        time.sleep(0.01)


def interrupt() -> None:
    raise KeyboardInterrupt


def fail() -> None:
    raise ValueError("told so")


def throw(failure: BaseException) -> None:
    raise failure


ACTS: dict[str, Callable[[], Any]] = {
    "die": lambda: os._exit(3),
    "eat": eat,
    "eat slowly": eat_slowly,
    "exit": lambda: sys.exit(1),
    "far": lambda: Score(
        name="x", value=1.0, steps=(StepScore(value=1.0, char_start=0, char_end=99),)
    ),
    "group": lambda: throw(BaseExceptionGroup("two", [SystemExit(1)])),
    "hang": wait_forever,
    "info": lambda: Score(name="x", value=1.0, info={"set": {1}}),
    "interrupt": interrupt,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "nan": lambda: math.nan,
    "nap": lambda: time.sleep(0.05),
    "none": lambda: None,
    "pid": os.getpid,
    "raise": fail,
    "steps": lambda: Score(
        name="x",
        value=1.0,
        info={"pair": (1, 2)},
        steps=(StepScore(value=1.0, char_start=0, char_end=5),),
    ),
    "text": lambda: "1.0",
    "thread": threading.get_ident,
}


def act(text: str) -> Any:
    """What a text tells; the number of its characters where it tells nothing."""
    return ACTS[text]() if text in ACTS else len(text)


@dataclass(frozen=True, kw_only=True)
class Obedient(Reward):
    name = "obedient"
    range = (0, math.inf)
    log: str = ""
    refuses: str = ""

    def setup(self, ctx: RewardContext) -> None:
        self.note("setup")
        if self.refuses == "setup":
            raise OSError("no model")

    def score(self, rollout: Rollout, ctx: RewardContext) -> Any:
        return act(rollout.text)

    def close(self) -> None:
        self.note("close")
        if self.refuses == "close":
            raise OSError("closed badly")

    def note(self, what: str) -> None:
        if self.log:
            with Path(self.log).open("a") as file:
                file.write(f"{what} {os.getpid()}\n")


class Batched(Obedient):
    name = "batched"

    def score_batch(self, rollouts: Sequence[Rollout], ctx: RewardContext) -> list[Any]:
        self.note(f"batch of {len(rollouts)}")
        if any(rollout.text == "short" for rollout in rollouts):
            return []
        return [act(rollout.text) for rollout in rollouts]


class Boxed(Obedient):
    """1 where the answer stands in a box; hangs where it is told to."""

    name = "boxed"

    def score(self, rollout: Rollout, ctx: RewardContext) -> Any:
        box = f"\\boxed{{{rollout.task.answer}}}"
        return act("hang") if rollout.text == "hang" else box in rollout.text


class Siblings(Reward):
    """Each sibling's text in characters, of all its group's."""

    name = "siblings"
    scope = "group"
    uses = ("seen",)

    def score_group(self, group: RolloutGroup, ctx: RewardContext) -> list[Any]:
        lengths = [float(act(rollout.text)) for rollout in group.rollouts]
        seen = ctx.components.get("seen", (0.0,) * len(lengths))
        total = sum(lengths)
        return [n / total + (s or 0.0) for n, s in zip(lengths, seen, strict=True)]


class Rank(Reward):
    """How many rollouts of the batch have a shorter text."""

    name = "rank"
    scope = "batch"

    def score_batch(self, rollouts: Sequence[Rollout], ctx: RewardContext) -> list[Any]:
        lengths = [act(rollout.text) for rollout in rollouts]
        return [sum(other < length for other in lengths) for length in lengths]


class Seen(Reward):
    """The component that it uses, plus one."""

    name = "seen"
    uses = ("other",)

    def score(self, rollout: Rollout, ctx: RewardContext) -> float | None:
        (other,) = ctx.components["other"]
        return None if other is None else other + 1


class Awaiting(Reward):
    """As `Obedient`, with calls that wait."""

    name = "awaiting"

    def __init__(self) -> None:
        self.loops: list[Any] = []
        self.num_running = self.most_running = 0

    def setup(self, ctx: RewardContext) -> None:
        self.loops.append(asyncio.get_running_loop())

    async def ascore(self, rollout: Rollout, ctx: RewardContext) -> Any:
        self.num_running += 1
        self.most_running = max(self.num_running, self.most_running)
        try:
            if rollout.text == "wait":
                await asyncio.sleep(600)
            elif rollout.text == "refuse":
                await refuse_to_stop()
            elif rollout.text == "cancel":
                raise asyncio.CancelledError
            await asyncio.sleep(0.01)
            return act(rollout.text)
        finally:
            self.num_running -= 1

    def close(self) -> None:
        self.loops.append(asyncio.get_running_loop())


async def refuse_to_stop() -> None:
    until = time.monotonic() + 5
    while time.monotonic() < until:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            continue


@reward("judged", backend="async", uses=("other",))
async def judged(completion: str, answer: str, components: Any) -> float:
    await asyncio.sleep(0.001)
    return float(completion == answer) + (components.get("other") or 0.0)


@reward("ranked", scope="batch")
def ranked(completions: list[str], group_ids: list[str]) -> list[float]:
    return [
        float(len(text) + len(group)) for text, group in zip(completions, group_ids, strict=True)
    ]


@reward("counted", backend="process", timeout_s=30, concurrency=2)
def counted(completion: str, *, factor: int = 1) -> int:
    return len(completion) * factor


@reward("typed")
def typed(completion: str, level: Any) -> Score:
    return Score(name="typed", value=1.0, info={"level": repr(level)})


@hookimpl
def rlgym_register(kind: str) -> list[RewardSpec]:
    if kind != "reward":
        return []
    return [RewardSpec(name="counted", entry_point=f"{__name__}:counted")]
