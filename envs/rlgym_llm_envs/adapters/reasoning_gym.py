"""Every generator of reasoning-gym as an environment, scored by the generator itself."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from rlgym_llm.check_argument import check_choice, check_number
from rlgym_llm.env import TextEnv, TurnOutcome
from rlgym_llm.errors import ConfigError, UnknownNameError, did_you_mean
from rlgym_llm.reward_config import RewardsConfig
from rlgym_llm.splits import Split, check_split
from rlgym_llm.types import Action, Message, Task
from rlgym_llm_envs.adapters.entry_json import from_json, to_json
from rlgym_llm_envs.adapters.installed import installed
from rlgym_llm_envs.adapters.kept_tasks import KeptTasks
from rlgym_llm_envs.adapters.own_random import OwnRandom
from rlgym_llm_envs.adapters.peer import SPLITS

__all__ = ["SYSTEM_PROMPT", "ReasoningGymEnv", "ReasoningGymTasks", "answer_in_tags"]

SYSTEM_PROMPT = (
    "Solve the problem step by step. Then give the answer alone, in the form that the problem "
    "asks for, between <answer> and </answer>."
)
"""What the model is told first, unless told otherwise."""

_GOLD_KEYS = ("example_answer", "example_correct_answer", "possible_answer")
"""Where generators without one right answer keep one that is right."""


def answer_in_tags(text: str) -> str | None:
    """What stands in the last ``<answer>...</answer>``, without white space around it, or None.

    >>> answer_in_tags("<answer>4</answer> No: <answer> 5 </answer>.")
    '5'
    """
    end = text.rfind("</answer>")
    start = text.rfind("<answer>", 0, max(end, 0))
    if start < 0:
        return None
    found = text[start + len("<answer>") : end]
    return found.split("</answer>", 1)[0].strip()


class ReasoningGymTasks(KeptTasks):
    """The entries of one generator as tasks; each is made when it is first asked for, and kept.

    ``task.info`` holds the generator's name and the entry as JSON (``rlgym_llm_envs.adapters.
    entry_json``), so that a stored task can be scored anywhere. Raises DataError where
    reasoning-gym is missing, UnknownNameError for an unknown generator and ConfigError for an
    option that it does not take or a value that it refuses.
    """

    def __init__(
        self,
        *,
        dataset: str,
        size: int,
        seed: int,
        system_prompt: str,
        config: Mapping[str, Any],
    ) -> None:
        super().__init__(size)
        self.dataset, self.seed = dataset, seed
        self.system_prompt = system_prompt
        self.config = dict(config)
        self._generator = _generator(dataset, {**self.config, "size": size, "seed": seed})

    def score(self, answer: str | None, entry: Mapping[str, Any]) -> float:
        """The generator's ``score_answer``; an answer that makes it raise is a wrong one.

        Where it raises on the right answer too, the fault is its own and the error passes.
        """
        with OwnRandom(self.seed).lent():
            try:
                return float(self._generator.score_answer(answer, entry))
            except Exception:
                self._generator.score_answer(entry["answer"], entry)
                return 0.0

    def gold(self, entry: Mapping[str, Any]) -> str | None:
        """An answer that scores the maximum, None where the entry holds none."""
        if entry["answer"] is not None:
            return str(entry["answer"])
        for key in _GOLD_KEYS:
            if (found := entry["metadata"].get(key)) is not None:
                return found if isinstance(found, str) else json.dumps(found)
        return None

    def __getstate__(self) -> dict[str, Any]:
        # Generators hold word lists and functions; another process makes its own.
        return {**self.__dict__, "_generator": None, "_made": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        options = {**self.config, "size": self.num_tasks, "seed": self.seed}
        self._generator = _generator(self.dataset, options)

    def __repr__(self) -> str:
        return f"ReasoningGymTasks({self.dataset!r}, {self.num_tasks} tasks, seed={self.seed})"

    def make(self, index: int) -> Task:
        """The question of that entry."""
        with OwnRandom(self.seed + index).lent():
            entry = self._generator[index]
        messages = [Message(role="user", content=str(entry["question"]))]
        if self.system_prompt:
            messages.insert(0, Message(role="system", content=self.system_prompt))
        answer = entry["answer"]
        return Task(
            prompt=tuple(messages),
            answer=None if answer is None else str(answer),
            data_source=f"reasoning-gym/{self.dataset}",
            info={"dataset": self.dataset, "entry": to_json(entry)},
        )


class ReasoningGymEnv(TextEnv):
    """Asks what a generator of reasoning-gym makes up, and pays what its ``score_answer`` says.

    The reward is a number from 0 to 1; many generators pay partly right answers in part.

    Args:
        dataset: The generator's name, such as ``"leg_counting"``; ``"composite"`` takes
            ``datasets=[{"name": ..., "weight": ..., "config": {...}}, ...]``.
        size: Number of tasks; 500 to train on and 100 otherwise by default.
        seed: Entry i is the same for the same seed, in any process.
        split: Other splits take other seeds, so that no entry is made twice by its seed; a
            generator that has few different problems repeats itself all the same.
        system_prompt: What the model is told first; empty for nothing.
        answer: ``"tags"`` scores what stands in the last ``<answer>...</answer>``, and a text
            without one as no answer; ``"text"`` scores the whole text, without white space
            around it.
        config: Options of the generator, such as ``{"max_animals": 5}``; ``options`` are more.
        rewards, defer_scoring, max_turns, render_mode: As in `TextEnv`.

    Raises what `ReasoningGymTasks` does, and UserError for arguments of another kind.
    """

    default_rewards: ClassVar[Mapping[str, Any]] = {
        "components": {"env": {"reward": "env", "weight": 1.0}}
    }
    accuracy: ClassVar[str | None] = "env"
    gold_reward: ClassVar[float | None] = 1.0
    tasks: ReasoningGymTasks

    def __init__(
        self,
        *,
        dataset: str,
        size: int | None = None,
        seed: int = 0,
        split: Split = "train",
        system_prompt: str = SYSTEM_PROMPT,
        answer: Literal["tags", "text"] = "tags",
        config: Mapping[str, Any] | None = None,
        rewards: RewardsConfig | Mapping[str, Any] | None = None,
        defer_scoring: bool = False,
        max_turns: int | None = 1,
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        check_split(split)
        check_choice("answer", answer, ("tags", "text"))
        check_number("size", size, least=1)
        check_number("seed", seed, least=0)
        offset, default_size = SPLITS[split]
        size = default_size if size is None else size
        self.answer = answer
        super().__init__(
            tasks=ReasoningGymTasks(
                dataset=dataset,
                size=size,
                seed=seed + offset,
                system_prompt=system_prompt,
                config={**(config or {}), **options},
            ),
            rewards=rewards,
            defer_scoring=defer_scoring,
            max_turns=max_turns,
            render_mode=render_mode,
        )

    def advance(self, action: Action) -> TurnOutcome:
        """The generator's score of the answer; the task is over."""
        said = answer_in_tags(action.text) if self.answer == "tags" else action.text.strip()
        reward = self.tasks.score(said, from_json(self.task.info["entry"]))
        return TurnOutcome(env_reward=reward, terminated=True)

    def gold_action(self, task: Task) -> str | None:
        """The entry's answer as the environment reads it, None where the entry has none."""
        gold = self.tasks.gold(from_json(task.info["entry"]))
        if gold is None or self.answer == "text":
            return gold
        return f"<answer>{gold}</answer>"


