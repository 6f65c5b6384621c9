"""What an episode costs here, in SkyRL-Gym and in GEM: one task, in turns, in one run.

    python benchmarks/environments.py [--rounds 9] [--episodes 200] [--peers .venv-peers]

All three make an environment of the same word problem, start it, give the worked solution, have it
scored, and close it; and, where an environment can be used again, only start, step and score. The
peers run in virtual environments of their own (``--peers``, made at the first run), each in
one process that stays; the rounds of all sides take turns, and the figure is the median of the
rounds' medians. ``cold`` is the first episode of a new process, imports left out.

SkyRL-Gym scores one regular expression and knows no tasks: a trainer makes one environment for
each episode. GEM's answer is checked in a process that each environment starts; with
``use_mp=False`` it is not, and then ``close`` fails, so that it is left out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

QUESTION = "Tom has 3 bags of 4 apples and eats 2. How many apples are left?"
SOLUTION = "3 bags of 4 apples are <<3*4=12>>12 apples. 12 - 2 = <<12-2=10>>10.\n#### 10"
REPLY = "3 bags of 4 apples are 12 apples. 12 - 2 = 10.\n#### 10"
BOXED = REPLY + "\n\\boxed{10}"  # what GEM's grader reads
ANSWER = "10"

HERE = Path(__file__).resolve().parent
SIDES = {"ours": None, "skyrl-gym": "skyrl_gym", "gem": "gem"}
"""Each side and the file of its requirements under ``benchmarks/envs``."""
FLOORS = {"reset + step, not scored": 50.0, "the same through gymnasium.make": 100.0}
"""Microseconds that these may take at most."""

Episode = Callable[[], float]


def ours() -> dict[str, Episode]:
    """Episodes of ``math-gsm8k`` on a data file of one problem."""
    import gymnasium

    import rlgym_llm

    path = Path(tempfile.mkdtemp()) / "one.jsonl"
    path.write_text(json.dumps({"question": QUESTION, "answer": SOLUTION}) + "\n")
    options = {"index": 0}

    def whole() -> float:
        env = rlgym_llm.make("math-gsm8k", data=path)
        env.reset(options=options)
        reward = env.step(REPLY)[1]
        env.close()
        return reward

    def again_in(env: gymnasium.Env[Any, Any]) -> Episode:
        def again() -> float:
            env.reset(options=options)
            return float(env.step(REPLY)[1])

        return again

    wrapped = gymnasium.make("rlgym_llm/math-gsm8k-v0", data=path, defer_scoring=True)
    return {
        "make + reset + step + close": whole,
        "reset + step": again_in(rlgym_llm.make("math-gsm8k", data=path).unwrapped),
        "reset + step, not scored": again_in(wrapped.unwrapped),
        "the same through gymnasium.make": again_in(wrapped),
    }


def skyrl_gym() -> dict[str, Episode]:
    """Episodes of SkyRL-Gym's ``gsm8k``."""
    import skyrl_gym  # type: ignore[import-not-found]

    prompt = [{"role": "user", "content": QUESTION}]
    extras = {"reward_spec": {"ground_truth": ANSWER}}

    def whole() -> float:
        env = skyrl_gym.make("gsm8k", env_config={}, extras=extras)
        env.init(prompt)
        reward = env.step(REPLY)["reward"]
        env.close()
        return float(reward)

    return {"make + init + step + close": whole}


def gem() -> dict[str, Episode]:
    """Episodes of GEM's ``MathEnv``, which is its ``math:GSM8K``, on a data set of one row."""
    import logging

    import gem  # type: ignore[import-not-found]
    from datasets import Dataset

    logging.disable(logging.INFO)  # it warns of every idx that is asked for
    rows = Dataset.from_list([{"problem": QUESTION, "answer": ANSWER}])
    gem.register("math:one", "gem.envs.math_env:MathEnv", dataset=rows)

    def whole() -> float:
        env = gem.make("math:one")
        env.reset(idx=0)
        reward = env.step(BOXED)[1]
        env.close()
        return float(reward)

    def without_process() -> float:
        env = gem.make("math:one", use_mp=False)
        env.reset(idx=0)
        return float(env.step(BOXED)[1])

    used = gem.make("math:one", use_mp=False)

    def again() -> float:
        used.reset(idx=0)
        return float(used.step(BOXED)[1])

    return {
        "make + reset + step + close": whole,
        "make(use_mp=False) + reset + step": without_process,
        "reset + step": again,
    }


def serve(side: str, episodes: int) -> None:
    """One process of a side: a line ``{name: microseconds}`` for each line that it reads."""
    kinds: Mapping[str, Episode] = {"ours": ours, "skyrl-gym": skyrl_gym, "gem": gem}[side]()
    scored = {name: kind for name, kind in kinds.items() if name not in FLOORS}
    cold = {}
    for name, episode in kinds.items():
        started = time.perf_counter()
        reward = episode()
        cold[name] = 1e6 * (time.perf_counter() - started)
        assert (reward > 0) == (name in scored), f"{side}, {name}: the right answer earns {reward}"
    print(json.dumps(cold), flush=True)
    for _ in sys.stdin:
        print(json.dumps({n: _median(e, episodes) for n, e in kinds.items()}), flush=True)


def _median(episode: Episode, episodes: int) -> float:
    """Microseconds; of an episode that is slow fewer are played, so that a round stays short."""
    times: list[float] = []
    deadline = time.perf_counter() + 1.0
    while len(times) < episodes and (len(times) < 3 or time.perf_counter() < deadline):
        started = time.perf_counter()
        episode()
        times.append(time.perf_counter() - started)
    return 1e6 * statistics.median(times)


def start(side: str, peers: Path, episodes: int) -> subprocess.Popen[str]:
    """The process of a side, in its own virtual environment."""
    requirements = SIDES[side]
    python = Path(sys.executable)
    if requirements is not None:
        from peer_environment import peer_environment

        wanted = ["-r", str(HERE / "envs" / f"{requirements}.txt")]
        python = peer_environment(peers / f"{requirements}_speed", [wanted])
    return subprocess.Popen(
        [str(python), __file__, "--side", side, "--episodes", str(episodes)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def answer_of(process: subprocess.Popen[str]) -> dict[str, float]:
    """The next line of a side's process that is an answer; libraries print lines of their own."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            found: dict[str, float] = json.loads(line)
            return found
    raise SystemExit(f"{process.args} ended without an answer")


def main() -> None:
    """Runs the sides in turns and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--episodes", type=int, default=200, help="of a round, at most")
    parser.add_argument(
        "--peers", type=Path, default=Path(".venv-peers"), help="where their environments go"
    )
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side is not None:
        serve(arguments.side, arguments.episodes)
        return
    arguments.peers.mkdir(exist_ok=True)
    processes = {side: start(side, arguments.peers, arguments.episodes) for side in SIDES}
    cold = {side: answer_of(process) for side, process in processes.items()}
    rounds: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for _ in range(arguments.rounds):
        for side, process in processes.items():
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
            rounds[side].append(answer_of(process))
    print(f"{'microseconds, median of ' + str(arguments.rounds) + ' rounds':48} warm      cold")
    for side in SIDES:
        for name in cold[side]:
            warm = statistics.median(one[name] for one in rounds[side])
            floor = f"  at most {FLOORS[name]:g}" if name in FLOORS else ""
            print(f"{side + ': ' + name:48} {warm:8.1f}  {cold[side][name]:9.1f}{floor}")
    for process in processes.values():
        process.communicate()


if __name__ == "__main__":
    main()
