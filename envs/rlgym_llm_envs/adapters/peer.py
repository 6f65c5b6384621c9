"""Environments with ``reset(seed)`` and ``step(action)`` as `TextEnv`: a task is a seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rlgym_llm.check_argument import check_number
from rlgym_llm.env import TurnOutcome
from rlgym_llm.errors import UserError
from rlgym_llm.multi_turn import MultiTurnEnv
from rlgym_llm.splits import Split, check_split
from rlgym_llm.types import Action, Message, Prompt, Task
from rlgym_llm_envs.adapters.kept_tasks import KeptTasks
from rlgym_llm_envs.adapters.own_random import OwnRandom

__all__ = ["SPLITS", "Peer", "PeerEnv", "PeerTasks", "World", "open_world"]

SPLITS: Mapping[str, tuple[int, int]] = {
    "train": (0, 500),
    "val": (10**6, 100),
    "test": (2 * 10**6, 100),
}
"""What a split adds to the first seed, and its default number of tasks."""


class Peer(Protocol):
    """How another project's environment is made, read and acted on; plain data that pickles."""

    @property
    def name(self) -> str:
        """Its name in messages and metrics."""
        ...

    @property
    def draws_globally(self) -> bool:
        """Whether it draws from the global random generators, which it is then lent."""
        ...

    def make(self) -> Any:
        """A new environment."""
        ...

    def read(self, env: Any, observation: Any, info: Mapping[str, Any]) -> str:
        """What the policy reads."""
        ...

    def act(self, env: Any, text: str) -> Any:
        """The action that the text is. Raises ValueError for a text that is none."""
        ...


@dataclass(kw_only=True)
class World:
    """An environment of a peer in mid-episode."""

    env: Any
    random: OwnRandom | None
    """The global generators as it left them; None where it does not draw from them."""

    def reset(self, seed: int) -> tuple[Any, Mapping[str, Any]]:
        """Starts the episode of a seed."""
        if self.random is None:
            return self.env.reset(seed=seed)  # type: ignore[no-any-return]
        with self.random.lent():
            return self.env.reset(seed=seed)  # type: ignore[no-any-return]

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, Mapping[str, Any]]:
        """One step."""
        if self.random is None:
            return self.env.step(action)  # type: ignore[no-any-return]
        with self.random.lent():
            return self.env.step(action)  # type: ignore[no-any-return]


def open_world(peer: Peer, seed: int) -> tuple[World, str]:
    """A new environment at the start of the episode of a seed, and what it says first."""
    random = OwnRandom(seed) if peer.draws_globally else None
    if random is None:
        env = peer.make()
    else:
        with random.lent():
            env = peer.make()
        random = OwnRandom(seed)  # however much making drew
    world = World(env=env, random=random)
    observation, info = world.reset(seed)
    return world, peer.read(world.env, observation, info)


class PeerTasks(KeptTasks):
    """One task per seed, from ``first_seed`` on; its prompt is what the environment says first.

    A task is made when it is first asked for, and kept.
    """

    def __init__(
        self, peer: Peer, *, num_tasks: int, first_seed: int, system_prompt: str = ""
    ) -> None:
        super().__init__(num_tasks)
        self.peer, self.first_seed = peer, first_seed
        self.system_prompt = system_prompt

    def __repr__(self) -> str:
        return f"PeerTasks({self.peer.name!r}, {self.num_tasks} tasks from {self.first_seed})"

    def make(self, index: int) -> Task:
        """The episode of its seed, as it begins."""
        seed = self.first_seed + index
        world, first = open_world(self.peer, seed)
        _close(world.env)
        return Task(
            prompt=self.prompt(first),
            data_source=self.peer.name,
            info={"seed": seed},
            id=f"{self.peer.name}/{seed}",
        )

    def prompt(self, first: str) -> Prompt:
        """What the policy is asked, given what the environment says first."""
        asked = Message(role="user", content=first)
        if not self.system_prompt:
            return (asked,)
        return (Message(role="system", content=self.system_prompt), asked)


class PeerEnv(MultiTurnEnv[World]):
    """Plays a peer's environment; its rewards are the turns' own, summed by reward ``env``.

    Task i is the episode of seed ``seed + i``; other splits take other seeds. Every episode has an
    environment of its own, made afresh, so that nothing of one is left in the next. A text that is
    no action ends the episode with ``invalid_reward``. Where a step says terminated and truncated
    at once, the task is over and no budget ran out: terminated alone stands.

    Args:
        peer: How the environment is made, read and acted on.
        num_tasks: 500 to train on and 100 otherwise by default.
        max_turns: None where the environment itself counts.
        options: Arguments of `TextEnv`, such as ``rewards`` and ``defer_scoring``.
    """

    tasks: PeerTasks

    def __init__(
        self,
        *,
        peer: Peer,
        num_tasks: int | None = None,
        seed: int = 0,
        split: Split = "train",
        system_prompt: str = "",
        invalid_reward: float = 0.0,
        max_turns: int | None = None,
        **options: Any,
    ) -> None:
        check_split(split)
        check_number("num_tasks", num_tasks, least=1)
        check_number("seed", seed, least=0)
        offset, default = SPLITS[split]
        num_tasks = default if num_tasks is None else num_tasks
        self.peer = peer
        self.invalid_reward = invalid_reward
        tasks = PeerTasks(
            peer, num_tasks=num_tasks, first_seed=seed + offset, system_prompt=system_prompt
        )
        super().__init__(tasks=tasks, max_turns=max_turns, **options)

    def start(self, task: Task) -> World:
        """A new environment at the start of the task's episode.

        Raises UserError for a task without a seed, and where the environment opens otherwise than
        the task says: its episodes are then not told by their seeds.
        """
        if type(seed := task.info.get("seed")) is not int:
            raise UserError(f"task {task.id}: {self.peer.name} needs info['seed'], a whole number")
        self._end_world()
        world, first = open_world(self.peer, seed)
        if self.tasks.prompt(first) != task.prompt:
            raise UserError(
                f"{self.peer.name} opens otherwise each time it is reset with seed {seed}, so its "
                "episodes cannot be told by their seeds"
            )
        return world

    def respond(self, state: World, action: Action) -> TurnOutcome:
        """One step of the environment."""
        try:
            move = self.peer.act(state.env, action.text)
        except ValueError:
            return TurnOutcome(env_reward=self.invalid_reward, terminated=True)
        observation, reward, terminated, truncated, info = state.step(move)
        is_over = bool(terminated) or bool(truncated)
        words = "" if is_over else self.peer.read(state.env, observation, info)
        return TurnOutcome(
            reply=() if is_over else (Message(role="user", content=words),),
            env_reward=reward,
            terminated=terminated,
            truncated=bool(truncated) and not terminated,
        )

    def close(self) -> None:
        """Closes the environment that was being played, too."""
        self._end_world()
        super().close()

    def _end_world(self) -> None:
        world = self.__dict__.pop("state", None)
        if world is not None:
            _close(world.env)


def _close(env: Any) -> None:
    if callable(close := getattr(env, "close", None)):
        close()
