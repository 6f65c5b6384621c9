"""verl's own reward loop on starter problems, rewarded by our rewards; and verl's by our composer.

    python benchmarks/verl_shim.py --peers DIR

verl runs in an environment of its own below ``--peers``, made on the first run: its loader reads a
two-line file, its reward loop scores a batch in two Ray workers from many threads, and the scores
must be those that the composer gives the same texts. No GPU is needed.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shim_peers import ROOT, check, run_inside

MODEL = ROOT / "trainers" / "rlgym_llm_trainers" / "starter_model"
REWARDS = ["math=1.0", "format=0.2"]
FILE = f"""\
from rlgym_llm.shims.verl import verl_compute_score
compute_score = verl_compute_score({REWARDS!r})
"""
VERL_FILE = """\
from verl.utils.reward_score import default_compute_score as compute_score
"""
NUM_PROBLEMS = 40
MAX_TOKENS = 64


def main() -> int:
    """Makes the environment and runs the benchmark in it."""
    if sys.argv[1:] != ["--inside"]:
        return run_inside("verl", __file__)
    from importlib.metadata import version

    print(f"verl {version('verl')}, ray {version('ray')}", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        rows = problems()
        score_in_reward_loop(Path(scratch), rows)
        score_in_batches(rows)
        score_by_verl(Path(scratch), rows)
    return 0


def problems() -> list[dict[str, Any]]:
    """Starter problems, answered right in full, right in short, and wrong."""
    import rlgym_llm

    env = rlgym_llm.make("math-gsm8k", source="starter", split="train")
    rows = []
    for index in range(NUM_PROBLEMS):
        task = env.unwrapped.tasks[index]
        replies = (f"So it is\n#### {task.answer}", f"It is {task.answer}.", "#### -1")
        for reply in replies:
            rows.append({"task": task, "index": index, "reply": reply})
    return rows


def score_in_reward_loop(folder: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Our rewards as ``custom_reward_function`` of verl's RewardLoopManager."""
    import ray
    from omegaconf import OmegaConf
    from verl.experimental.reward_loop.reward_loop import RewardLoopManager
    from verl.trainer.ppo.metric_utils import process_validation_metrics

    file = folder / "rewards.py"
    file.write_text(FILE)
    config = OmegaConf.create(
        {
            "actor_rollout_ref": {"model": {"path": str(MODEL), "tokenizer_path": None}},
            "reward": {
                "num_workers": 2,
                "custom_reward_function": {"path": str(file), "name": "compute_score"},
                "reward_manager": {"source": "register", "name": "naive"},
                "reward_model": {"enable": False},
            },
        }
    )
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        data = to_verl(rows)
        scored = RewardLoopManager(config).compute_rm_score(data)
    finally:
        ray.shutdown()
    cards = score(rows)
    rewards = [card.reward for card in cards]
    lengths = data.batch["attention_mask"][:, -MAX_TOKENS:].sum(dim=1)
    table = scored.batch["rm_scores"]
    last = [float(table[row, length - 1]) for row, length in enumerate(lengths)]
    check(same(last, rewards), f"verl's reward loop: {len(rows)} scores on the last token = ours")
    check(int((table != 0).sum()) == sum(map(bool, rewards)), "verl's reward loop: none elsewhere")
    for name in ("math", "format"):
        raws = [card.components[name].raw for card in cards]
        found = scored.non_tensor_batch[name].tolist()
        check(found == raws, f"verl's reward loop: raw {name} = ours")
    sources = [row["task"].data_source for row in rows]
    uids = [str(row["index"]) for row in rows]
    infos = {key: values.tolist() for key, values in scored.non_tensor_batch.items()}
    metrics = process_validation_metrics(sources, uids, infos)
    mean = metrics["rlgym/starter"]["score"]["mean@3"]
    ours = sum(rewards) / len(rewards)
    check(abs(mean - ours) < 1e-9, f"verl's validation: mean score {mean:.6f} = {ours:.6f}")


