"""One step of the real TRL ``GRPOTrainer`` on the starter model, rewarded by our rewards.

    python benchmarks/trl_shim.py --peers DIR

TRL runs in an environment of its own below ``--peers``, made on the first run. The rewards that it
logged for its completions must be those that the composer gives the same texts, bit for bit in
TRL's float32; and TRL's own reward functions must give the same numbers under our composer.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from shim_peers import ROOT, check, run_inside

MODEL = ROOT / "trainers" / "rlgym_llm_trainers" / "starter_model"
REWARDS = {
    "components": {
        "math": {"weight": 1.0},
        "format": {"weight": 0.2, "options": {"style": "hash"}},
        "length": {"weight": -0.01, "options": {"unit": "tokens"}},
    }
}
NUM_PROMPTS, NUM_GENERATIONS, MAX_TOKENS = 4, 8, 96
PLUGIN = """
from trl.rewards import get_soft_overlong_punishment, think_format_reward

from rlgym_llm import RewardSpec, hookimpl
from rlgym_llm.shims.trl import from_trl

think = from_trl(think_format_reward)
overlong = from_trl(get_soft_overlong_punishment(40, 20), name="overlong")


@hookimpl
def rlgym_register(kind):
    names = ("think", "overlong") if kind == "reward" else ()
    return [RewardSpec(name=name, entry_point=f"{__name__}:{name}") for name in names]
"""


def main() -> int:
    """Makes the environment and runs the benchmark in it."""
    if sys.argv[1:] != ["--inside"]:
        return run_inside("trl", __file__)
    from importlib.metadata import version

    print(f"trl {version('trl')}, transformers {version('transformers')}", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for is_chat in (True, False):
            train_composed(folder, is_chat=is_chat)
        train_components(folder)
        train_unscored(folder)
        score_by_trl_functions(folder)
    return 0


def train_composed(folder: Path, *, is_chat: bool) -> None:
    """The composed reward as one function."""
    from rlgym_llm.shims.trl import trl_reward_func

    form = "messages" if is_chat else "strings"
    log, table = train(folder / form, trl_reward_func(REWARDS), None, is_chat=is_chat)
    cards = score(table)
    rewards = [card.reward for card in cards]
    check(same(table["rlgym"], rewards), f"composed, {form}: {len(rewards)} rewards logged = ours")
    for name in REWARDS["components"]:
        raws = [card.components[name].raw for card in cards]
        check(same(table[f"rlgym/{name}"], raws), f"composed, {form}: raw {name} logged = ours")
        check_mean(log[f"rewards/{name}/mean"], raws, f"composed, {form}: mean of {name}")
    check_mean(log["reward"], rewards, f"composed, {form}: TRL's mean reward")


def train_components(folder: Path) -> None:
    """One function per component, TRL weighing them."""
    from rlgym_llm.shims.trl import trl_component_funcs

    funcs, weights = trl_component_funcs(REWARDS)
    log, table = train(folder / "components", funcs, weights, is_chat=True)
    cards = score(table)
    for name in REWARDS["components"]:
        raws = [card.components[name].raw for card in cards]
        check(same(table[name], raws), f"per component: {name} logged = ours, unweighted")
    check_mean(log["reward"], [card.reward for card in cards], "per component: TRL's mean reward")


def train_unscored(folder: Path) -> None:
    """A problem without an answer: no reward, no advantage, and no part in the mean."""
    from rlgym_llm.shims.trl import trl_reward_func

    reward = trl_reward_func({**REWARDS, "max_error_rate": 1.0})
    problems = [*tasks()[1:], replace(tasks()[0], answer=None)]
    log, table = train(folder / "unscored", reward, None, is_chat=True, problems=problems)
    rewards = [card.reward for card in score(table, problems)]
    scored = [reward for reward in rewards if reward is not None]
    check(len(rewards) - len(scored) == NUM_GENERATIONS, "unscored: one group has no reward")
    check(
        same(table["rlgym"], [float("nan") if r is None else r for r in rewards]),
        "unscored: TRL logged NaN for it and the rest = ours",
    )
    advantages = [a for a, r in zip(table["advantage"], rewards, strict=True) if r is None]
    check(not any(advantages), "unscored: TRL gave it no advantage")
    check_mean(log["reward"], scored, "unscored: TRL's mean reward is of the rest")


def score_by_trl_functions(folder: Path) -> None:
    """TRL's own reward functions as rewards of ours."""
    from trl.rewards import get_soft_overlong_punishment, think_format_reward

    from rlgym_llm import Message, Plugins, RewardComposer
    from rlgym_llm.reward_config import RewardsConfig

    plugin = folder / "trl_rewards.py"
    plugin.write_text(PLUGIN)
    texts = ["<think>2 + 3</think>5", "<think>2 + 3 = 5", "It is 5."]
    ids = [tuple(range(length)) for length in (10, 30, 50)]
    prompt = (Message(role="user", content="2 + 3 = ?"),)
    rollouts = [
        rollout(prompt, text, "5", token_ids=row) for text, row in zip(texts, ids, strict=True)
    ]
    config = RewardsConfig.model_validate({"think": 1.0, "overlong": 0.5})
    cards = RewardComposer(config, Plugins.discover([plugin]))(rollouts)
    chats = [[{"role": "assistant", "content": text}] for text in texts]
    wanted = {
        "think": think_format_reward(completions=chats),
        "overlong": get_soft_overlong_punishment(40, 20)(completion_ids=[list(row) for row in ids]),
    }
    for name, values in wanted.items():
        raws = [card.components[name].raw for card in cards]
        check(raws == values, f"TRL's {name} under our composer: {raws}")


