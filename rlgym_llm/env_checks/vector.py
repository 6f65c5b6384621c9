"""The environment in a Gymnasium vector."""

from __future__ import annotations

from functools import partial

from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlgym_llm.env import TextEnv
from rlgym_llm.env_checks.play import GARBAGE, SEED
from rlgym_llm.vector_steps import VectorStep, real_steps

__all__ = ["check_vector"]

_NUM_ENVS = 2
_NUM_EPISODES = 2
_MOST_ROWS = 200


def check_vector(env: TextEnv, name: str) -> None:
    """Two copies in a `SyncVectorEnv` play, in every autoreset mode, what one plays by itself."""
    alone = [_episodes_alone(env, SEED + i) for i in range(_NUM_ENVS)]
    for mode in AutoresetMode:
        copies = [env.fresh() for _ in range(_NUM_ENVS)]
        vector = SyncVectorEnv([partial(_same, one) for one in copies], autoreset_mode=mode)
        found: list[list[tuple[str, float]]] = [[] for _ in range(_NUM_ENVS)]
        steps = real_steps(
            vector, lambda *_: (GARBAGE,) * _NUM_ENVS, num_rows=_MOST_ROWS, seed=SEED
        )
        for step in steps:
            if _is_last(step):
                found[step.env].append((step.info["task_id"], step.reward))
            if all(len(episodes) >= _NUM_EPISODES for episodes in found):
                break
        found = [episodes[:_NUM_EPISODES] for episodes in found]
        assert found == [episodes[: len(f)] for episodes, f in zip(alone, found, strict=True)], (
            f"{name}: in a SyncVectorEnv under {mode.value} episodes go otherwise than alone"
        )
        vector.close()


def _same(env: TextEnv) -> TextEnv:
    return env


def _is_last(step: VectorStep) -> bool:
    return step.terminated or step.truncated


def _episodes_alone(env: TextEnv, seed: int) -> list[tuple[str, float]]:
    episodes = []
    env.reset(seed=seed)
    for _ in range(_MOST_ROWS):
        _, reward, terminated, truncated, info = env.step(GARBAGE)
        if terminated or truncated:
            episodes.append((info["task_id"], reward))
            if len(episodes) == _NUM_EPISODES:
                break
            env.reset()
    return episodes