def score_in_batches(rows: Sequence[Mapping[str, Any]]) -> None:
    """Our rewards as the ``compute_score`` of verl's BatchRewardManager."""
    from transformers import AutoTokenizer
    from verl.workers.reward_manager import get_reward_manager_cls

    from rlgym_llm.shims.verl import verl_batch_compute_score

    manager = get_reward_manager_cls("batch")(
        tokenizer=AutoTokenizer.from_pretrained(MODEL),
        num_examine=0,
        compute_score=verl_batch_compute_score(REWARDS),
    )
    found = manager(to_verl(rows), return_dict=True)
    cards = score(rows)
    check(
        same(found["reward_tensor"].sum(dim=1), [card.reward for card in cards]),
        f"verl's BatchRewardManager: {len(rows)} scores = ours",
    )
    raws = [card.components["math"].raw for card in cards]
    check(found["reward_extra_info"]["math"] == raws, "verl's BatchRewardManager: raw math = ours")


def score_by_verl(folder: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """The grader of GSM8K that verl ships as our reward ``function``."""
    from dataclasses import replace

    from verl.utils.reward_score import default_compute_score

    from rlgym_llm import Plugins, RewardComposer
    from rlgym_llm.reward_config import RewardsConfig

    file = folder / "verl_rewards.py"
    file.write_text(VERL_FILE)
    config = RewardsConfig.model_validate(
        {
            "components": {
                "verl": {"reward": "function", "options": {"path": f"{file}:compute_score"}}
            }
        }
    )
    rollouts = [
        replace(rollout, task=replace(rollout.task, data_source="openai/gsm8k"))
        for rollout in map(to_rollout, rows)
    ]
    cards = RewardComposer(config, Plugins.discover())(rollouts)
    wanted = [
        default_compute_score("openai/gsm8k", row["reply"], row["task"].answer) for row in rows
    ]
    right = sum(wanted)
    check(
        [card.reward for card in cards] == wanted,
        f"verl's grader under our composer: {len(rows)} scores = verl's ({right:g} right)",
    )


def to_verl(rows: Sequence[Mapping[str, Any]]) -> Any:
    """The rows as the batch that verl's rollout hands its reward loop."""
    import numpy as np
    import torch
    from transformers import AutoTokenizer
    from verl import DataProto

    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    ids = torch.zeros((len(rows), MAX_TOKENS), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for place, row in enumerate(rows):
        tokens = tokenizer(row["reply"], add_special_tokens=False)["input_ids"]
        tokens = [*tokens, tokenizer.eos_token_id]
        ids[place, : len(tokens)] = torch.tensor(tokens)
        mask[place, : len(tokens)] = 1
    prompts = torch.ones((len(rows), 2), dtype=torch.long)
    return DataProto.from_dict(
        tensors={
            "prompts": prompts,
            "responses": ids,
            "attention_mask": torch.cat([torch.ones_like(prompts), mask], dim=1),
        },
        non_tensors={
            "data_source": np.array([row["task"].data_source for row in rows], dtype=object),
            "reward_model": np.array(
                [{"style": "rule", "ground_truth": row["task"].answer} for row in rows],
                dtype=object,
            ),
            "extra_info": np.array(
                [{"split": "train", "index": row["index"]} for row in rows], dtype=object
            ),
        },
    )


def score(rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The composer's cards for the same texts, without any shim."""
    from rlgym_llm import Plugins, RewardComposer
    from rlgym_llm.reward_config import RewardsConfig
    from rlgym_llm.reward_flags import parse_reward_flag

    config = RewardsConfig(components=dict(map(parse_reward_flag, REWARDS)))
    return RewardComposer(config, Plugins.discover())(list(map(to_rollout, rows)))


def to_rollout(row: Mapping[str, Any]) -> Any:
    """A finished rollout of one turn."""
    from rlgym_llm import Completion, Rollout, Turn

    turn = Turn(new_prompt_token_ids=(), completion=Completion(text=row["reply"]))
    return Rollout(
        id=f"{row['index']} {row['reply']}",
        task=row["task"],
        group_id="",
        sample_index=0,
        seed=0,
        turns=(turn,),
        terminated=True,
    )


def same(theirs: Sequence[float], ours: Sequence[float]) -> bool:
    """Whether they are the same float32 numbers."""
    import numpy as np

    return np.array_equal(np.float32(theirs), np.float32(ours))


if __name__ == "__main__":
    raise SystemExit(main())
