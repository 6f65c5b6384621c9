"""One scoring core: what training scores and what a file scores are equal to the last bit."""

import json
import random

import pytest
import yaml

from rlgym_llm.commands.score import main as score
from rlgym_llm.compose import RewardComposer
from rlgym_llm.env import TextEnv
from rlgym_llm.env_pool import EnvPool
from rlgym_llm.generate import SamplingParams
from rlgym_llm.plugins import Plugins
from rlgym_llm.registry import make
from rlgym_llm.reward_config import read_rewards
from rlgym_llm.rollout import run_groups
from rlgym_llm.scores import ScoreCard
from rlgym_llm.scripted_generator import ScriptedGenerator
from rlgym_llm.store import write_rollouts
from rlgym_llm.tasks import ListTasks
from rlgym_llm.types import Action, Completion, Rollout, Task, Turn

REWARDS = {
    "components": {
        "correct": {"reward": "math", "weight": 1.0},
        "format": {"reward": "format", "weight": 0.2, "options": {"style": "hash"}},
        "brevity": {
            "reward": "length",
            "weight": 0.1,
            "options": {"mode": "group_relative", "correct": "correct"},
        },
        "overlong": {
            "reward": "length",
            "weight": 0.3,
            "options": {"mode": "soft_overlong", "max_len": 40, "cache": 20},
            "gate": {"on": "format", "op": ">=", "value": 1.0},
        },
        "squashed": {
            "reward": "length",
            "weight": 1 / 3,
            "options": {"unit": "chars"},
            "transform": [{"scale": -0.01}, {"tanh": 0.7}],
        },
        "both": {"combine": {"product": ["correct", "format"]}, "weight": 0.1},
    },
    "clip": [-1, 1.25],
}


def answers(context: str) -> str:
    """Right, wrong, rambling and empty answers, by chance."""
    rng = random.Random(f"{context} {answers.count}")
    answers.count += 1
    think = "well, " * rng.randrange(8)
    return think + rng.choice(["", "#### 37", "13 + 24 = 37.\n#### 37", "\n#### 36", "so it is 12"])


@pytest.fixture
def rollouts():
    env = make("math-gsm8k", source="starter", split="val", rewards=REWARDS)
    answers.count = 0
    groups = run_groups(
        [env.unwrapped.tasks[index] for index in range(25)],
        group_size=8,
        seed=3,
        make_env=EnvPool(lambda: env),
        generator=ScriptedGenerator(answers),
        params=SamplingParams(max_new_tokens=64),
    )
    return [rollout for group in groups for rollout in group.rollouts]


def as_json(card: ScoreCard) -> dict:
    """The card as the column carries it, every number as it is."""
    return {
        "reward": card.reward,
        "status": str(card.status),
        "components": {
            name: {
                "raw": part.raw,
                "weight": part.weight,
                "transformed": part.transformed,
                "contribution": part.contribution,
                "status": str(part.status),
            }
            for name, part in card.components.items()
        },
    }


@pytest.mark.parametrize("workers", ["1", "2"])
def test_online_and_offline_are_equal_to_the_last_bit(rollouts, tmp_path, workers):
    assert len(rollouts) == 200
    with RewardComposer(read_rewards(REWARDS), Plugins.discover()) as composer:
        cards = composer(rollouts)
    assert len({card.reward for card in cards}) > 20  # rewards of many kinds
    write_rollouts(tmp_path / "dump.jsonl", rollouts)
    (tmp_path / "rewards.yaml").write_text(yaml.safe_dump(REWARDS))
    out = tmp_path / "scored.jsonl"
    flags = ["--rewards", str(tmp_path / "rewards.yaml"), "--workers", workers, "-o", str(out)]
    assert score([str(tmp_path / "dump.jsonl"), *flags, "--chunk-bytes", "20000"]) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["rollout"]["id"] for row in rows] == [rollout.id for rollout in rollouts]
    for row, card in zip(rows, cards, strict=True):
        offline = row["rlgym"]
        parts = {
            name: {
                key: part[key] for key in ("raw", "weight", "transformed", "contribution", "status")
            }
            for name, part in offline["components"].items()
        }
        found = {"reward": offline["reward"], "status": offline["status"], "components": parts}
        assert found == as_json(card)


def test_no_path_skips_a_penalty(bug_report, tmp_path):
    case = bug_report("length-penalty_skipped_by_new_path")
    given, (total,) = case["input"], case["right"]["values"].values()
    rewards = {
        "components": {
            "base": {"reward": "exact_match", "weight": given["base"]},
            "judged": {"reward": "exact_match", "weight": 0.0, "backend": "thread"},
            "overlong": {
                "reward": "length",
                "options": {
                    "mode": "soft_overlong",
                    "max_len": given["L_max"],
                    "cache": given["cache"],
                },
            },
        }
    }
    action = Action(text="72", token_ids=tuple(range(given["length"])))
    task = Task(prompt="12 + 60 = ?", answer="72", id="t")
    env = TextEnv(tasks=ListTasks([task]), rewards=rewards)
    env.reset(options={"index": 0})
    _, step_reward, *_ = env.step(action)
    env.close()
    turn = Turn(
        new_prompt_token_ids=(),
        completion=Completion(text=action.text, token_ids=action.token_ids),
    )
    rollout = Rollout(id="r", task=task, group_id="g", sample_index=0, seed=0, turns=(turn,))
    with RewardComposer(read_rewards(rewards), Plugins.discover()) as composer:
        (card,) = composer([rollout])
    write_rollouts(tmp_path / "dump.jsonl", [rollout])
    (tmp_path / "rewards.yaml").write_text(yaml.safe_dump(rewards))
    out = tmp_path / "scored.jsonl"
    flags = ["--rewards", str(tmp_path / "rewards.yaml"), "-o", str(out)]
    assert score([str(tmp_path / "dump.jsonl"), *flags]) == 0
    offline = json.loads(out.read_text())["rlgym"]["reward"]
    assert [step_reward, card.reward, offline] == [total] * len(given["paths"])