def train(
    folder: Path,
    reward_funcs: Any,
    weights: list[float] | None,
    *,
    is_chat: bool,
    problems: Sequence[Any] = (),
) -> tuple[Mapping[str, float], Mapping[str, list[Any]]]:
    """One step; what TRL logged of it, and its table of completions."""
    import pyarrow.parquet
    from datasets import Dataset
    from transformers import AutoTokenizer, PrinterCallback
    from transformers.utils import logging
    from trl import GRPOConfig, GRPOTrainer

    logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    rows = []
    for task in problems or tasks():
        prompt: Any = [message.to_dict() for message in task.prompt]
        if not is_chat:
            prompt = tokenizer.apply_chat_template(
                prompt, tokenize=False, add_generation_prompt=True
            )
        rows.append({"prompt": prompt, "answer": task.answer})
    config = GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=NUM_PROMPTS * NUM_GENERATIONS,
        num_generations=NUM_GENERATIONS,
        max_completion_length=MAX_TOKENS,
        max_steps=1,
        learning_rate=1e-4,
        reward_weights=weights,
        logging_steps=1,
        log_completions=True,
        num_completions_to_print=0,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        bf16=False,
        seed=0,
    )
    trainer = GRPOTrainer(
        model=str(MODEL),
        reward_funcs=reward_funcs,
        args=config,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    (file,) = (folder / "completions").iterdir()
    table = pyarrow.parquet.read_table(file).to_pydict()
    check(len(table["completion"]) == NUM_PROMPTS * NUM_GENERATIONS, f"{folder.name}: one step")
    return trainer.state.log_history[0], table


def tasks() -> list[Any]:
    """The first starter problems."""
    import rlgym_llm

    env = rlgym_llm.make("math-gsm8k", source="starter", split="train")
    return [env.unwrapped.tasks[index] for index in range(NUM_PROMPTS)]


def score(table: Mapping[str, list[Any]], problems: Sequence[Any] = ()) -> list[Any]:
    """The composer's cards for the completions of TRL's table, without any shim."""
    from transformers import AutoTokenizer

    from rlgym_llm import Plugins, RewardComposer
    from rlgym_llm.reward_config import RewardsConfig

    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    rollouts = []
    for prompt, completion in zip(table["prompt"], table["completion"], strict=True):
        asked = prompt if isinstance(prompt, str) else prompt[-1]["content"]
        text = completion if isinstance(completion, str) else completion[0]["content"]
        (task,) = [task for task in problems or tasks() if task.prompt[-1].content in asked]
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        if len(ids) < MAX_TOKENS:  # it ended by itself, so its end was sampled
            ids = [*ids, tokenizer.eos_token_id]
        rollouts.append(rollout(task.prompt, text, task.answer, token_ids=tuple(ids)))
    config = RewardsConfig.model_validate({**REWARDS, "max_error_rate": 1.0})
    return RewardComposer(config, Plugins.discover())(rollouts)


def rollout(prompt: Any, text: str, answer: str, token_ids: tuple[int, ...]) -> Any:
    """A finished rollout of one turn."""
    from rlgym_llm import Completion, Rollout, Task, Turn

    completion = Completion(text=text, token_ids=token_ids)
    return Rollout(
        id=text,
        task=Task(prompt=prompt, answer=answer),
        group_id="",
        sample_index=0,
        seed=0,
        turns=(Turn(new_prompt_token_ids=(), completion=completion),),
        terminated=True,
    )


def same(logged: Sequence[float], ours: Sequence[float]) -> bool:
    """Whether they are the same float32 numbers."""
    import numpy as np

    return np.array_equal(np.float32(logged), np.float32(ours), equal_nan=True)


def check_mean(logged: float, ours: Sequence[float], words: str) -> None:
    """TRL means in float32."""
    mean = sum(ours) / len(ours)
    check(abs(logged - mean) <= 1e-6 * max(1.0, abs(mean)), f"{words} {logged:.6f} = {mean:.6f}")


if __name__ == "__main__":
    raise SystemExit(main())
