"""Score with one reward under the backend that isolates it as far as it needs.

``inline`` runs in the caller's thread. ``thread`` runs calls side by side and keeps deadlines, but
cannot stop what hangs. ``process`` can: hangs, crashes and memory cost the rollouts that caused
them. ``async`` awaits many slow answers, of judges and reward servers, on one event loop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol, get_args

from rlgym_llm.cores import num_cores
from rlgym_llm.errors import ConfigError, did_you_mean
from rlgym_llm.rewards import Backend, Reward, RewardContext, check_backend
from rlgym_llm.score import close_reward, score_bound, setup_reward
from rlgym_llm.scorers.call import BoundReward, Pending
from rlgym_llm.scorers.source import RewardSource, reward_source
from rlgym_llm.types import Rollout

__all__ = ["InlineScorer", "Pending", "RewardSource", "Scorer", "make_scorer", "reward_source"]


class Scorer(Protocol):
    """One reward, ready to score from any thread.

    What a reward does wrong on a rollout is a `Score` without value and with an error that names
    both. RewardError, which names the reward, is of its setup and its close alone.
    """

    holds: bool
    """Whether `setup` makes anything that `close` gives back."""

    def setup(self, ctx: RewardContext) -> None:
        """Makes what scoring needs; called once before the first score."""
        ...

    def submit(self, rollouts: Sequence[Rollout], ctx: RewardContext, *, name: str) -> Pending:
        """Starts scoring (inline: scores when the result is asked for).

        ``name`` is what the scores are called. ``ctx.components`` holds one value per rollout.
        """
        ...

    def close(self) -> None:
        """Gives back what `setup` made; safe to call twice, and `setup` may follow."""
        ...


class InlineScorer:
    """Scores in the thread that asks for the result."""

    def __init__(self, bound: BoundReward) -> None:
        self.bound = bound
        # Most rewards set nothing up, and then there is nothing to close.
        hooks = (bound.reward.setup, bound.reward.close)
        self.holds = [getattr(h, "__func__", h) for h in hooks] != [Reward.setup, Reward.close]

    def setup(self, ctx: RewardContext) -> None:
        """Sets the reward up."""
        setup_reward(self.bound, ctx)

    def submit(self, rollouts: Sequence[Rollout], ctx: RewardContext, *, name: str) -> Pending:
        """Starts nothing; the result scores."""
        bound = self.bound if name == self.bound.name else replace(self.bound, name=name)
        return partial(score_bound, bound, rollouts, ctx)

    def close(self) -> None:
        """Closes the reward."""
        close_reward(self.bound)


def make_scorer(
    reward: Reward,
    *,
    name: str | None = None,
    source: RewardSource | None = None,
    backend: Backend | None = None,
    timeout_s: float | None = None,
    memory_mb: int | None = None,
    concurrency: int | None = None,
) -> Scorer:
    """The scorer of a reward; what is given here goes before what the reward declares.

    ``name`` is what errors of its setup call it. ``source`` is how a worker process comes by it;
    None sends it as a pickle. ``process`` has no more workers than the machine has cores, unless
    ``concurrency`` is given. Raises ConfigError for values out of range, PluginError where the
    reward cannot be scored under that backend.

    >>> from rlgym_llm.rewards import build_reward
    >>> from rlgym_llm.rewards import reward as declare
    >>> from rlgym_llm.types import Completion, Task, Turn
    >>> @declare("brevity", backend="thread", timeout_s=5)
    ... def brevity(completion):
    ...     return len(completion) <= 3
    >>> turn = Turn(new_prompt_token_ids=(), completion=Completion(text="72"))
    >>> rollout = Rollout(id="r", task=Task(prompt="12 + 60?"), group_id="g", sample_index=0,
    ...                   seed=0, turns=(turn,))
    >>> scorer = make_scorer(build_reward(brevity))
    >>> pending = scorer.submit([rollout], RewardContext(), name="brevity")
    >>> pending()[0].value
    1.0
    >>> scorer.close()
    """
    name = name or reward.name
    backend = backend or reward.backend
    if backend not in get_args(Backend):
        hint = did_you_mean(backend, get_args(Backend))
        known = ", ".join(get_args(Backend))
        raise ConfigError(f"reward {name!r}: unknown backend {backend!r}{hint} (known: {known})")
    check_backend(reward, backend)
    timeout_s = reward.timeout_s if timeout_s is None else timeout_s
    memory_mb = reward.memory_mb if memory_mb is None else memory_mb
    limits = {"timeout_s": timeout_s, "memory_mb": memory_mb, "concurrency": concurrency}
    for what, limit in limits.items():
        if limit is not None and not 0 < limit < math.inf:
            raise ConfigError(f"reward {name!r}: {what} must be above 0, not {limit!r}")
    bound = BoundReward(reward=reward, name=name, timeout_s=timeout_s)
    if backend == "thread":
        from rlgym_llm.scorers.thread_scorer import ThreadScorer

        return ThreadScorer(bound, num_threads=concurrency or reward.concurrency)
    if backend == "process":
        from rlgym_llm.scorers.process_scorer import ProcessScorer

        num_workers = concurrency or min(reward.concurrency, num_cores())
        return ProcessScorer(bound, source=source, memory_mb=memory_mb, num_workers=num_workers)
    if backend == "async":
        from rlgym_llm.scorers.async_scorer import AsyncScorer

        return AsyncScorer(bound, concurrency=concurrency or reward.concurrency)
    return InlineScorer(bound)
