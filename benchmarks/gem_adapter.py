"""Environments of the real GEM as ours, and ours as its.

    python benchmarks/gem_adapter.py --peers DIR

GEM runs in an environment of its own below ``--peers``, made on the first run. Its games must pass
our checker, which demands equal episodes for equal seeds, copies in mid-episode and untouched
global generators, and must pay, step for step, what GEM itself pays; our environments must play
under ``gem.make``.
"""

from __future__ import annotations

import logging
import random
import sys
from typing import Any

from shim_peers import check, run_inside

GAMES = (
    "game:GuessTheNumber-v0-easy",
    "game:Mastermind-v0-easy",
    "game:Minesweeper-v0-easy",
    "game:FifteenPuzzle-v0-easy",
    "game:Game2048-v0-easy",
    "game:TowerofHanoi-v0-easy",
    "game:Sudoku-v0-easy",
    "rg:leg_counting",
)
NEEDS = {"eval:MATH500": "datasets", "game:Crosswords-v0-easy": "pandas"}
"""Environments of GEM whose own needs it does not install."""


def main() -> int:
    """Makes the environment and runs the benchmark in it."""
    if sys.argv[1:] != ["--inside"]:
        return run_inside("gem", __file__)
    from importlib.metadata import version

    print(f"gem-llm {version('gem-llm')}", flush=True)
    import gem  # noqa: F401  which turns logging on

    logging.disable(logging.CRITICAL)
    for name in GAMES:
        try_game(name)
    side_by_side()
    refused()
    ours_as_theirs()
    return 0


def try_game(name: str) -> None:
    """Our checker, and the same rewards as under GEM itself."""
    import gem
    from rlgym_llm_envs.adapters.gem import GemEnv

    from rlgym_llm.check_env import check_env

    env = GemEnv(env=name, num_tasks=4, seed=1)
    check_env(env)
    check(True, f"{name}: check_env holds")
    random.seed(2)
    theirs = gem.make(name)
    ours, actions, ended = [], [], False
    env.reset(options={"index": 2})
    for _ in range(30):
        actions.append(move(theirs))
        *_, terminated, truncated, _ = env.step(actions[-1])
        ours.append(env.turns[-1].env_reward)
        if ended := terminated or truncated:
            break
    check(not (terminated and truncated), f"{name}: terminated and truncated are apart")
    random_state = random.getstate()
    theirs = gem.make(name)
    theirs.reset(seed=env.task.info["seed"])
    rewards = [float(theirs.step(action)[1]) for action in actions]
    random.setstate(random_state)
    check(ours == rewards, f"{name}: {len(ours)} rewards are GEM's own (ended: {ended})")


def move(theirs: Any) -> str:
    """Some move; the games' own random ones where they have any."""
    try:
        return str(theirs.sample_random_action())
    except NotImplementedError:
        return "\\boxed{20}"


def side_by_side() -> None:
    """Two environments whose steps alternate see nothing of each other."""
    from rlgym_llm_envs.adapters.gem import GemEnv

    one = GemEnv(env="game:Game2048-v0-easy", num_tasks=2)
    other = one.fresh()
    alone, alternating = [], []
    for number, rounds in ((1, alone), (2, alternating)):
        one.reset(options={"index": 0})
        other.reset(options={"index": 1})
        for action in ("\\boxed{up}", "\\boxed{left}", "\\boxed{down}", "\\boxed{right}") * 3:
            rounds.append(one.step(action)[4]["reply"])
            if number == 2:
                other.step(action)
    check(alone == alternating, "12 steps beside another game are those of the game alone")


def refused() -> None:
    """What cannot be made is refused in one line."""
    from rlgym_llm_envs.adapters.gem import GemEnv

    from rlgym_llm.errors import UserError

    cases = [({"env": name}, f"No module named '{need}'") for name, need in NEEDS.items()]
    cases.append(({"env": "game:GuessTheNumber-v0"}, "did you mean 'game:GuessTheNumber-v0-"))
    for options, words in cases:
        try:
            GemEnv(**options)
        except UserError as error:
            check(words in str(error), f"refused: {str(error)[:120]}")
        else:
            check(False, f"{options} is taken in silence")


def ours_as_theirs() -> None:
    """An environment of ours under ``gem.make``."""
    import gem

    from rlgym_llm.registry import make
    from rlgym_llm.shims.gem import gem_entry_point, to_gem

    gem.register("rlgym:math-gsm8k", gem_entry_point("math-gsm8k", source="starter"))
    theirs = gem.make("rlgym:math-gsm8k")
    check(isinstance(theirs, gem.Env), "ours as theirs: it is a gem.Env")
    ours: Any = make("math-gsm8k", source="starter").unwrapped
    prompt, info = ours.reset(seed=5)
    text, told = theirs.reset(seed=5)
    check(told["task_id"] == info["task_id"], "ours as theirs: a seed gives the same task")
    check(text.endswith(prompt[-1].content), "ours as theirs: the observation is the prompt's text")
    gold = ours.gold_action(ours.task)
    copied = theirs.spawn(same_state=True)
    for one, how in ((theirs, "itself"), (copied, "spawned in the same state")):
        _, reward, terminated, truncated, _ = one.step(gold)
        wanted = (1.2, True, False)
        check(
            (round(reward, 12), terminated, truncated) == wanted,
            f"ours as theirs, {how}: gold is paid {reward}",
        )
    check(to_gem(ours).env is ours, "ours as theirs: an environment that is made already")


if __name__ == "__main__":
    raise SystemExit(main())
