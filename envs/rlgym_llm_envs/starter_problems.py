"""Seeded word problems in GSM8K's layout, so that a first run needs no download."""

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

__all__ = ["StarterProblem", "starter_problem", "starter_row"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StarterProblem:
    """One word problem with its worked solution; answers are whole numbers from 0 up.

    Example: question ``"Tom has 5 pens. Mia gives Tom 3 more. How many pens does Tom have now?"``,
    steps ``("Tom has 5 + 3 = 8 pens.",)``, answer ``8``, template ``"gift"``, numbers ``(5, 3)``.
    """

    question: str
    """Two to four short sentences, the last one a question."""
    steps: tuple[str, ...]
    """One to three sentences, each with one ``x op y = z`` (op ``+ - * /``); the last z answers."""
    answer: int
    """The number asked for, at least 0."""
    template: str
    """Name of the family the problem was drawn from."""
    numbers: tuple[int, ...]
    """The drawn quantities; with `template` they fix the arithmetic and the split."""


@dataclass(frozen=True, slots=True)
class _Words:
    """What a problem is about; free to vary, so not part of the split."""

    a: str
    b: str
    thing: str
    box: str

    @property
    def ask(self) -> str:
        return f"How many {self.thing}"


@dataclass(frozen=True, slots=True)
class _Draft:
    numbers: tuple[int, ...]
    questions: tuple[str, ...]
    steps: tuple[str, ...]
    answer: int


_NAMES: Final = (
    *("Tom", "Mia", "Ben", "Ana", "Leo", "Eva", "Sam", "Zoe", "Max", "Amy"),
    *("Jack", "Lily", "Omar", "Rosa", "Noah", "Ivy"),
)
_THINGS: Final = (
    *("pens", "books", "coins", "cards", "apples", "eggs", "cups", "toys"),
    *("balls", "stamps", "shells", "cakes", "plums", "beads"),
)
_BOXES: Final = ("boxes", "bags", "jars", "trays")


def _gift(rng: random.Random, w: _Words) -> _Draft:
    x, y = rng.randint(2, 25), rng.randint(2, 20)
    return _Draft(
        (x, y),
        (
            f"{w.a} has {x} {w.thing}. {w.b} gives {w.a} {y} more. {w.ask} does {w.a} have now?",
            f"There are {x} {w.thing} at home. {w.a} brings {y} more. {w.ask} are there now?",
        ),
        (f"{w.a} has {x} + {y} = {x + y} {w.thing}.",),
        x + y,
    )


def _left(rng: random.Random, w: _Words) -> _Draft:
    x = rng.randint(6, 40)
    y = rng.randint(2, min(x - 1, 20))
    return _Draft(
        (x, y),
        (
            f"{w.a} has {x} {w.thing} and gives {y} to {w.b}. {w.ask} are left?",
            f"{w.a} had {x} {w.thing} but lost {y}. {w.ask} are left?",
        ),
        (f"{w.a} has {x} - {y} = {x - y} {w.thing} left.",),
        x - y,
    )


def _packed(rng: random.Random, w: _Words) -> _Draft:
    x, y = rng.randint(2, 12), rng.randint(2, 9)
    return _Draft(
        (x, y),
        (
            f"{w.a} has {x} {w.box} with {y} {w.thing} in each. {w.ask} does {w.a} have?",
            f"{w.a} makes {y} {w.thing} a day. {w.ask} does {w.a} make in {x} days?",
        ),
        (f"{w.a} has {x} * {y} = {x * y} {w.thing}.",),
        x * y,
    )


def _share(rng: random.Random, w: _Words) -> _Draft:
    each, y = rng.randint(2, 12), rng.randint(2, 9)
    x = each * y
    return _Draft(
        (x, y),
        (
            f"{w.a} shares {x} {w.thing} equally among {y} friends. {w.ask} does each friend get?",
            f"{w.a} puts {x} {w.thing} equally into {y} {w.box}. {w.ask} are in each?",
        ),
        (f"Each gets {x} / {y} = {each} {w.thing}.",),
        each,
    )


def _change(rng: random.Random, w: _Words) -> _Draft:
    x, y = rng.randint(2, 9), rng.randint(2, 9)
    cost = x * y
    m = cost + rng.randint(1, 20)
    return _Draft(
        (m, x, y),
        (
            f"{w.a} has {m} dollars and buys {x} {w.thing} for {y} dollars each. "
            "How many dollars are left?",
            f"{w.a} pays for {x} {w.thing} at {y} dollars each with {m} dollars. "
            "How much change is there?",
        ),
        (
            f"The {w.thing} cost {x} * {y} = {cost} dollars.",
            f"{w.a} has {m} - {cost} = {m - cost} dollars left.",
        ),
        m - cost,
    )


def _in_and_out(rng: random.Random, w: _Words) -> _Draft:
    x, y = rng.randint(3, 20), rng.randint(2, 20)
    z = rng.randint(2, min(x + y - 1, 20))
    return _Draft(
        (x, y, z),
        (
            f"{w.a} has {x} {w.thing}, buys {y} more and gives {z} to {w.b}. {w.ask} are left?",
            f"{w.a} finds {x} {w.thing} and then {y} more, but loses {z}. {w.ask} are left?",
        ),
        (
            f"{w.a} has {x} + {y} = {x + y} {w.thing}.",
            f"{w.a} keeps {x + y} - {z} = {x + y - z} {w.thing}.",
        ),
        x + y - z,
    )


def _loose(rng: random.Random, w: _Words) -> _Draft:
    x, y, z = rng.randint(2, 9), rng.randint(2, 9), rng.randint(2, 19)
    inside = x * y
    return _Draft(
        (x, y, z),
        (
            f"{w.a} has {x} {w.box} with {y} {w.thing} in each and {z} loose ones. "
            f"{w.ask} are there?",
            f"{w.a} had {z} {w.thing} and then bought {x} {w.box} of {y}. {w.ask} are there?",
        ),
        (
            f"The {w.box} hold {x} * {y} = {inside} {w.thing}.",
            f"{w.a} has {inside} + {z} = {inside + z} {w.thing}.",
        ),
        inside + z,
    )


def _together(rng: random.Random, w: _Words) -> _Draft:
    x, y = rng.randint(2, 20), rng.randint(2, 20)
    other = x + y
    return _Draft(
        (x, y),
        (
            f"{w.a} has {x} {w.thing}. {w.b} has {y} more than {w.a}. "
            f"{w.ask} do they have together?",
            f"{w.b} has {y} {w.thing} more than {w.a}, who has {x}. {w.ask} do they have together?",
        ),
        (
            f"{w.b} has {x} + {y} = {other} {w.thing}.",
            f"Together they have {x} + {other} = {x + other} {w.thing}.",
        ),
        x + other,
    )


def _times_as_many(rng: random.Random, w: _Words) -> _Draft:
    x, k, y = rng.randint(2, 12), rng.randint(2, 5), rng.randint(2, 19)
    times = "twice" if k == 2 else f"{k} times"
    return _Draft(
        (x, k, y),
        (
            f"{w.a} has {x} {w.thing}. {w.b} has {times} as many and then gets {y} more. "
            f"{w.ask} does {w.b} have?",
            f"{w.b} had {times} as many {w.thing} as {w.a}, who has {x}. "
            f"Then {w.b} gets {y} more. {w.ask} does {w.b} have?",
        ),
        (
            f"{w.b} had {k} * {x} = {k * x} {w.thing}.",
            f"{w.b} has {k * x} + {y} = {k * x + y} {w.thing}.",
        ),
        k * x + y,
    )


def _half_then(rng: random.Random, w: _Words) -> _Draft:
    half, y, z = rng.randint(4, 20), rng.randint(2, 12), rng.randint(2, 19)
    y = min(y, half - 1)
    x, kept = 2 * half, half - y
    return _Draft(
        (x, y, z),
        (
            f"{w.a} sells half of {x} {w.thing}, gives {y} to {w.b} and buys {z}. "
            f"{w.ask} are left?",
            f"{w.a} had {x} {w.thing}. Half are sold, {y} are lost and {z} are found. "
            f"{w.ask} are there?",
        ),
        (
            f"{w.a} has {x} / 2 = {half} {w.thing}.",
            f"{w.a} keeps {half} - {y} = {kept} {w.thing}.",
            f"{w.a} has {kept} + {z} = {kept + z} {w.thing}.",
        ),
        kept + z,
    )


def _two_prices(rng: random.Random, w: _Words) -> _Draft:
    x, p, y, q = rng.randint(2, 9), rng.randint(2, 6), rng.randint(2, 9), rng.randint(2, 6)
    first, second = x * p, y * q
    return _Draft(
        (x, p, y, q),
        (
            f"{w.a} buys {x} {w.thing} for {p} dollars each and {y} hats for {q} dollars each. "
            "How many dollars is that?",
            f"{w.a} sells {x} {w.thing} at {p} dollars and {y} hats at {q} dollars. "
            "How many dollars is that?",
        ),
        (
            f"The {w.thing} cost {x} * {p} = {first} dollars.",
            f"The hats cost {y} * {q} = {second} dollars.",
            f"That is {first} + {second} = {first + second} dollars.",
        ),
        first + second,
    )


def _share_sum(rng: random.Random, w: _Words) -> _Draft:
    each, n = rng.randint(2, 9), rng.randint(2, 6)
    total = each * n
    x = rng.randint(1, total - 1)
    y, z = total - x, rng.randint(1, 12)
    return _Draft(
        (x, y, n, z),
        (
            f"{w.a} puts {x} {w.thing} with {y} more and shares them among {n} friends. "
            f"One friend, {w.b}, "
            f"had {z} before. {w.ask} does {w.b} have?",
            f"{n} friends share {x} old and {y} new {w.thing}. {w.b}, one of them, had {z} before. "
            f"{w.ask} does {w.b} have?",
        ),
        (
            f"There are {x} + {y} = {total} {w.thing}.",
            f"Each gets {total} / {n} = {each} {w.thing}.",
            f"{w.b} has {each} + {z} = {each + z} {w.thing}.",
        ),
        each + z,
    )


_FAMILIES: Final[dict[str, Callable[[random.Random, _Words], _Draft]]] = {
    "gift": _gift,
    "left": _left,
    "packed": _packed,
    "share": _share,
    "change": _change,
    "in_and_out": _in_and_out,
    "loose": _loose,
    "together": _together,
    "times_as_many": _times_as_many,
    "half_then": _half_then,
    "two_prices": _two_prices,
    "share_sum": _share_sum,
}
# In percent: 30 for one step, 45 for two, 25 for three.
_WEIGHTS: Final = (8, 8, 7, 7, 9, 9, 9, 9, 9, 8, 9, 8)
_SPLITS: Final = ("train", "val")


def _split_of(template: str, numbers: tuple[int, ...]) -> str:
    """Return the one split that may hold this pair; about one pair in eight is "val"."""
    digest = hashlib.sha256(f"{template}:{numbers}".encode()).digest()
    return "val" if digest[0] % 8 == 0 else "train"


def starter_problem(index: int, *, split: str, seed: int = 0) -> StarterProblem:
    """Return problem `index` of a split: a function of (index, split, seed) alone, in any process.

    Train and val share no (template, numbers) pair: each pair belongs to one split by its hash, and
    a draw that falls into the other split is drawn again. `index` counts from 0 without an end; two
    indices may repeat a pair.

    Example: ``starter_problem(0, split="val").answer`` is 37 today, tomorrow and in a worker.

    Raises:
        ValueError: `split` is neither "train" nor "val", or `index` is negative.
    """
    if split not in _SPLITS:
        raise ValueError(f"unknown split {split!r} of the starter problems; it is 'train' or 'val'")
    if index < 0:
        raise ValueError(f"index of a starter problem counts from 0, not {index}")
    digest = hashlib.sha256(f"{index}/{split}/{seed}".encode()).digest()
    rng = random.Random(int.from_bytes(digest[:8], "big"))
    template = rng.choices(tuple(_FAMILIES), weights=_WEIGHTS)[0]
    name_a, name_b = rng.sample(_NAMES, 2)
    words = _Words(name_a, name_b, rng.choice(_THINGS), rng.choice(_BOXES))
    draft = _FAMILIES[template](rng, words)
    while _split_of(template, draft.numbers) != split:
        draft = _FAMILIES[template](rng, words)
    return StarterProblem(
        question=rng.choice(draft.questions),
        steps=draft.steps,
        answer=draft.answer,
        template=template,
        numbers=draft.numbers,
    )


def starter_row(problem: StarterProblem) -> dict[str, str]:
    r"""Return the problem as a GSM8K row: question, and steps one a line with ``#### N`` below.

    Example: steps ``("Tom has 5 + 3 = 8 pens.",)`` give
    ``{"question": "Tom has 5 pens. ...", "answer": "Tom has 5 + 3 = 8 pens.\n#### 8"}``.
    """
    return {
        "question": problem.question,
        "answer": "\n".join((*problem.steps, f"#### {problem.answer}")),
    }
