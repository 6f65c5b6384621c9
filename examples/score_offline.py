"""Scores generations that already exist: JSON lines of prompt, completion and answer.

python examples/score_offline.py generations.jsonl --reward math=1.0 --reward format=0.2
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rlgym_llm import Completion, Plugins, RewardComposer, Rollout, Task, Turn
from rlgym_llm.reward_config import RewardsConfig
from rlgym_llm.reward_flags import parse_reward_flag


def to_rollout(row: dict[str, str], index: int) -> Rollout:
    """One stored row as a finished rollout, ready to score."""
    turn = Turn(new_prompt_token_ids=(), completion=Completion(text=row["completion"]))
    return Rollout(
        id=str(index),
        task=Task(prompt=row["prompt"], answer=row["answer"]),
        group_id=row["prompt"],
        sample_index=index,
        seed=0,
        turns=(turn,),
        terminated=True,
    )


def main() -> None:
    """Prints each row with its reward and every component's raw score."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--reward", action="append", required=True, metavar="NAME=WEIGHT")
    arguments = parser.parse_args()
    components = dict(parse_reward_flag(flag) for flag in arguments.reward)
    # Every row is wanted, those that cannot be scored too: their reward is null.
    config = RewardsConfig(components=components, max_error_rate=1.0)
    rows = [json.loads(line) for line in arguments.file.read_text("utf-8").splitlines()]
    rollouts = [to_rollout(row, index) for index, row in enumerate(rows)]
    with RewardComposer(config, Plugins.discover()) as composer:
        for row, card in zip(rows, composer(rollouts), strict=True):
            raw = {name: part.raw for name, part in card.components.items()}
            print(json.dumps({**row, "reward": card.reward, "raw": raw}))


if __name__ == "__main__":
    main()
