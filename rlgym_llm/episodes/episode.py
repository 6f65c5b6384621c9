"""One episode under way: its ids, its turns, and what is left of its budgets."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from rlgym_llm.episodes.encoder import Tools
from rlgym_llm.episodes.env_calls import Env, StepResult
from rlgym_llm.episodes.failure import EpisodeFailure
from rlgym_llm.episodes.spec import EpisodeLimits, EpisodeSpec, room_for_turn, stable_seed
from rlgym_llm.generate import GenerateRequest, SamplingParams
from rlgym_llm.types import Completion, Rollout, RolloutStatus, Turn

__all__ = ["Episode"]


@dataclass(slots=True, kw_only=True)
class Episode:
    """The runner's own record of an episode, mutable until it becomes a Rollout."""

    spec: EpisodeSpec
    params: SamplingParams
    limits: EpisodeLimits
    env: Env | None = None
    """None before the opening, and where it may be broken."""
    tools: Tools = ()
    context: tuple[int, ...] = ()
    """All ids so far, as they were encoded and sampled; none is ever encoded again."""
    new_prompt: tuple[int, ...] = ()
    """What the next turn adds to the context."""
    turns: list[Turn] = field(default_factory=list)
    num_sampled: int = 0
    started: float = field(default_factory=time.monotonic)
    terminated: bool = False
    truncated: bool = False
    failure: EpisodeFailure | None = None

    @property
    def is_over(self) -> bool:
        """Whether no further turn follows."""
        return self.terminated or self.truncated or self.failure is not None

    @property
    def is_last_turn(self) -> bool:
        """Whether the turn that is being sampled is the last that the runner allows."""
        most = self.limits.get("max_turns")
        return most is not None and len(self.turns) + 1 >= most

    def begin(self, result: StepResult) -> None:
        """Takes the opened environment and its prompt."""
        self.env, self.tools = result.env, result.tools
        self._read(result)
        longest = self.limits.get("max_prompt_tokens")
        if not self.is_over and longest is not None:
            self.truncated = len(self.new_prompt) > longest

    def next_request(self) -> GenerateRequest | None:
        """The next turn's request; None where the episode is over, or a budget ends it now."""
        if self.is_over:
            return None
        room = room_for_turn(
            self.params.max_new_tokens,
            num_sampled=self.num_sampled,
            num_context=len(self.context),
            max_turn_tokens=self.limits.get("max_turn_tokens"),
            max_rollout_tokens=self.limits.get("max_rollout_tokens"),
            max_context_tokens=self.limits.get("max_context_tokens"),
        )
        most = self.limits.get("max_seconds")
        if room < 1 or (most is not None and time.monotonic() - self.started >= most):
            self.truncated = True
            return None
        turn, params = len(self.turns), self.params
        if room != params.max_new_tokens:
            params = replace(params, max_new_tokens=room)
        return GenerateRequest(
            prompt_token_ids=self.context,
            params=params,
            seed=self.spec.seed if turn == 0 else stable_seed(self.spec.seed, turn),
        )

    def take(self, completion: Completion, result: StepResult) -> None:
        """Adds a turn. What was sampled is kept, even where the environment failed on it."""
        turn = Turn(
            new_prompt_token_ids=self.new_prompt,
            completion=completion,
            reply=result.reply,
            env_reward=result.env_reward,
        )
        was_last = self.is_last_turn
        self.turns.append(turn)
        self.context += completion.token_ids
        self.num_sampled += completion.num_tokens
        self.terminated, self.truncated = result.terminated, result.truncated
        self._read(result)
        if was_last and not self.is_over:
            self.truncated = True

    def fail(self, failure: EpisodeFailure) -> None:
        """Ends the episode."""
        self.failure = failure
        if failure.is_env_lost:
            self.env = None

    def to_rollout(self) -> Rollout:
        """The finished record."""
        spec, failure = self.spec, self.failure
        return Rollout(
            id=spec.id,
            task=spec.task,
            group_id=spec.group_id,
            sample_index=spec.sample_index,
            seed=spec.seed,
            turns=tuple(self.turns),
            terminated=self.terminated,
            truncated=self.truncated,
            status=failure.status if failure else RolloutStatus.OK,
            error=failure.error if failure else None,
        )

    def _read(self, result: StepResult) -> None:
        if result.failure is not None:
            self.fail(result.failure)
        self.new_prompt = result.token_ids
        self.context += result.token_ids
