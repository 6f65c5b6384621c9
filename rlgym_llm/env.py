"""TextEnv: a language task as an ordinary Gymnasium environment."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium
from gymnasium.error import ResetNeeded

from rlgym_llm.compose import RewardComposer
from rlgym_llm.errors import UserError, did_you_mean
from rlgym_llm.reward_config import RewardsConfig, read_rewards
from rlgym_llm.rewards import RewardPlugins
from rlgym_llm.scores import ScoreCard
from rlgym_llm.spaces import Conversation, UnicodeText
from rlgym_llm.tasks import TaskSource
from rlgym_llm.types import Action, Completion, FinishReason, Message, Prompt, Rollout, Task, Turn

__all__ = ["TextEnv", "TurnOutcome"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOutcome:
    """What an environment answers to one action.

    Number-like and bool-like values (NumPy's, say) become Python's own; a reward that is NaN or
    infinite raises ValueError.
    """

    reply: tuple[Message, ...] = ()
    """Messages that the policy reads next; empty where the episode is over."""
    env_reward: float | None = None
    """The environment's own reward for this step, None where it gives none."""
    terminated: bool = False
    """The task is over."""
    truncated: bool = False
    """A budget ran out."""

    def __post_init__(self) -> None:
        if self.env_reward is not None:
            object.__setattr__(self, "env_reward", float(self.env_reward))
            if not math.isfinite(self.env_reward):
                raise ValueError(f"env_reward is {self.env_reward}; it is finite or None")
        object.__setattr__(self, "reply", tuple(self.reply))
        object.__setattr__(self, "terminated", bool(self.terminated))
        object.__setattr__(self, "truncated", bool(self.truncated))


class TextEnv(gymnasium.Env[Prompt, str | Action]):
    """Asks a task, takes text, and scores the finished episode with the composed rewards.

    The observation is the whole conversation so far: a tuple of `Message`, or a string where the
    tasks' prompts are strings. Single-turn as it stands; a multi-turn environment overrides
    `respond`, and `reset` where an episode has state of its own.

    Args:
        tasks: The problems; shared between copies of the environment, so never changed.
        rewards: What to score with; None takes the class's ``default_rewards``.
        defer_scoring: Leaves scoring to the collector, which does it once a group is complete:
            the last step then gives 0.0 with ``info["unscored"]`` True.
        max_turns: The episode is truncated after so many turns; None for no limit.
        render_mode: ``"ansi"`` to make `render` return the conversation as text.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012
    default_rewards: ClassVar[RewardsConfig | Mapping[str, Any]] = {
        "components": {"env": {"reward": "env", "weight": 1.0}}
    }
    """Rewards of an environment that was given none: here, what the environment itself gives."""
    accuracy: ClassVar[str | None] = None
    """Reward component that says whether an answer is right, reported as ``val-core/.../acc``."""

    def __init__(
        self,
        *,
        tasks: TaskSource,
        rewards: RewardsConfig | Mapping[str, Any] | None = None,
        defer_scoring: bool = False,
        max_turns: int | None = 1,
        render_mode: str | None = None,
    ) -> None:
        if not len(tasks):
            raise UserError(f"{type(self).__name__} needs at least one task")
        if max_turns is not None and max_turns < 1:
            raise UserError(f"max_turns must be at least 1 or None, got {max_turns}")
        self.tasks = tasks
        self.rewards = read_rewards(self.default_rewards if rewards is None else rewards)
        self.defer_scoring = defer_scoring
        self.max_turns = max_turns
        self.render_mode = render_mode
        self.action_space = UnicodeText()
        is_text = isinstance(tasks[0].prompt, str)
        self.observation_space = UnicodeText(max_chars=10**9) if is_text else Conversation()
        self.plugins: RewardPlugins | None = None
        """Where the rewards come from; None is whatever is installed. `rlgym_llm.make` sets it."""
        self._composer: RewardComposer | None = None
        self._task: Task | None = None
        self._index: int | None = None
        self._observation: Prompt = ""
        self._turns: tuple[Turn, ...] = ()
        self._is_over = False

    @property
    def task(self) -> Task:
        """The task of this episode. Raises ResetNeeded before the first `reset`."""
        if self._task is None:
            raise ResetNeeded(f"{type(self).__name__} has no task yet; call reset first")
        return self._task

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The turns of this episode so far, without the one being answered."""
        return self._turns

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Prompt, dict[str, Any]]:
        """Starts an episode of one task and returns its prompt and ``{task_id, index}``.

        ``options={"index": i}`` asks for task ``i``, ``options={"task": task}`` for one of your own
        (its index is None); without either the index is drawn from ``self.np_random``. Raises
        UserError for an unknown option, for both at once, and for an index out of range.
        """
        super().reset(seed=seed)
        self._task, self._index = self._choose(options or {})
        if self._task.prompt not in self.observation_space:
            raise UserError(f"task {self._task.id}: its prompt is not in {self.observation_space}")
        self._observation = self._task.prompt
        self._turns = ()
        self._is_over = False
        return self._observation, {"task_id": self._task.id, "index": self._index}

    def step(self, action: str | Action) -> tuple[Prompt, float, bool, bool, dict[str, Any]]:
        """Takes what the policy wrote; returns observation, reward, terminated, truncated, info.

        The reward of a turn before the last is 0.0: the composed reward of the episode comes with
        the last step. ``info`` holds ``task_id``, ``index``, ``reply``, ``env_reward``, ``score``
        (the ScoreCard, or None), ``components`` (raw score by name) and ``unscored`` (True where
        0.0 stands for a reward that is absent). A completion that did not stop by itself truncates
        the episode and is not answered. Raises ResetNeeded after the end.
        """
        task = self.task
        if self._is_over:
            raise ResetNeeded(f"the episode of task {task.id} is over; call reset")
        action = _as_action(action, type(self).__name__)
        if action.finish_reason is FinishReason.STOP:
            outcome = self.respond(action)
        else:
            outcome = TurnOutcome(truncated=True)
        self._turns += (_turn(action, outcome),)
        self._observation = _extend(self._observation, action.text, outcome.reply)
        terminated = outcome.terminated
        truncated = outcome.truncated or (not terminated and self._is_out_of_turns())
        self._is_over = terminated or truncated
        card = None
        if self._is_over and not self.defer_scoring:
            card = self._score(task, terminated=terminated, truncated=truncated)
        reward = card.reward if card is not None else None
        info = {
            "task_id": task.id,
            "index": self._index,
            "reply": outcome.reply,
            "env_reward": outcome.env_reward,
            "score": card,
            "components": {name: c.raw for name, c in card.components.items()} if card else {},
            "unscored": self._is_over and reward is None,
        }
        return self._observation, float(reward or 0.0), terminated, truncated, info

    def respond(self, action: Action) -> TurnOutcome:
        """The environment's answer to an action that stopped by itself; single-turn: it is over.

        Override this. ``self.task`` and ``self.turns`` tell where the episode stands, and chance
        comes from ``self.np_random`` only.
        """
        return TurnOutcome(terminated=True)

    def render(self) -> str | None:
        """The conversation as text under ``render_mode="ansi"``, else None."""
        if self.render_mode != "ansi":
            return None
        if isinstance(self._observation, str):
            return self._observation
        return "\n".join(f"[{m.role}] {m.content}" for m in self._observation)

    def close(self) -> None:
        """Lets go of the rewards' workers; safe to call twice."""
        if self._composer is not None:
            self._composer.close()
            self._composer = None

    def __getstate__(self) -> dict[str, Any]:
        # The composer may hold processes and clients; every process makes its own.
        return {**self.__dict__, "_composer": None}

    def _choose(self, options: Mapping[str, Any]) -> tuple[Task, int | None]:
        for name in options:
            if name not in ("index", "task"):
                hint = did_you_mean(str(name), ["index", "task"])
                raise UserError(f"unknown reset option {name!r}{hint} (known: index, task)")
        if len(options) > 1:
            raise UserError("reset takes the option index or the option task, not both")
        if "task" in options:
            task = options["task"]
            if not isinstance(task, Task):
                raise UserError(f"option task must be a Task, got {type(task).__name__}")
            return task, None
        if "index" not in options:
            index = int(self.np_random.integers(len(self.tasks)))
            return self.tasks[index], index
        try:
            index = operator.index(options["index"])
        except TypeError:
            found = type(options["index"]).__name__
            raise UserError(f"option index must be an int, got {found}") from None
        if not 0 <= index < len(self.tasks):
            raise UserError(f"task {index} does not exist: indices are 0 to {len(self.tasks) - 1}")
        return self.tasks[index], index

    def _is_out_of_turns(self) -> bool:
        return self.max_turns is not None and len(self._turns) >= self.max_turns

    def _score(self, task: Task, *, terminated: bool, truncated: bool) -> ScoreCard:
        if self._composer is None:
            self._composer = _new_composer(self.rewards, self.plugins)
        rollout = Rollout(
            id=task.id,
            task=task,
            group_id=task.id,
            sample_index=0,
            seed=self.np_random_seed,
            turns=self._turns,
            terminated=terminated,
            truncated=truncated,
        )
        return self._composer([rollout])[0]