def _generator(name: str, options: dict[str, Any]) -> Any:
    """The data set that reasoning-gym makes of the options."""
    who = f"reasoning-gym's {name!r}"
    package = installed("reasoning_gym", pip="reasoning-gym", who="environment 'reasoning-gym'")
    installed("reasoning_gym.composite", pip="reasoning-gym", who=who)  # registers itself
    known = package.factory.DATASETS
    if name not in known:
        raise UnknownNameError("generator of reasoning-gym", str(name), known)
    config_class = known[name][1]
    fields = [field.name for field in dataclasses.fields(config_class)]
    for option in options:
        if option not in fields:
            hint = did_you_mean(option, fields)
            raise ConfigError(
                f"{who} has no option {option!r}{hint} (options: {', '.join(fields)})"
            )
    if name == "composite":
        options = {**options, "datasets": _composite_specs(package, options.get("datasets"))}
    try:
        with OwnRandom(options["seed"]).lent():
            return package.create_dataset(name, **options)
    except (AssertionError, TypeError, ValueError) as error:
        raise ConfigError(f"{who} does not take its options: {error}") from error


def _composite_specs(package: Any, datasets: Any) -> list[Any]:
    """What ``composite`` wants: records, each with its name, weight and options."""
    specs = []
    for one in datasets or ():
        try:
            specs.append(package.composite.DatasetSpec(**{"weight": 1.0, "config": {}, **one}))
        except TypeError as error:
            raise ConfigError(
                f"reasoning-gym's 'composite': {one!r} is not {{name, weight, config}} ({error})"
            ) from error
    return specs
