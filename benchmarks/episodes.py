"""Many episodes at once: wall clock, lag of the event loop, and one environment that hangs.

    python benchmarks/episodes.py                        # 2,000 episodes of 5 turns, 1 s a sample
    python benchmarks/episodes.py --episodes 200 --turns 3 --latency 0.05

The generator is scripted: every sample takes ``--latency`` seconds, any number at a time, so the
ideal is turns x latency. Lag is measured on the loop by a heartbeat: how much later than asked a
sleep of 5 ms wakes up. Environments are synchronous. Sides:

*quick*: an environment that answers at once. *one hangs*: the same, but one of them sleeps for
ever in its second step and has a deadline of 2 s. *10 ms*: every step sleeps for 10 ms. *batched*:
quick, with the generator as one that samples batches, any number at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from rlgym_llm.env import TextEnv, TurnOutcome
from rlgym_llm.env_pool import EnvPool
from rlgym_llm.episodes.batching import Batching
from rlgym_llm.episodes.runner import EpisodeRunner
from rlgym_llm.generate import SamplingParams
from rlgym_llm.rollout import group_specs
from rlgym_llm.scripted_generator import ScriptedGenerator
from rlgym_llm.tasks import ListTasks
from rlgym_llm.types import Action, Message, Rollout, Task

HEARTBEAT_S = 0.005


class Chat(TextEnv):
    """Answers every turn but the last one."""

    def __init__(self, *, num_turns: int, num_tasks: int, step_s: float, hanging: str) -> None:
        tasks = [Task(prompt=f"Talk about number {i}.", id=f"t{i}") for i in range(num_tasks)]
        super().__init__(tasks=ListTasks(tasks), max_turns=None)
        self.num_turns = num_turns
        self.step_s = step_s
        self.hanging = hanging

    def advance(self, action: Action) -> TurnOutcome:
        """Takes its time, and says "Go on." until the last turn."""
        if self.step_s:
            time.sleep(self.step_s)
        if self.task.id == self.hanging and self.turns:
            threading.Event().wait()
        if len(self.turns) + 1 == self.num_turns:
            return TurnOutcome(env_reward=1.0, terminated=True)
        return TurnOutcome(reply=(Message(role="user", content="Go on."),))


@dataclass(frozen=True, kw_only=True)
class Side:
    """What is run, beside the numbers of episodes and turns."""

    name: str
    step_s: float = 0.0
    hanging: str = ""
    batching: Batching | None = None


@dataclass(frozen=True, kw_only=True)
class Result:
    """One run."""

    wall_s: float
    cpu_s: float
    last_ok_s: float
    """When the last episode that did not fail was done."""
    lags_s: list[float]
    rollouts: list[Rollout]


SIDES = (
    Side(name="quick"),
    Side(name="one hangs", hanging="t7"),
    Side(name="10 ms", step_s=0.01),
    Side(name="batched", batching=Batching(max_in_flight=None)),
)


async def run_side(side: Side, args: argparse.Namespace) -> Result:
    """Runs the episodes of one side, with a heartbeat beside them."""

    def make_env() -> Chat:
        return Chat(
            num_turns=args.turns, num_tasks=args.episodes, step_s=side.step_s, hanging=side.hanging
        )

    pool = EnvPool(make_env)
    specs = group_specs(list(pool.prepare().unwrapped.tasks), group_size=1, seed=0)
    runner = EpisodeRunner(
        make_env=pool,
        generator=ScriptedGenerator(["I have something to say."], latency_s=args.latency),
        params=SamplingParams(max_new_tokens=32),
        batching=side.batching,
        step_timeout_s=2.0 if side.hanging else None,
    )
    lags: list[float] = []
    heart = asyncio.create_task(beat(lags.append))
    started, cpu = time.perf_counter(), time.process_time()
    rollouts, last_ok = [], 0.0
    async for rollout in runner.stream(specs):
        rollouts.append(rollout)
        if rollout.status == "ok":
            last_ok = time.perf_counter() - started
    wall, cpu = time.perf_counter() - started, time.process_time() - cpu
    heart.cancel()
    await runner.aclose()
    pool.close()
    return Result(wall_s=wall, cpu_s=cpu, last_ok_s=last_ok, lags_s=lags, rollouts=rollouts)


async def beat(note: Callable[[float], None]) -> None:
    """Notes the lag of every heartbeat."""
    while True:
        due = time.perf_counter() + HEARTBEAT_S
        await asyncio.sleep(HEARTBEAT_S)
        note(max(0.0, time.perf_counter() - due))


def percentile(values: list[float], share: float) -> float:
    """The value that ``share`` of all are not above."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main() -> None:
    """Runs the sides one after the other and prints a table."""
    parser = argparse.ArgumentParser(description="Wall clock and loop lag of many episodes.")
    parser.add_argument("--episodes", type=int, default=2000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--latency", type=float, default=1.0)
    parser.add_argument("--side", choices=[side.name for side in SIDES], default=None)
    args = parser.parse_args()
    ideal = args.turns * args.latency
    title = (
        f"{args.episodes} episodes x {args.turns} turns, {args.latency:g} s a sample: {ideal:g} s"
    )
    table = Table(
        "side", "wall s", "ok by s", "cpu s", "lag p50 ms", "p99", "max", "status", title=title
    )
    for side in SIDES:
        if args.side not in (None, side.name):
            continue
        result = asyncio.run(run_side(side, args))
        statuses = Counter(str(rollout.status) for rollout in result.rollouts)
        lags = [f"{1000 * percentile(result.lags_s, share):.1f}" for share in (0.5, 0.99, 1.0)]
        table.add_row(
            side.name,
            f"{result.wall_s:.2f}",
            f"{result.last_ok_s:.2f}",
            f"{result.cpu_s:.2f}",
            *lags,
            ", ".join(f"{count} {status}" for status, count in statuses.items()),
        )
    Console().print(table)


if __name__ == "__main__":
    main()