def _new_composer(rewards: RewardsConfig, plugins: RewardPlugins | None) -> RewardComposer:
    if plugins is None:
        from rlgym_llm.plugins import Plugins

        plugins = Plugins.discover()
    composer = RewardComposer(rewards, plugins)
    if composer.needs_groups:
        raise UserError(
            "a reward of scope group compares siblings, and an environment by itself plays one "
            "episode; take defer_scoring=True and score whole groups with RewardComposer"
        )
    return composer


def _as_action(action: str | Action, env_name: str) -> Action:
    if isinstance(action, Action):
        return action
    if isinstance(action, str):
        return Action(text=str(action))
    raise UserError(f"{env_name}.step takes a str or an Action, got {type(action).__name__}")


def _turn(action: Action, outcome: TurnOutcome) -> Turn:
    completion = Completion(
        text=action.text,
        token_ids=action.token_ids,
        logprobs=action.logprobs,
        finish_reason=action.finish_reason,
    )
    return Turn(
        new_prompt_token_ids=(),
        completion=completion,
        reply=outcome.reply,
        env_reward=outcome.env_reward,
    )


def _extend(observation: Prompt, text: str, reply: tuple[Message, ...]) -> Prompt:
    if isinstance(observation, str):
        return "".join((observation, text, *(message.content for message in reply)))
    return (*observation, Message(role="assistant", content=text), *reply)
