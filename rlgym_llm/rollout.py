"""Runs episodes and groups of them for callers without an event loop.

    tasks --group_specs--> specs --run_episodes--> rollouts, in order      (episodes/runner.py)

Scoring is deferred: the composer scores once, when the groups are complete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Unpack

from rlgym_llm.env_pool import MakeEnv
from rlgym_llm.episodes.batching import Batching
from rlgym_llm.episodes.callers_thread import CallersThread
from rlgym_llm.episodes.runner import EpisodeRunner
from rlgym_llm.episodes.spec import EpisodeLimits, EpisodeSpec, room_for_turn, stable_seed
from rlgym_llm.errors import UserError
from rlgym_llm.generate import AsyncGenerator, Generator, SamplingParams
from rlgym_llm.types import Rollout, RolloutGroup, Task

__all__ = [
    "REPEATABLE",
    "EpisodeLimits",
    "EpisodeSpec",
    "group_specs",
    "room_for_turn",
    "run_episodes",
    "run_groups",
    "stable_seed",
]

REPEATABLE = Batching(linger_s=1.0)
"""A machine under load makes an environment slow, but not by a second: batches repeat."""


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
    generator: Generator | AsyncGenerator,
    params: SamplingParams,
    batching: Batching | None = REPEATABLE,
    on_group: Callable[[int, RolloutGroup], None] | None = None,
    caller: CallersThread | None = None,
    places: Collection[int] | None = None,
    **limits: Unpack[EpisodeLimits],
) -> list[RolloutGroup]:
    """One group of ``group_size`` siblings per task, in the order of the tasks.

    ``on_group`` hears of each group, with the place of its task, as soon as its last sibling has
    ended; it is called on the loop's thread and must be quick. Seeds are those of `group_specs`;
    the rest is `run_episodes`. With ``places`` only the tasks there are played, as among all.
    """
    specs = group_specs(tasks, group_size=group_size, seed=seed)
    place_of = {spec.id: place for place, spec in enumerate(specs)}
    if places is not None:
        specs = [spec for spec in specs if place_of[spec.id] // group_size in places]
    siblings: list[dict[int, Rollout]] = [{} for _ in tasks]
    groups: dict[int, RolloutGroup] = {}

    def take(rollout: Rollout) -> None:
        place = place_of[rollout.id] // group_size
        siblings[place][rollout.sample_index] = rollout
        if len(siblings[place]) == group_size:
            groups[place] = RolloutGroup(
                group_id=rollout.group_id,
                task=rollout.task,
                rollouts=tuple(siblings[place][i] for i in range(group_size)),
            )
            if on_group is not None:
                on_group(place, groups[place])

    run_episodes(
        specs,
        make_env=make_env,
        generator=generator,
        params=params,
        batching=batching,
        on_rollout=take,
        caller=caller,
        **limits,
    )
    return [groups[place] for place in sorted(groups)]


def run_episodes(
    specs: Sequence[EpisodeSpec],
    *,
    make_env: MakeEnv,
    generator: Generator | AsyncGenerator,
    params: SamplingParams,
    batching: Batching | None = REPEATABLE,
    on_rollout: Callable[[Rollout], None] | None = None,
    caller: CallersThread | None = None,
    **limits: Unpack[EpisodeLimits],
) -> list[Rollout]:
    """Runs the episodes side by side and returns their rollouts, unscored, in the order of specs.

    Give an `EnvPool` as ``make_env`` to keep environments from call to call. Environments run in
    threads; ``generate`` is called in this one, unless ``batching`` allows several batches at a
    time. By default all episodes that need a turn go as one batch, and a seeded run gives the same
    batches again; with ``batching`` None a generator with ``sample`` is asked turn by turn. A
    failure is data: the rollout carries the status (environment_error, generator_error, tool_error,
    timeout) and the error, and the other episodes go on.

    ``on_rollout`` hears of each rollout as it ends, on the loop's thread. Whoever gives ``caller``
    can end the run early from another thread with its ``cancel``: CancelledError is raised here.
    """
    caller = caller or CallersThread()
    is_one_at_a_time = batching is not None and batching.max_in_flight == 1
    runner = EpisodeRunner(
        make_env=make_env,
        generator=generator,
        params=params,
        batching=batching,
        call_generator=caller.do if is_one_at_a_time else None,
        **limits,
    )

    async def run() -> list[Rollout]:
        try:
            return await runner.run_all(specs, on_rollout=on_rollout)
        finally:
            await runner.aclose()

    return caller.run(run())
