"""A generator's process killed in every run: nothing lost, nothing doubled, little time gone.

    python benchmarks/killed_actors.py                             # starter model, transformers
    python benchmarks/killed_actors.py --name vllm --model SmolLM2-135M --max-num-seqs 32

Two Ray actors sample one completion for each of 200 prompts, in pairs of runs: one undisturbed, and
one in which ``kill -9`` ends an actor's process at a random moment. Every (prompt, sample) must be
told of exactly once and be sampled. *Start* is the time from killing an actor that has nothing to
do until its replacement samples. A killed run may take twice as long as the undisturbed one and a
start together. Between runs both actors are waited for.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlgym_llm_trainers.generators.ray_pool.generator import RayGenerator

    from rlgym_llm.types import Rollout, RolloutGroup, Task

NUM_ACTORS = 2
MOST = 2.0
_PATIENCE_S = 300.0
_TITLE = b"ray::SamplingActor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One collection."""

    seconds: float
    told: Counter[tuple[str, int]]
    """How often each (task, sample) was told of."""
    rollouts: tuple[Rollout, ...]


def main() -> int:
    """Makes the generator, runs the pairs, and prints a line for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="Hugging Face folder; default: the starter model")
    parser.add_argument("--name", default="hf", help="generator that the actors hold: hf or vllm")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--max-num-seqs", type=int, default=8, help="at once, in each actor")
    parser.add_argument("--seed", type=int, default=0, help="draws who is killed, and when")
    options = parser.parse_args()
    generator = open_generator(options)
    try:
        return run_pairs(generator, options)
    finally:
        generator.close()


def open_generator(options: argparse.Namespace) -> RayGenerator:
    """Two actors with the model's weights."""
    from rlgym_llm_trainers.models.torch_setup import set_up_torch

    set_up_torch(num_threads=1, seed=0)
    import torch
    from rlgym_llm_trainers.generators.ray_pool.generator import RayGenerator
    from rlgym_llm_trainers.models.policy import load_policy
    from rlgym_llm_trainers.models.starter import starter_model_path

    from rlgym_llm.config_schema import TrainConfig
    from rlgym_llm.plugins import Plugins
    from rlgym_llm.specs import GeneratorSpec, Kind

    rollout = {
        "name": options.name,
        "num_workers": NUM_ACTORS,
        "max_num_seqs": options.max_num_seqs,
        "max_model_len": 512,
    }
    config = TrainConfig.model_validate({"rollout": rollout})
    spec = Plugins.discover().get(Kind.GENERATOR, options.name)
    assert isinstance(spec, GeneratorSpec)
    model = options.model or starter_model_path()
    generator = RayGenerator(load_policy(model, device=torch.device("cpu")), config, spec)
    generator.sync(0)
    return generator


def run_pairs(generator: RayGenerator, options: argparse.Namespace) -> int:
    """The runs, one undisturbed and one killed in turns."""
    draw = random.Random(options.seed)
    tasks = tasks_of(options.prompts)
    collect(generator, tasks, options)  # warms up
    start_s = seconds_of_a_start(generator, draw)
    print(
        f"{options.name}, {NUM_ACTORS} actors, {options.prompts} prompts; start {start_s:.2f} s\n"
    )
    print("run  undisturbed  killed after  killed run  retried  ratio  samples")
    ratios, is_whole = [], True
    for number in range(1, options.runs + 1):
        calm = collect(generator, tasks, options)
        generator.metrics()
        moment = draw.uniform(0, calm.seconds)
        killer = threading.Timer(moment, lambda: kill_one(draw))
        killer.start()
        killed = collect(generator, tasks, options)
        killer.join()
        wait_for_actors(generator)
        metrics = generator.metrics()
        faults = [fault for run in (calm, killed) for fault in faults_of(run, tasks)]
        if metrics["rollout/actors_lost"] != 1:
            faults.append(f"{metrics['rollout/actors_lost']:g} actors were lost, not 1")
        is_whole &= not faults
        ratios.append(killed.seconds / (calm.seconds + start_s))
        print(
            f"{number:3}  {calm.seconds:9.2f} s  {moment:10.2f} s  {killed.seconds:8.2f} s"
            f"  {metrics['rollout/retried_turns']:7g}  {ratios[-1]:5.2f}"
            f"  {'; '.join(faults) or 'each once'}",
            flush=True,
        )
    print(
        f"\nkilled / (undisturbed + start): worst {max(ratios):.2f}, "
        f"median {statistics.median(ratios):.2f}, at most {MOST:g}"
    )
    if not is_whole:
        print("MISSED: a sample was lost, doubled or failed, or another number of actors died")
    if max(ratios) > MOST:
        print(f"MISSED: the worst run took {max(ratios):.2f} times its undisturbed one and a start")
    return 0 if is_whole and max(ratios) <= MOST else 1


