"""Runs episodes and groups of them: environments on one side, a generator on the other.

    specs -> reset -> ids ------------> generator.generate (one batch a turn)
                       ^                        |
                       |                        v
              encode_reply(reply) <- step <- Completion        done -> Rollout, in order

Scoring is deferred: the composer scores once, when the groups are complete.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict, Unpack

import gymnasium

from rlgym_llm.env_pool import EnvPool, MakeEnv
from rlgym_llm.errors import GeneratorError, UserError
from rlgym_llm.generate import GenerateRequest, Generator, SamplingParams
from rlgym_llm.types import (
    Action,
    Completion,
    Message,
    Rollout,
    RolloutGroup,
    RolloutStatus,
    Task,
    Turn,
)

__all__ = [
    "EpisodeLimits",
    "EpisodeSpec",
    "group_specs",
    "room_for_turn",
    "run_episodes",
    "run_groups",
    "stable_seed",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeSpec:
    """One episode to run, as plain data."""

    id: str
    """Id of the rollout that comes out."""
    task: Task
    group_id: str
    sample_index: int
    """Which of the G siblings this is, from 0."""
    seed: int
    """Seeds the environment's reset and the first turn's sampling."""


class EpisodeLimits(TypedDict, total=False):
    """Budgets of an episode. One that runs out truncates it: status ``ok``, never an error."""

    max_turns: int | None
    """Turns the runner allows; an environment may allow fewer."""
    max_prompt_tokens: int | None
    """Tokens of the opening prompt."""
    max_rollout_tokens: int | None
    """Sampled tokens over all turns of one rollout."""
    max_context_tokens: int | None
    """Prompt, replies and sampled tokens together: the model's context."""


