"""Our sides of `end_to_end.py`: a whole run, a step a question; and what all sides are given."""

from __future__ import annotations

import atexit
import json
import random
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from side import Answer
from turns import Turns

__all__ = ["KL_COEF", "LEARNING_RATE", "SIDES", "Workload", "our_side", "share_of_e"]

SIDES = ("vllm", "hf", "trl")
KL_COEF = 0.04
LEARNING_RATE = 1e-6

_MOST_STEPS = 20
_WORDS = "river stone seven market under quick lamp winter carry blue number garden".split()


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One optimizer step: so many prompts, responses to each, and tokens of a response."""

    num_prompts: int
    group_size: int
    prompt_words: int
    response_tokens: int
    micro_batch: int
    """Sequences of one forward and backward pass."""

    def prompts(self) -> list[str]:
        """The prompts of all steps, each of its own words and equally many; the same each time."""
        draw = random.Random(0)
        return [
            f"Go on: {' '.join(draw.choices(_WORDS, k=self.prompt_words))}"
            for _ in range(self.num_prompts * _MOST_STEPS)
        ]


def share_of_e(completion: str) -> float:
    """The reward: how many of the characters are an e.

    >>> share_of_e("else")
    0.5
    """
    return completion.count("e") / max(len(completion), 1)


def our_side(name: str, model: str, workload: Workload) -> Answer:
    """What answers with the seconds of one step of ``rlgym-train``, and those of its parts."""
    from rlgym_llm_trainers.models.torch_setup import set_up_torch

    set_up_torch(num_threads=None, seed=0)
    from rlgym_llm_trainers.training.console import PlainView
    from rlgym_llm_trainers.training.loop import train
    from rlgym_llm_trainers.training.run_folder import choose_run_folder
    from rlgym_llm_trainers.training.session import open_session

    from rlgym_llm.config_schema import TrainConfig
    from rlgym_llm.plugins import Plugins

    scratch = tempfile.TemporaryDirectory()
    atexit.register(scratch.cleanup)  # it lasts as long as the process
    data = Path(scratch.name) / "prompts.jsonl"
    rows = [json.dumps({"prompt": text, "answer": "0"}) for text in workload.prompts()]
    data.write_text("\n".join(rows) + "\n", encoding="utf-8")
    config = TrainConfig.model_validate(
        _settings(name, model, workload)
        | {"trainer": {"output": f"{scratch.name}/run", "total_training_steps": _MOST_STEPS}}
        | {"data": _data(str(data), workload)}
    )
    session = open_session(
        config,
        plugins=Plugins.discover(),
        run=choose_run_folder(config.trainer.output, name="end-to-end"),
        view=PlainView(),
    )

    def loop(turns: Turns) -> None:
        turns.wait()
        train(session, [_Step(turns)])

    turns = Turns(loop)

    def answer(question: Mapping[str, Any]) -> Mapping[str, float]:
        found = turns.ask(question)
        seconds = found["timing_s/step"]
        parts = {part: found[f"timing_s/{part}"] for part in ("gen", "reward")}
        return {
            "seconds": seconds,
            **parts,
            "learn": seconds - sum(parts.values()),
            "num_tokens": found["perf/total_num_tokens"],
            "response_length": found["response_length/mean"],
        }

    return answer


class _Step:
    """A logger, for it is called after each step: answers, and waits before the next one."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    def log(self, step: int, metrics: Mapping[str, float | None]) -> None:
        self._turns.tell({name: value for name, value in metrics.items() if value is not None})
        self._turns.wait()

    def close(self) -> None:
        pass


def _data(file: str, workload: Workload) -> dict[str, Any]:
    return {
        "train": file,
        "train_batch_size": workload.num_prompts,
        "max_prompt_length": 4 * workload.prompt_words + 64,
        "max_response_length": workload.response_tokens,
        "shuffle": False,
    }


def _settings(name: str, model: str, workload: Workload) -> dict[str, Any]:
    reward = {"reward": "function", "options": {"path": f"{__name__}:{share_of_e.__name__}"}}
    return {
        "model": {"path": model},
        "env": {"id": "math-generic", "kwargs": {"system_prompt": ""}},
        "rewards": {"components": {"math": reward}},
        "rollout": {"name": name, "n": workload.group_size},
        "actor": {
            "optim": {"lr": LEARNING_RATE},
            "ppo_micro_batch_size_per_gpu": workload.micro_batch,
            "use_kl_loss": True,
            "kl_loss_coef": KL_COEF,
        },
    }
