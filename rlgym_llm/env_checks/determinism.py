"""The same index is the same episode: again, in copies, and beside other episodes."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

from rlgym_llm.env import TextEnv
from rlgym_llm.env_checks.play import (
    GARBAGE,
    SEED,
    Script,
    Step,
    gold,
    most_turns,
    play,
    play_on,
)

__all__ = ["check_copies", "check_side_by_side"]

_NUM_THREADS = 4


def check_copies(env: TextEnv, name: str, index: int) -> None:
    """An episode goes on alike in pickled and cloned copies, and from its saved state."""
    where = f"{name}, task {index}"
    options = {"index": index}
    first = env.reset(seed=SEED, options=options)
    assert first[1]["index"] == index, f"{where}: options index gave task {first[1]['index']}"
    assert env.reset(seed=SEED, options=options) == first, f"{where}: reset again differs"
    copied = pickle.loads(pickle.dumps(env))
    again = copied.reset(seed=SEED, options=options)
    assert again == first, f"{where}: reset in a pickled copy differs"
    for script in _scripts(env):
        whole = play(env, index, script)
        assert play(env, index, script) == whole, f"{where}: step again differs"
        for num_turns in (0, 1):
            if num_turns < len(whole):
                _check_from(env, where, index, script, num_turns)


def _check_from(env: TextEnv, where: str, index: int, script: Script, num_turns: int) -> None:
    env.reset(seed=SEED, options={"index": index})
    play_on(env, script, num_turns=num_turns)
    state = env.get_state()
    copies = {"pickled": pickle.loads(pickle.dumps(env)), "cloned": env.clone()}
    rest = play_on(env, script)
    for how, copied in copies.items():
        steps = play_on(copied, script)
        assert steps == rest, f"{where}: a copy {how} in mid-episode steps otherwise"
        copied.close()
    for _ in range(2):  # a state stays as it is, whatever is played from it
        env.set_state(state)
        assert play_on(env, script) == rest, f"{where}: set_state goes on otherwise"


def check_side_by_side(env: TextEnv, name: str, num_indices: int) -> None:
    """Episodes that take turns with each other, or run in threads, go as they go alone."""
    for script in _scripts(env):
        alone = [play(env, index, script) for index in range(num_indices)]
        others = [env.fresh() for _ in alone]
        assert _taking_turns(others, script) == alone, (
            f"{name}: an episode goes otherwise beside others; copies share what they change"
        )
        with ThreadPoolExecutor(_NUM_THREADS) as threads:
            found = list(threads.map(play, others, range(num_indices), repeat(script)))
        assert found == alone, f"{name}: an episode goes otherwise in a thread beside others"
        for other in others:
            other.close()


def _taking_turns(envs: list[TextEnv], script: Script) -> list[list[Step]]:
    for index, env in enumerate(envs):
        env.reset(seed=SEED, options={"index": index})
    steps: list[list[Step]] = [[] for _ in envs]
    playing = list(range(len(envs)))
    while playing:
        for i in list(playing):
            done = play_on(envs[i], script, num_turns=1)
            steps[i] += done
            if not done or done[0][2] or done[0][3] or len(steps[i]) >= most_turns(envs[i]):
                playing.remove(i)
    return steps


def _scripts(env: TextEnv) -> list[Script]:
    env.reset(seed=SEED, options={"index": 0})
    return [lambda _: GARBAGE, *([gold] if gold(env) is not None else [])]