def tasks_of(count: int) -> list[Task]:
    """Different prompts, in words that the starter model knows."""
    from rlgym_llm.types import Message, Task

    return [
        Task(
            prompt=(
                Message(
                    role="user",
                    content=f"Tom has {i} apples and buys {i + 3} more. How many does he have?",
                ),
            ),
            answer=str(2 * i + 3),
            id=f"task-{i}",
        )
        for i in range(count)
    ]


def collect(generator: RayGenerator, tasks: Sequence[Task], options: argparse.Namespace) -> Run:
    """One completion of every task, through episodes of a single turn."""
    from rlgym_llm.env import TextEnv, TurnOutcome
    from rlgym_llm.env_pool import EnvPool
    from rlgym_llm.generate import SamplingParams
    from rlgym_llm.rollout import run_groups
    from rlgym_llm.tasks import ListTasks
    from rlgym_llm.types import Action

    class Once(TextEnv):
        """Ends after the first answer."""

        def advance(self, action: Action) -> TurnOutcome:
            return TurnOutcome(env_reward=1.0, terminated=True)

    told: Counter[tuple[str, int]] = Counter()

    def tell(place: int, group: RolloutGroup) -> None:
        told.update((one.task.id, one.sample_index) for one in group.rollouts)

    pool = EnvPool(lambda: Once(tasks=ListTasks(tasks), max_turns=1))
    started = time.perf_counter()
    groups = run_groups(
        tasks,
        group_size=1,
        seed=options.seed,
        make_env=pool,
        generator=generator,
        params=SamplingParams(max_new_tokens=options.tokens),
        batching=None,
        on_group=tell,
    )
    seconds = time.perf_counter() - started
    pool.close()
    return Run(
        seconds=seconds, told=told, rollouts=tuple(one for g in groups for one in g.rollouts)
    )


def faults_of(run: Run, tasks: Sequence[Task]) -> Iterator[str]:
    """What is wrong with a run: each (task, 0) must be told of and returned once, and sampled."""
    wanted = Counter((task.id, 0) for task in tasks)
    returned = Counter((one.task.id, one.sample_index) for one in run.rollouts)
    if run.told != wanted:
        yield "told of other samples than were asked for"
    if returned != wanted:
        yield "other samples than were asked for"
    failed = [one for one in run.rollouts if one.status != "ok" or not one.num_tokens]
    if failed:
        yield f"{len(failed)} failed, the first: {failed[0].error}"


def seconds_of_a_start(generator: RayGenerator, draw: random.Random) -> float:
    """From the death of an idle actor until both sample again."""
    started = time.perf_counter()
    kill_one(draw)
    wait_for_actors(generator)
    return time.perf_counter() - started


def wait_for_actors(generator: RayGenerator) -> None:
    """Returns once every actor samples: as many requests go to as many actors then."""
    from rlgym_llm.generate import GenerateRequest, SamplingParams

    request = GenerateRequest(
        prompt_token_ids=generator.encode_prompt("1 + 1 ="),
        params=SamplingParams(max_new_tokens=1),
        seed=0,
    )
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        names = {done.sampled_by for done in generator.generate([request] * NUM_ACTORS)}
        if len(names) == NUM_ACTORS:
            return
        time.sleep(0.05)
    raise SystemExit(f"after {_PATIENCE_S:g} s there are not {NUM_ACTORS} actors that sample")


def kill_one(draw: random.Random) -> None:
    """Ends the process of one of the actors, as the kernel would."""
    os.kill(draw.choice(sorted(actor_pids())), signal.SIGKILL)


def actor_pids() -> list[int]:
    """Processes of actors, among those that this one began."""
    parents, titles = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            titles[int(folder.name)] = (folder / "cmdline").read_bytes()
            parents[int(folder.name)] = int(
                (folder / "stat").read_text().rpartition(")")[2].split()[1]
            )
        except OSError:
            continue  # it ended meanwhile

    def is_ours(pid: int) -> bool:
        while pid in parents:
            pid = parents[pid]
            if pid == os.getpid():
                return True
        return False

    return [pid for pid, title in titles.items() if title.startswith(_TITLE) and is_ours(pid)]


if __name__ == "__main__":
    sys.exit(main())
