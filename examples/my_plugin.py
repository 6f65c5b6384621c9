"""A plugin in one file: a reward and an environment of your own.

    rlgym-train --plugin examples/my_plugin.py --env reverse-text --model MODEL
    rlgym --plugin examples/my_plugin.py reward show reversed

A distribution does the same with an entry point in the group ``rlgym_llm``.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from rlgym_llm import TextEnv, hookimpl, reward
from rlgym_llm.specs import EnvSpec, Kind, RewardSpec, Spec
from rlgym_llm.tasks import GeneratorTasks
from rlgym_llm.types import Message, Task


@reward("reversed", range=(0, 1), needs=("answer",))
def reversed_text(completion: str, answer: str) -> float:
    """Share of the characters that stand where the right answer has them.

    >>> reversed_text("cbx", "cba")
    0.6666666666666666
    """
    hits = sum(a == b for a, b in zip(completion.strip(), answer, strict=False))
    return hits / max(len(answer), len(completion.strip()), 1)


def reverse_task(split: str, index: int, seed: int) -> Task:
    """The task of that index, the same in every process."""
    rng = random.Random(f"{split} {seed} {index}")
    word = "".join(rng.choices("abcdefghij", k=rng.randint(3, 6)))
    prompt = Message(role="user", content=f"Spell backwards: {word}")
    return Task(prompt=(prompt,), answer=word[::-1], data_source="reverse-text")


class ReverseTextEnv(TextEnv):
    """Asks for a word spelled backwards; the tasks are drawn from (split, index)."""

    default_rewards = {"components": {"reversed": {"reward": "reversed"}}}  # noqa: RUF012
    accuracy = "reversed"

    def __init__(self, *, split: str = "train", num_tasks: int = 1000, **options: Any) -> None:
        make_task = partial(reverse_task, split)
        super().__init__(tasks=GeneratorTasks(make_task, num_tasks=num_tasks), **options)

    def gold_action(self, task: Task) -> str:
        """The right answer, for `check_env`."""
        return str(task.answer)


@hookimpl
def rlgym_register(kind: Kind) -> list[Spec]:
    """What this plugin brings."""
    if kind is Kind.REWARD:
        return [RewardSpec(name="reversed", entry_point=f"{__name__}:reversed_text")]
    if kind is Kind.ENV:
        return [EnvSpec(name="reverse-text", entry_point=f"{__name__}:ReverseTextEnv")]
    return []
