"""The gold episode scores the maximum, garbage does not, and tokens share out the reward."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from rlgym_llm import compose_cache
from rlgym_llm.composition.placement import token_rewards
from rlgym_llm.env import TextEnv
from rlgym_llm.env_checks.play import GARBAGE, SEED, Step, gold, most_turns, play
from rlgym_llm.reward_config import RewardsConfig
from rlgym_llm.scores import ScoreCard
from rlgym_llm.types import Completion, Rollout

__all__ = ["check_gold", "check_placement", "highest_reward"]


def check_gold(env: TextEnv, name: str, index: int) -> None:
    """Where the gold actions are known, they earn the most there is, and garbage earns less."""
    where = f"{name}, task {index}"
    env.reset(seed=SEED, options={"index": index})
    if gold(env) is None:
        return
    best = _scored(env, play(env, index, gold), where, "gold")
    bad = _scored(env, play(env, index, lambda _: GARBAGE), where, "garbage")
    assert best is not None, (
        f"{where}: the gold actions do not end the episode within {most_turns(env)} turns"
    )
    most = env.gold_reward
    if most is None:
        composer = compose_cache.lend(env.rewards, env.plugins)
        try:
            most = highest_reward(env.rewards, composer.ranges)
        finally:
            compose_cache.give_back(composer)
    assert best.reward is not None
    assert most is None or math.isclose(best.reward, most), (
        f"{where}: gold scores {best.reward}, and the highest reward is {most} (an environment "
        "whose gold scores otherwise says so in gold_reward)"
    )
    if bad is None or bad.reward is None:
        return
    assert best.reward > bad.reward, f"{where}: gold scores {best.reward}, garbage {bad.reward}"
    if env.accuracy is not None and env.accuracy in bad.components:
        raw = bad.components[env.accuracy].raw
        right = best.components[env.accuracy].raw
        assert raw is None or right is None or raw < right, (
            f"{where}: garbage is as right as gold by {env.accuracy!r}: {raw}"
        )


def _scored(env: TextEnv, steps: list[Step], where: str, what: str) -> ScoreCard | None:
    """The card of an episode, None where it did not end."""
    if not steps or not (steps[-1][2] or steps[-1][3]):
        return None
    info = steps[-1][4]
    card: ScoreCard | None = info["score"]
    assert not info["unscored"], f"{where}: {what} is unscored: {card}"
    return card


def highest_reward(
    config: RewardsConfig, ranges: Mapping[str, tuple[float, float]]
) -> float | None:
    """The highest sum that the components' ranges allow; None where they do not tell.

    They do not where a component of weight has no bound, a gate, a transform or a condition, or is
    a combination.

    >>> highest_reward(RewardsConfig(components={"math": {"reward": "math", "weight": 2.0}}),
    ...                {"math": (0.0, 1.0)})
    2.0
    """
    total = 0.0
    for name, component in config.components.items():
        weight = component.weight_in(evaluation=False, step=None)
        if not weight:
            continue
        if component.reward is None or component.gate or component.transform or component.when:
            return None
        total += max(weight * bound for bound in ranges[name])
    if config.clip is not None:
        total = min(max(total, config.clip[0]), config.clip[1])
    return total if math.isfinite(total) else None


def check_placement(env: TextEnv, name: str, index: int) -> None:
    """What the tokens of an episode earn adds up to its reward, wherever it is placed."""
    for what, script in (("gold", gold), ("garbage", lambda _: GARBAGE)):
        steps = play(env, index, script)
        card = steps[-1][4]["score"] if steps else None
        if card is None or card.reward is None or _is_discounted(env.rewards):
            continue
        rollout = Rollout(
            id=card.rollout_id,
            task=env.task,
            group_id=card.rollout_id,
            sample_index=0,
            seed=SEED,
            turns=tuple(
                replace(turn, completion=_a_token_per_character(turn.completion.text))
                for turn in env.turns
            ),
            terminated=steps[-1][2],
            truncated=steps[-1][3],
        )
        placed = token_rewards(rollout, card, env.rewards.components)
        total = math.fsum(value for turn in placed for value in turn)
        assert math.isclose(total, card.reward, rel_tol=1e-9, abs_tol=1e-9), (
            f"{name}, task {index}: the tokens of {what} earn {total}, its reward is {card.reward}"
        )


def _is_discounted(config: RewardsConfig) -> bool:
    return any(c.placement == "potential" and c.gamma < 1 for c in config.components.values())


def _a_token_per_character(text: str) -> Completion:
    ends = tuple(range(1, len(text) + 1)) or (0,)  # an empty reply is still sampled: its end
    return Completion(text=text, token_ids=tuple(range(len(ends))), token_char_ends=ends)