def stable_seed(*parts: int | str) -> int:
    """A seed below 2**53 that is the same in every process: SHA-256 of the parts as JSON.

    >>> stable_seed(1, "a") == stable_seed(1, "a") != stable_seed("1", "a")
    True
    """
    digest = hashlib.sha256(json.dumps(parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 11


def room_for_turn(
    max_new_tokens: int,
    *,
    num_sampled: int,
    num_context: int,
    max_rollout_tokens: int | None = None,
    max_context_tokens: int | None = None,
) -> int:
    """How many tokens the next turn may sample; 0 or less means that the episode is truncated.

    >>> room_for_turn(400, num_sampled=650, num_context=700, max_rollout_tokens=1000)
    350
    >>> room_for_turn(400, num_sampled=300, num_context=540, max_context_tokens=512)
    -28
    """
    room = max_new_tokens
    if max_rollout_tokens is not None:
        room = min(room, max_rollout_tokens - num_sampled)
    if max_context_tokens is not None:
        room = min(room, max_context_tokens - num_context)
    return room


def group_specs(tasks: Sequence[Task], *, group_size: int, seed: int) -> list[EpisodeSpec]:
    """The specs of ``group_size`` siblings of every task, siblings side by side.

    The seed of a sibling is ``stable_seed(seed, task.id, k, sample_index)``, where this is the
    k-th time (from 0) that the task stands in ``tasks``; so it depends neither on the order of the
    tasks nor on the process. Give another ``seed`` at every training step.
    """
    if group_size < 1:
        raise UserError(f"a group needs at least 1 rollout, got group_size={group_size}")
    seen: Counter[str] = Counter()
    specs = []
    for task in tasks:
        occurrence = seen[task.id]
        seen[task.id] += 1
        group_id = f"{task.id}-{stable_seed(seed, task.id, occurrence):014x}"
        specs += [
            EpisodeSpec(
                id=f"{group_id}-{sample_index}",
                task=task,
                group_id=group_id,
                sample_index=sample_index,
                seed=stable_seed(seed, task.id, occurrence, sample_index),
            )
            for sample_index in range(group_size)
        ]
    return specs


def run_groups(
    tasks: Sequence[Task],
    *,
    group_size: int,
    seed: int,
    make_env: MakeEnv,
    generator: Generator,
    params: SamplingParams,
    **limits: Unpack[EpisodeLimits],
) -> list[RolloutGroup]:
    """One group of ``group_size`` siblings per task, in the order of the tasks.

    Seeds are those of `group_specs`; the rest is `run_episodes`.
    """
    specs = group_specs(tasks, group_size=group_size, seed=seed)
    rollouts = run_episodes(specs, make_env=make_env, generator=generator, params=params, **limits)
    groups = []
    for start in range(0, len(specs), group_size):
        spec = specs[start]
        siblings = tuple(rollouts[start : start + group_size])
        groups.append(RolloutGroup(group_id=spec.group_id, task=spec.task, rollouts=siblings))
    return groups


def run_episodes(
    specs: Sequence[EpisodeSpec],
    *,
    make_env: MakeEnv,
    generator: Generator,
    params: SamplingParams,
    **limits: Unpack[EpisodeLimits],
) -> list[Rollout]:
    """Runs the episodes side by side and returns their rollouts, unscored, in the order of specs.

    Give an `EnvPool` as ``make_env`` to keep environments from call to call. All episodes that
    need a turn go to the generator as one batch. A failure is data: the rollout carries the status
    (environment_error, generator_error, timeout) and the error, and the other episodes go on.
    """
    pool = make_env if isinstance(make_env, EnvPool) else EnvPool(make_env)
    episodes = [_Episode(spec=spec) for spec in specs]
    for episode in episodes:
        _open(episode, pool, generator, limits)
    while active := [episode for episode in episodes if not episode.is_over]:
        # A batch a turn. An event-driven collector replaces this loop and keeps the three steps.
        requests = [(episode, _request(episode, params, limits)) for episode in active]
        wanted = [(episode, request) for episode, request in requests if request is not None]
        for episode, completion in _generate(wanted, generator):
            _advance(episode, completion, generator, limits)
    for episode in episodes:
        if episode.env is not None:
            pool.release(episode.env)
    if not isinstance(make_env, EnvPool):
        pool.close()
    return [_rollout(episode) for episode in episodes]


@dataclass(slots=True, kw_only=True)
class _Episode:
    """An episode under way; the runner's own, mutable until it becomes a Rollout."""

    spec: EpisodeSpec
    env: gymnasium.Env[Any, Any] | None = None
    context: list[int] = field(default_factory=list)
    new_prompt: tuple[int, ...] = ()
    turns: list[Turn] = field(default_factory=list)
    num_sampled: int = 0
    terminated: bool = False
    truncated: bool = False
    status: RolloutStatus = RolloutStatus.OK
    error: str | None = None

    @property
    def is_over(self) -> bool:
        return self.terminated or self.truncated or self.status is not RolloutStatus.OK

    def fail(self, status: RolloutStatus, who: str, error: Exception) -> None:
        """Ends the episode; a deadline that was missed is a timeout, whoever missed it."""
        self.status = RolloutStatus.TIMEOUT if isinstance(error, TimeoutError) else status
        self.error = f"{who}: {type(error).__name__}: {error}"
        if self.env is not None and status is RolloutStatus.ENVIRONMENT_ERROR:
            # Never reused: whatever broke it may still be broken.
            self.env = None


def _open(episode: _Episode, pool: EnvPool, generator: Generator, limits: EpisodeLimits) -> None:
    """Resets an environment in the task and encodes the opening prompt."""
    spec = episode.spec
    env = episode.env = pool.acquire()
    try:
        prompt, _ = env.reset(seed=spec.seed, options={"task": spec.task})
    except Exception as error:
        episode.fail(RolloutStatus.ENVIRONMENT_ERROR, f"{_name(env)}.reset", error)
        return
    if _encode(episode, generator, lambda: generator.encode_prompt(prompt)):
        longest = limits.get("max_prompt_tokens")
        episode.truncated = longest is not None and len(episode.new_prompt) > longest


def _encode(episode: _Episode, generator: Generator, encode: Callable[[], Sequence[int]]) -> bool:
    """Adds the ids of a prompt or a reply to the context; False where encoding failed."""
    try:
        episode.new_prompt = tuple(encode())
    except Exception as error:
        who = f"{type(generator).__name__}.encode"
        episode.fail(RolloutStatus.GENERATOR_ERROR, who, error)
        return False
    episode.context.extend(episode.new_prompt)
    return True


def _request(
    episode: _Episode, params: SamplingParams, limits: EpisodeLimits
) -> GenerateRequest | None:
    """The next turn's request; None, and the episode truncated, where no room is left."""
    room = room_for_turn(
        params.max_new_tokens,
        num_sampled=episode.num_sampled,
        num_context=len(episode.context),
        max_rollout_tokens=limits.get("max_rollout_tokens"),
        max_context_tokens=limits.get("max_context_tokens"),
    )
    if room < 1:
        episode.truncated = True
        return None
    turn = len(episode.turns)
    return GenerateRequest(
        prompt_token_ids=tuple(episode.context),
        params=params if room == params.max_new_tokens else replace(params, max_new_tokens=room),
        seed=episode.spec.seed if turn == 0 else stable_seed(episode.spec.seed, turn),
    )


def _generate(
    wanted: Sequence[tuple[_Episode, GenerateRequest]], generator: Generator
) -> list[tuple[_Episode, Completion]]:
    """Samples one batch; where the generator fails, so do the episodes of this batch."""
    if not wanted:
        return []
    who = f"{type(generator).__name__}.generate"
    try:
        completions = generator.generate([request for _, request in wanted])
        if len(completions) != len(wanted):
            raise GeneratorError(f"{len(completions)} completions for {len(wanted)} requests")
    except (GeneratorError, TimeoutError) as error:
        for episode, _ in wanted:
            episode.fail(RolloutStatus.GENERATOR_ERROR, who, error)
        return []
    return [(episode, done) for (episode, _), done in zip(wanted, completions, strict=True)]


def _advance(
    episode: _Episode, completion: Completion, generator: Generator, limits: EpisodeLimits
) -> None:
    """Steps the environment with what was sampled and encodes its reply."""
    env = episode.env
    assert env is not None, "an episode that runs holds an environment"
    episode.context.extend(completion.token_ids)
    episode.num_sampled += completion.num_tokens
    reply: tuple[Message, ...] = ()
    env_reward = None
    try:
        _, _, terminated, truncated, info = env.step(Action.from_completion(completion))
        reply, env_reward = info["reply"], info["env_reward"]
        episode.terminated, episode.truncated = bool(terminated), bool(truncated)
    except Exception as error:
        episode.fail(RolloutStatus.ENVIRONMENT_ERROR, f"{_name(env)}.step", error)
    # What was sampled is kept, even where the environment failed on it.
    turn = Turn(
        new_prompt_token_ids=episode.new_prompt,
        completion=completion,
        reply=reply,
        env_reward=env_reward,
    )
    episode.turns.append(turn)
    if episode.is_over:
        return
    max_turns = limits.get("max_turns")
    if max_turns is not None and len(episode.turns) >= max_turns:
        episode.truncated = True
        return
    _encode(episode, generator, lambda: generator.encode_reply(reply))


def _rollout(episode: _Episode) -> Rollout:
    spec = episode.spec
    return Rollout(
        id=spec.id,
        task=spec.task,
        group_id=spec.group_id,
        sample_index=spec.sample_index,
        seed=spec.seed,
        turns=tuple(episode.turns),
        terminated=episode.terminated,
        truncated=episode.truncated,
        status=episode.status,
        error=episode.error,
    )


def _name(env: gymnasium.Env[Any, Any]) -> str:
    return type(env.unwrapped).__name__
