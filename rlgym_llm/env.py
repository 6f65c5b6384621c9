"""TextEnv: a language task as an ordinary Gymnasium environment."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any, ClassVar

from gymnasium.error import ResetNeeded

from rlgym_llm import compose_cache
from rlgym_llm.env_turn import OVER, TurnOutcome, as_action, extended, turn_record
from rlgym_llm.episode_env import EpisodeEnv
from rlgym_llm.errors import UserError, did_you_mean
from rlgym_llm.reward_config import RewardsConfig
from rlgym_llm.rewards import RewardPlugins
from rlgym_llm.scores import ScoreCard
from rlgym_llm.spaces import Conversation, UnicodeText
from rlgym_llm.tasks import TaskSource
from rlgym_llm.types import Action, FinishReason, Prompt, Rollout, RolloutStatus, Task
from rlgym_llm.unchecked import unchecked

__all__ = ["TextEnv", "TurnOutcome"]

_rollout = unchecked(Rollout)  # every scored episode makes one, of status ok


class TextEnv(EpisodeEnv):
    """Asks a task, takes text, and scores the finished episode with the composed rewards.

    The observation is the whole conversation so far: a tuple of `Message`, or a string where the
    tasks' prompts are strings. Single-turn as it stands; a multi-turn environment overrides
    `advance`, and `begin` where an episode has state of its own, which it keeps in attributes.

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
    starter: ClassVar[str | None] = None
    """Name of the bundled starter kit that a run on this environment takes by default."""
    data_files: ClassVar[tuple[str, ...]] = ()
    """Arguments that name files, that of the problems first, of a class that is made of nothing but
    its arguments and the files they name: `rlgym_llm.make` then copies what it made of the same
    before. Not inherited, since a subclass may read more."""
    gold_reward: ClassVar[float | None] = None
    """The reward of a gold episode; None: the highest that the components' ranges allow."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """JSON schemas of the tools that a policy may call; `reset` tells them in ``info["tools"]``."""

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
        self.rewards = (
            compose_cache.parsed_defaults(self.default_rewards)
            if rewards is None
            else compose_cache.parsed(rewards)
        )
        self.defer_scoring = defer_scoring
        self.max_turns = max_turns
        self.render_mode = render_mode
        self.action_space = UnicodeText()
        is_text = isinstance(tasks[0].prompt, str)
        self.observation_space = UnicodeText(max_chars=10**9) if is_text else Conversation()
        self.plugins: RewardPlugins | None = None
        """Where the rewards come from; None is whatever is installed. `rlgym_llm.make` sets it."""
        super().__init__()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Prompt, dict[str, Any]]:
        """Starts an episode of one task; returns its prompt and ``{task_id, index}`` (and tools).

        ``options={"index": i}`` asks for task ``i``, ``options={"task": task}`` for one of your own
        (its index is None); without either the index is drawn from ``self.np_random``. Raises
        UserError for an unknown option, for both at once, and for an index out of range.
        """
        super().reset(seed=seed)
        self._note_made()
        self._is_over = True  # until all went well
        self._task, self._index = self._choose(options or {})
        self._turns = ()
        self.begin(self._task)
        self._observation = self.opening(self._task)
        if self._observation not in self.observation_space:
            raise UserError(f"task {self._task.id}: its prompt is not in {self.observation_space}")
        self._is_over = False
        info: dict[str, Any] = {"task_id": self._task.id, "index": self._index}
        if self.tools:
            info["tools"] = self.tools
        return self._observation, info

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
        action = as_action(action, type(self).__name__)
        if action.finish_reason is FinishReason.STOP:
            outcome = self.advance(action)
        else:
            outcome = TurnOutcome(truncated=True)
        self._turns += (turn_record(action, outcome),)
        self._observation = extended(self._observation, action, outcome)
        terminated = outcome.terminated
        truncated = outcome.truncated or (not terminated and self._is_out_of_turns())
        self._is_over = terminated or truncated
        said = {
            "task_id": task.id,
            "index": self._index,
            "reply": outcome.reply,
            "env_reward": outcome.env_reward,
        }
        return self._stepped(terminated, truncated, said)

    def _stepped(
        self, terminated: bool, truncated: bool, said: dict[str, Any]
    ) -> tuple[Prompt, float, bool, bool, dict[str, Any]]:
        """What `step` returns: the score is added to what the info says."""
        card = None
        if self._is_over and not self.defer_scoring:
            card = self._score(self.task, terminated=terminated, truncated=truncated)
        reward = card.reward if card is not None else None
        info = {
            **said,
            "score": card,
            "components": {name: c.raw for name, c in card.components.items()} if card else {},
            "unscored": self._is_over and reward is None,
        }
        return self._observation, float(reward or 0.0), terminated, truncated, info

    def begin(self, task: Task) -> None:
        """Sets up an episode of its own, before the first observation; ``np_random`` is seeded."""

    def opening(self, task: Task) -> Prompt:
        """What the policy is asked first; by default the task's prompt."""
        return task.prompt

    def advance(self, action: Action) -> TurnOutcome:
        """The environment's answer to an action that stopped by itself; single-turn: it is over.

        Override this. ``self.task`` and ``self.turns`` tell where the episode stands, and chance
        comes from ``self.np_random`` only.
        """
        return OVER

    def gold_action(self, task: Task) -> str | Action | None:
        """The best action where the episode stands, from the first turn on; None: not known."""
        return None

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
            composer, self._composer = self._composer, None
            compose_cache.give_back(composer)

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
            self._composer = compose_cache.lend(self.rewards, self.plugins)
        # An episode that drew nothing was not seeded: no generator is made to say so.
        seed = -1 if self._np_random is None else self.np_random_seed
        ok = RolloutStatus.OK
        rollout = _rollout(
            task.id, task, task.id, 0, seed, self._turns, terminated, truncated, ok, None
        )
        return self._composer([rollout])[0]
