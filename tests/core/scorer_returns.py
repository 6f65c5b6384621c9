"""Rewards that return, raise and do what no reward should; worker processes import them too."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np

from rlgym_llm.rewards import Reward, RewardContext
from rlgym_llm.scores import Score, StepScore
from rlgym_llm.types import Rollout, RolloutGroup


class TwoItems:
    """As a tensor of two numbers does."""

    def item(self) -> float:
        raise RuntimeError("a Tensor with 2 elements cannot be converted to Scalar")


class ExitingItem:
    def item(self) -> float:
        raise SystemExit(4)


class EvilAttributes:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")


class EvilFloat(float):
    def __float__(self) -> float:
        raise RuntimeError("no float")


class EvilText:
    def __str__(self) -> str:
        raise SystemExit("no text")

    __repr__ = __str__


class EvilError(Exception):
    def __str__(self) -> str:
        raise SystemExit("no text")


class EvilDict(dict[str, Any]):
    def items(self) -> Any:
        raise BaseException("no items")


def throw(failure: BaseException) -> Any:
    raise failure


def scored(value: Any = 1.0, **fields: Any) -> Score:
    return Score(name="own", value=value, **fields)


def cyclic() -> dict[str, Any]:
    info: dict[str, Any] = {"n": 1}
    info["self"] = info
    return info


STEP = StepScore(value=0.5, char_start=0, char_end=1)
NUMPY_STEP: Any = StepScore(value=np.float32(0.5), char_start=np.int64(0), char_end=np.int64(1))

ERRORS: dict[str, tuple[Callable[[], Any], str]] = {
    "two items": (TwoItems, "returned a TwoItems that is no number: RuntimeError: a Tensor with 2"),
    "exiting item": (ExitingItem, "SystemExit: 4"),
    "evil attributes": (EvilAttributes, "RuntimeError: no item"),
    "evil float": (lambda: EvilFloat(0.5), "RuntimeError: no float"),
    "evil score": (lambda: scored(EvilFloat(0.5)), "RuntimeError: no float"),
    "two numbers": (lambda: np.array([0.1, 0.2]), "returned a ndarray that is no number"),
    "nan of numpy": (lambda: np.float32("nan"), "returned nan; a reward is finite"),
    "steps of numbers": (
        lambda: scored(steps=(1.0, 2.0)),
        "step 1 is a float; it is a StepScore",
    ),
    "steps of no kind": (lambda: scored(steps=5), "'int' object is not iterable"),
    "info of no kind": (lambda: scored(info=5), "its info is a int; it is a mapping"),
    "number as error": (lambda: scored(None, status="error", error=5), "rollout 'bad': 5"),
    "evil words": (lambda: scored(None, status="error", error=EvilText()), "SystemExit: no text"),
    "base": (lambda: throw(BaseException("b")), "BaseException: b"),
    "generator exit": (lambda: throw(GeneratorExit()), "GeneratorExit"),
    "cancelled": (lambda: throw(asyncio.CancelledError()), "CancelledError"),
    "group": (
        lambda: throw(BaseExceptionGroup("x", [SystemExit(1)])),
        "BaseExceptionGroup: x (1 sub-exception)",
    ),
    "exit": (lambda: sys.exit(5), "SystemExit: 5"),
    "stop": (lambda: throw(StopIteration("s")), "StopIteration"),
    "evil error": (lambda: throw(EvilError()), "EvilError: (its message cannot be read)"),
    "half a pair": (lambda: throw(ValueError("\ud800")), "ValueError: \\ud800"),
}
"""What makes an error of its row: how it comes about, and what the error says."""

VALUES: dict[str, tuple[Callable[[], Any], Score]] = {
    "numpy": (lambda: scored(np.float32(0.5)), scored(0.5)),
    "float64": (lambda: scored(np.float64(0.5)), scored(0.5)),
    "fraction": (lambda: scored(Fraction(1, 4)), scored(0.25)),
    "int": (lambda: scored(1), scored(1.0)),
    "bool": (lambda: scored(True), scored(1.0)),
    "bare numpy": (lambda: np.float16(0.5), scored(0.5)),
    "one number": (lambda: np.array([0.5]), scored(0.5)),
    "steps of numpy": (lambda: scored(steps=(NUMPY_STEP,)), scored(steps=(STEP,))),
    "steps of a generator": (lambda: scored(steps=(s for s in [STEP])), scored(steps=(STEP,))),
    "steps of a list": (lambda: scored(steps=[STEP]), scored(steps=(STEP,))),
    "no steps": (lambda: scored(steps=None), scored()),
    "no info": (lambda: scored(info=None), scored()),
    "info of a proxy": (lambda: scored(info=MappingProxyType({"a": 1})), scored(info={"a": 1})),
}
"""What is taken, and as which score."""

INFOS: dict[str, tuple[Callable[[], Any], Any]] = {
    "numpy": (
        lambda: {"a": np.arange(3), "b": np.float32(0.5), "c": np.int64(2)},
        {"a": [0, 1, 2], "b": 0.5, "c": 2},
    ),
    "objects": (lambda: {"a": object(), "b": {2, 1}}, {"a": "(object)", "b": [1, 2]}),
    "cycle": (cyclic, {"n": 1, "self": "(dict, which holds itself)"}),
    "nan": (lambda: {"a": float("nan"), "b": float("inf")}, {"a": None, "b": None}),
    "keys": (
        lambda: {2: 1, None: 3, True: {4}, (5, 6): 7},
        {"2": 1, "true": [4], "null": 3, "[5, 6]": 7},
    ),
    "evil text": (
        lambda: {"a": EvilText(), "b": 1},
        {"a": "(EvilText, which cannot be shown)", "b": 1},
    ),
    "evil dict": (lambda: {"a": EvilDict(b=1)}, {"a": "(EvilDict, which cannot be shown)"}),
    "digits": (lambda: {"a": 10**5000}, {"a": "(int, which cannot be shown)"}),
    "pair": (lambda: {"a": (1, b"x")}, {"a": [1, "b'x'"]}),
}
"""What a reward may put into ``info``, and how it is written."""


def act(text: str) -> Any:
    kind, _, name = text.partition(":")
    if kind == "error":
        return ERRORS[name][0]()
    if kind == "value":
        return VALUES[name][0]()
    if kind == "info":
        return scored(info=INFOS[name][0]())
    return 0.5


class Hostile(Reward):
    name = "hostile"

    def score(self, rollout: Rollout, ctx: RewardContext) -> Any:
        return act(rollout.text)


class HostileBatch(Hostile):
    def score_batch(self, rollouts: Sequence[Rollout], ctx: RewardContext) -> Any:
        return [act(rollout.text) for rollout in rollouts]


class HostileAwait(Reward):
    name = "hostile"

    async def ascore(self, rollout: Rollout, ctx: RewardContext) -> Any:
        await asyncio.sleep(0)
        if (wrong := LOOP_ACTS.get(rollout.text)) is not None:
            return await wrong()
        return act(rollout.text)


async def cancel_itself() -> float:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)
    return 1.0


async def cancel_everyone() -> float:
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(0)
    return 1.0


async def exit_in_child() -> float:
    async def child() -> None:
        raise SystemExit(1)

    await asyncio.gather(child())
    return 1.0


async def exit_in_callback() -> float:
    asyncio.get_running_loop().call_soon(sys.exit, 1)
    await asyncio.sleep(0.05)
    return 0.5


async def stop_loop() -> float:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0.05)
    return 0.5


async def close_loop() -> float:
    asyncio.get_running_loop().close()
    return 1.0


async def raise_base() -> float:
    raise BaseException("b")


LOOP_ACTS: dict[str, Callable[[], Any]] = {
    "cancel itself": cancel_itself,
    "cancel everyone": cancel_everyone,
    "exit in child": exit_in_child,
    "exit in callback": exit_in_callback,
    "stop loop": stop_loop,
    "close loop": close_loop,
    "base": raise_base,
}


LISTS: dict[str, Callable[[int], Any]] = {
    "dict": lambda n: {f"r{i}": 1.0 for i in range(n)},
    "str": lambda n: "1" * n,
    "bytes": lambda n: b"1" * n,
    "set": lambda n: set(range(n)),
    "keys": lambda n: dict.fromkeys(range(n)).keys(),
    "none": lambda n: None,
    "number": lambda n: 1.0,
    "score": lambda n: scored(),
    "short": lambda n: [1.0] * (n - 1),
    "long": lambda n: [1.0] * (n + 2),
    "endless": lambda n: iter(int, 1),
    "tuple": lambda n: (0.5,) * n,
    "numpy": lambda n: np.full(n, 0.5, dtype=np.float32),
    "generator": lambda n: (0.5 for _ in range(n)),
}
"""What a call for several rollouts returns."""


@dataclass(frozen=True, kw_only=True)
class Lists(Reward):
    name = "lists"
    kind: str

    def score_batch(self, rollouts: Sequence[Rollout], ctx: RewardContext) -> Any:
        return LISTS[self.kind](len(rollouts))


@dataclass(frozen=True, kw_only=True)
class GroupLists(Lists):
    scope = "group"

    def score_group(self, group: RolloutGroup, ctx: RewardContext) -> Any:
        return LISTS[self.kind](len(group.rollouts))


@dataclass(frozen=True, kw_only=True)
class Meddling(Reward):
    """Its process goes wrong after the row, when the answer is written."""

    name = "meddling"

    def score(self, rollout: Rollout, ctx: RewardContext) -> Any:
        if rollout.text == "bad":
            return scored(info={"text": "x" * (65 << 20)})  # longer than an answer may be
        return 0.5


@dataclass(frozen=True, kw_only=True)
class Phases(Reward):
    name = "phases"
    hangs: str = ""
    refuses: str = ""

    def setup(self, ctx: RewardContext) -> None:
        if self.hangs == "setup":
            os.read(os.pipe()[0], 1)
        if self.refuses == "setup":
            raise asyncio.CancelledError

    def score(self, rollout: Rollout, ctx: RewardContext) -> float:
        return 0.5

    async def ascore(self, rollout: Rollout, ctx: RewardContext) -> float:
        return 0.5

    def close(self) -> None:
        if self.refuses == "close":
            raise BaseException("closed badly")
