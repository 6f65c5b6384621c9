"""Environments whose problems are drawn at random, by index, split and seed: all, or some."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from rlgym_llm.check_argument import check_choice, check_number
from rlgym_llm.drawn_tasks import Draw, drawn_tasks
from rlgym_llm.errors import UserError
from rlgym_llm.prompt_frame import PromptStyle
from rlgym_llm.reward_config import RewardsConfig
from rlgym_llm.single_turn import SingleTurnEnv
from rlgym_llm.splits import Split, check_split, drawn_size, drawn_split
from rlgym_llm.tasks import TaskSource
from rlgym_llm.types import Task

__all__ = ["DataEnv", "GeneratedEnv"]

Source = Literal["auto", "starter"]


class GeneratedEnv(SingleTurnEnv):
    """Problems drawn at random; a subclass says how one is drawn, in `drawer`.

    Args:
        split: ``"train"``, ``"val"`` or ``"test"``; the last two are the same problems, and share
            none with the first.
        num_problems: Number of problems; 4096 to train on and 200 otherwise by default.
        seed: Seed of the problems.
        few_shot: So many solved problems, which are in no split, stand before each problem.
        system_prompt: What the model is told first; empty for nothing.
        prompt_style: ``"chat"`` gives messages, ``"string"`` one text for base models, ``"raw"``
            the bare question.
        rewards: What to score with, in place of the class's ``default_rewards``.
        defer_scoring: Leaves scoring to the collector.
        render_mode: ``"ansi"`` to make `render` return the conversation as text.
    """

    # Everything is named, with no **options: what reads rows has no meaning where none are read.
    def __init__(
        self,
        *,
        split: Split = "train",
        num_problems: int | None = None,
        seed: int = 0,
        few_shot: int = 0,
        system_prompt: str = "",
        prompt_style: PromptStyle = "chat",
        rewards: RewardsConfig | Mapping[str, Any] | None = None,
        defer_scoring: bool = False,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(
            **_drawn(
                self.drawer(), split=split, num_problems=num_problems, seed=seed, few_shot=few_shot
            ),
            system_prompt=system_prompt,
            prompt_style=prompt_style,
            rewards=rewards,
            defer_scoring=defer_scoring,
            render_mode=render_mode,
        )

    def drawer(self) -> Draw:
        """What draws one problem: a module-level function, or a `functools.partial` of one."""
        raise NotImplementedError(f"{type(self).__name__} says in drawer how a problem is drawn")


class DataEnv(SingleTurnEnv):
    """Problems of a file or a data set, or drawn ones for a first try; a subclass gives `drawer`.

    Args:
        data: A data file or a hub's data set, as `SingleTurnEnv` takes it.
        source: ``"auto"`` reads ``data``; ``"starter"`` draws problems.
        tasks: Tasks of your own, in place of ``data``.
        split: What the tasks are for; starter problems of ``"val"`` are none of ``"train"``.
        num_problems: Number of starter problems; 4096 to train on and 200 otherwise by default.
        seed: Seed of the starter problems.
        options: Arguments of `SingleTurnEnv`.
    """

    def __init__(
        self,
        *,
        data: str | Path | None = None,
        source: Source = "auto",
        tasks: TaskSource | Iterable[Task] | None = None,
        split: Split = "train",
        few_shot: int = 0,
        few_shot_data: str | Path | TaskSource | None = None,
        num_problems: int | None = None,
        seed: int = 0,
        **options: Any,
    ) -> None:
        check_choice("source", source, get_args(Source))
        given: dict[str, Any] = {"data": data, "tasks": tasks, "split": split, "few_shot": few_shot}
        if source == "starter":
            if data is not None or tasks is not None:
                name = "tasks" if data is None else f"data={str(data)!r}"
                raise UserError(f"source='starter' does not read {name}; give one of them")
            given = _drawn(
                self.drawer(), split=split, num_problems=num_problems, seed=seed, few_shot=few_shot
            )
        elif num_problems is not None:
            raise UserError("num_problems counts starter problems; it needs source='starter'")
        elif data is None and tasks is None:
            key = "--data.train" if split == "train" else "--data.val"
            raise UserError(
                f"{type(self).__name__} has no problems: give a data file with {key}, or take "
                "the drawn ones with source='starter'"
            )
        if few_shot_data is not None:
            given["few_shot_data"] = few_shot_data
        super().__init__(**given, **options)

    def drawer(self) -> Draw:
        """What draws one starter problem; as in `GeneratedEnv`."""
        raise NotImplementedError(f"{type(self).__name__} has no starter problems")


def _drawn(
    draw: Draw, *, split: Split, num_problems: int | None, seed: int, few_shot: int
) -> dict[str, Any]:
    """The arguments of `SingleTurnEnv` for drawn problems: tasks, and those to show solved."""
    check_split(split)
    check_number("num_problems", num_problems, least=1)
    check_number("seed", seed)
    check_number("few_shot", few_shot, least=0)
    num_tasks = drawn_size(split, num_problems)
    tasks = drawn_tasks(draw, num_tasks=num_tasks, seed=seed, split=drawn_split(split))
    shown: TaskSource | None = None
    if few_shot:
        shown = drawn_tasks(draw, num_tasks=few_shot, seed=seed, split="example")
    return {"tasks": tasks, "split": split, "few_shot": few_shot, "few_shot_data": shown}
