r"""OpenRLHF's own executor, rewarded by our rewards; and a function of its kind by our composer.

    python benchmarks/openrlhf_shim.py --peers DIR

OpenRLHF runs in an environment of its own below ``--peers``, made on the first run. Its single-turn
executor loads a file and calls it from threads, one row a call; the completions are scripted, in
the place of the vLLM engine that it would ask. No GPU is needed.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from shim_peers import ROOT, check, run_inside

MODEL = ROOT / "trainers" / "rlgym_llm_trainers" / "starter_model"
REWARDS = ["math=1.0", "format=0.2"]
FILE = f"""\
import torch
from rlgym_llm.shims.openrlhf import openrlhf_reward_func
reward_func = openrlhf_reward_func({REWARDS!r}, tensor=torch.tensor, scores="math",
                                   special_tokens=["<|im_end|>"])
"""
PLUGIN = """\
import torch
from openrlhf.utils import extract_boxed_answer, grade_answer

from rlgym_llm import RewardSpec, hookimpl
from rlgym_llm.shims.openrlhf import from_openrlhf


def boxed(queries, prompts, labels, **kwargs):
    right = [grade_answer(extract_boxed_answer(q), label) for q, label in zip(queries, labels)]
    rewards = torch.tensor([float(r) for r in right])
    return {"rewards": rewards, "scores": rewards, "extra_logs": {"accuracy": rewards.mean()}}


graded = from_openrlhf(boxed, name="graded")


@hookimpl
def rlgym_register(kind):
    spec = RewardSpec(name="graded", entry_point=f"{__name__}:graded")
    return [spec] if kind == "reward" else []
"""
NUM_PROBLEMS = 20


class ScriptedEngine:
    """Answers with the ids of a text that was written beforehand, as vLLM's engine would."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids

    async def generate(self, *_: Any, **__: Any) -> Any:
        """The one output."""
        output = SimpleNamespace(token_ids=self.ids, finish_reason="stop", logprobs=None)
        return SimpleNamespace(outputs=[output])


def main() -> int:
    """Makes the environment and runs the benchmark in it."""
    if sys.argv[1:] != ["--inside"]:
        return run_inside("openrlhf", __file__)
    from importlib.metadata import version

    print(f"openrlhf {version('openrlhf')}", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        score_in_executor(Path(scratch))
        score_by_function(Path(scratch))
    return 0


def replies() -> list[tuple[Any, str]]:
    """Starter problems, answered right in full, right in short, and wrong."""
    import rlgym_llm

    env = rlgym_llm.make("math-gsm8k", source="starter", split="train")
    rows = []
    for index in range(NUM_PROBLEMS):
        task = env.unwrapped.tasks[index]
        rows += [(task, f"So it is\n#### {task.answer}"), (task, f"It is {task.answer}.")]
        rows.append((task, "#### -1"))
    return rows


def score_in_executor(folder: Path) -> None:
    """Our rewards as the reward function of OpenRLHF's SingleTurnAgentExecutor."""
    from openrlhf.utils.agent import SingleTurnAgentExecutor
    from transformers import AutoTokenizer

    file = folder / "reward_func.py"
    file.write_text(FILE)
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    executor = SingleTurnAgentExecutor(str(file))
    params = SimpleNamespace(max_tokens=64, logprobs=None)

    async def execute(task: Any, reply: str) -> dict[str, Any]:
        prompt = tokenizer.apply_chat_template(
            [message.to_dict() for message in task.prompt],
            tokenize=False,
            add_generation_prompt=True,
        )
        ids = tokenizer(reply + tokenizer.eos_token, add_special_tokens=False)["input_ids"]
        engine = ScriptedEngine(ids)
        return await executor.execute(prompt, task.answer, params, 1024, tokenizer, engine)

    async def execute_all() -> list[dict[str, Any]]:
        return await asyncio.gather(*(execute(*row) for row in replies()))

    outputs = asyncio.run(execute_all())
    cards = score(REWARDS, [])
    check(
        [output["reward"].tolist() for output in outputs] == [[f32(c.reward)] for c in cards],
        f"OpenRLHF's executor: {len(outputs)} rewards = ours",
    )
    raws = [card.components["math"].raw for card in cards]
    check([o["scores"].item() for o in outputs] == raws, "OpenRLHF's executor: scores = math")
    logged = [output["extra_logs"]["math"].item() for output in outputs]
    check(logged == raws, "OpenRLHF's executor: raw math in extra_logs = ours")


def score_by_function(folder: Path) -> None:
    """A reward function of OpenRLHF's kind, with its own grader, as a reward of ours."""
    from openrlhf.utils import extract_boxed_answer, grade_answer

    plugin = folder / "graded.py"
    plugin.write_text(PLUGIN)
    texts = [(task, rf"So \boxed{{{task.answer}}}") for task, _ in replies()[::2]]
    cards = score(["graded=1.0"], [plugin], texts)
    wanted = [float(grade_answer(extract_boxed_answer(text), task.answer)) for task, text in texts]
    check(
        [card.reward for card in cards] == wanted and 1.0 in wanted,
        f"OpenRLHF's grader under our composer: {len(wanted)} rewards = its own",
    )


def score(flags: list[str], plugins: list[Path], rows: Any = None) -> list[Any]:
    """The composer's cards, without any shim around it."""
    from rlgym_llm import Completion, Plugins, RewardComposer, Rollout, Turn
    from rlgym_llm.reward_config import RewardsConfig
    from rlgym_llm.reward_flags import parse_reward_flag

    rollouts = [
        Rollout(
            id=str(number),
            task=task,
            group_id="",
            sample_index=0,
            seed=0,
            turns=(Turn(new_prompt_token_ids=(), completion=Completion(text=text)),),
            terminated=True,
        )
        for number, (task, text) in enumerate(rows or replies())
    ]
    config = RewardsConfig(components=dict(map(parse_reward_flag, flags)))
    return RewardComposer(config, Plugins.discover(plugins))(rollouts)


def f32(number: float) -> float:
    """The number as a float32 tensor holds it."""
    import numpy as np

    return float(np.float32(number))


if __name__ == "__main__":
    raise SystemExit(main())
