"""The groups of a step's tasks, each with a greedy sibling where the advantages need one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from rlgym_llm.episodes.callers_thread import CallersThread
from rlgym_llm.rollout import run_groups, stable_seed
from rlgym_llm.types import RolloutGroup
from rlgym_llm_trainers.training.collector import OnGroup
from rlgym_llm_trainers.training.session import Session

__all__ = ["sample_groups"]


def sample_groups(
    session: Session,
    step: int,
    indices: Sequence[int],
    *,
    on_group: OnGroup,
    caller: CallersThread,
    places: Collection[int] | None = None,
    draw: int = 0,
) -> None:
    """Samples ``rollout.n`` siblings of each task; as `SampleGroups` for a session.

    ``draw`` counts the draws of tasks in one step: each has seeds, and so ids, of its own. A greedy
    sibling is a group by itself, sampled first, so that a group is offered together with it.
    """
    seed = session.config.trainer.seed
    draws = (step,) if draw == 0 else (step, draw)
    greedy: dict[int, RolloutGroup] = {}

    def sample(kind: str, **how: object) -> None:
        run_groups(
            [session.train_tasks[index] for index in indices],
            seed=stable_seed(seed, kind, *draws),
            make_env=session.train_envs,
            generator=session.generator,
            batching=session.batching,
            caller=caller,
            places=places,
            **how,  # type: ignore[arg-type]
            **session.limits,
        )

    def offer(place: int, group: RolloutGroup) -> None:
        sibling = greedy[place].rollouts[0] if greedy else None
        on_group(place, group, index=indices[place], greedy=sibling)

    if session.needs_baseline:
        likeliest = replace(session.train_params, temperature=0.0, top_p=1.0, top_k=-1)
        sample("greedy", group_size=1, params=likeliest, on_group=greedy.__setitem__)
    sample(
        "train",
        group_size=session.config.rollout.n,
        params=session.train_params,
        on_group=offer,
    )
