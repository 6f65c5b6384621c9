"""Every generator of the real reasoning-gym as an environment of ours.

    python benchmarks/reasoning_gym_adapter.py --peers DIR

reasoning-gym runs in an environment of its own below ``--peers``, made on the first run. Each
generator must give the same tasks for a seed and an index in two sources made apart, as JSON that
loses nothing, pay its gold answer the maximum through the environment, and leave the global random
generators alone. Takes a minute or two: one generator needs seconds for an entry.
"""

from __future__ import annotations

import json
import pickle
import random
import sys
import time
from typing import Any

from shim_peers import check, run_inside

NUM_ENTRIES = 2
NO_GOLD = {
    "boxnet": "its entries hold a start and no plan that solves it",
    "rush_hour": "its entries hold a board and the number of moves, not the moves",
}
"""Generators whose gold answer cannot score the maximum, and why."""
TAKES_ANYTHING = {"game_of_life_halting": "any answer but 'True' counts as 'False'"}
"""Generators whose scorer takes nonsense between the tags for an answer."""
CONFIG: dict[str, dict[str, Any]] = {
    "composite": {"datasets": [{"name": "gcd", "weight": 1.0}, {"name": "chain_sum"}]},
}
"""Options that a generator cannot do without."""
GARBAGE = ("colourless green ideas", "", "<answer></answer>", "<answer>naïve 😀\x00</answer>")


def main() -> int:
    """Makes the environment and runs the benchmark in it."""
    if sys.argv[1:] != ["--inside"]:
        return run_inside("reasoning_gym", __file__)
    from importlib.metadata import version

    import numpy as np
    import reasoning_gym.composite  # noqa: F401  registers the generator
    from reasoning_gym.factory import DATASETS

    print(f"reasoning-gym {version('reasoning-gym')}, {len(DATASETS)} generators", flush=True)
    for name in sorted(DATASETS):
        random.seed(1)
        np.random.seed(1)
        before = random.getstate(), pickle.dumps(np.random.get_state())
        try_generator(name)
        after = random.getstate(), pickle.dumps(np.random.get_state())
        check(before == after, f"{name}: the global random generators are as they were")
    try_contract()
    return 0


def try_generator(name: str) -> None:
    """What must hold of any generator."""
    from rlgym_llm_envs.adapters.entry_json import from_json, to_json
    from rlgym_llm_envs.adapters.reasoning_gym import ReasoningGymEnv

    start = time.perf_counter()
    env, again = (
        ReasoningGymEnv(dataset=name, size=NUM_ENTRIES, seed=3, config=CONFIG.get(name))
        for _ in range(2)
    )
    numbers = range(NUM_ENTRIES)
    tasks = [env.tasks[number] for number in numbers]
    backwards = [again.tasks[number] for number in reversed(numbers)]
    check(backwards[::-1] == tasks, f"{name}: a seed and an index give one task, in any order")
    stored = [json.loads(json.dumps(task.info["entry"])) for task in tasks]
    made = [from_json(entry) for entry in stored]
    check([to_json(entry) for entry in made] == stored, f"{name}: an entry is JSON, and back")
    golds = [env.gold_action(task) for task in tasks]
    if name in NO_GOLD:
        check(golds == [None] * NUM_ENTRIES, f"{name}: no gold answer ({NO_GOLD[name]})")
    else:
        rewards = [play(env, number, gold) for number, gold in zip(numbers, golds, strict=True)]
        check(rewards == [1.0] * NUM_ENTRIES, f"{name}: the gold answer scores 1.0, got {rewards}")
    garbage = GARBAGE[:-1] if name in TAKES_ANYTHING else GARBAGE
    rewards = [play(env, 0, text) for text in garbage]
    check(all(reward < 0.5 for reward in rewards), f"{name}: garbage scores little, got {rewards}")
    print(f"    {time.perf_counter() - start:.2f} s", flush=True)


def play(env: Any, index: int, text: str) -> float:
    """The reward of one answer."""
    env.reset(options={"index": index})
    reward: float = env.step(text)[1]
    return reward


def try_contract() -> None:
    """The environment by its name, our checker, another split and a wrong option."""
    from rlgym_llm_envs.adapters.reasoning_gym import ReasoningGymEnv

    from rlgym_llm.check_env import check_env
    from rlgym_llm.errors import UserError

    env = ReasoningGymEnv(dataset="leg_counting", size=5, seed=3)
    check_env(env)
    check(True, "check_env holds of leg_counting")
    val = ReasoningGymEnv(dataset="leg_counting", size=5, seed=3, split="val")
    prompts = {task.prompt for task in (env.tasks[n] for n in range(5))}
    check(
        not prompts & {val.tasks[n].prompt for n in range(5)},
        "training and validation tasks of one seed are apart",
    )
    few = ReasoningGymEnv(dataset="leg_counting", size=1, min_animals=2, max_animals=2)
    entry = few.tasks[0].info["entry"]
    check(entry["metadata"]["num_animals"] == 2, "an option reaches the generator")
    for options, words in (
        ({"dataset": "leg_countin"}, "did you mean 'leg_counting'"),
        ({"dataset": "leg_counting", "max_animal": 3}, "did you mean 'max_animals'"),
        ({"dataset": "leg_counting", "max_animals": 1}, "does not take its options"),
    ):
        try:
            ReasoningGymEnv(**options)
        except UserError as error:
            check(words in str(error), f"{options}: {error}")
        else:
            check(False, f"{options} is taken in silence")


if __name__ == "__main__":
    raise SystemExit(main())
