"""The side of TRL in `end_to_end.py`, under TRL's own interpreter: ``GRPOTrainer`` as it is."""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Mapping
from typing import Any

from datasets import Dataset
from end_to_end_sides import KL_COEF, LEARNING_RATE, Workload, share_of_e
from side import Answer
from transformers import AutoTokenizer
from trl_steps import SteppedTrainer, config_of

__all__ = ["trl_side"]


def trl_side(model: str, workload: Workload) -> Answer:
    """What answers with the seconds of one step, and those of its parts."""
    scratch = tempfile.TemporaryDirectory()
    atexit.register(scratch.cleanup)  # it lasts as long as the process
    # The model has no end-of-text token, but TRL wants one: this is no id of the model's.
    tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left")
    tokenizer.add_special_tokens({"eos_token": "<|never|>"})

    def reward(completions: list[list[dict[str, str]]], **_: Any) -> list[float]:
        return [share_of_e(messages[-1]["content"]) for messages in completions]

    num_sequences = workload.num_prompts * workload.group_size
    trainer = SteppedTrainer(
        model=model,
        reward_funcs=reward,
        args=config_of(
            scratch.name,
            per_device_train_batch_size=workload.micro_batch,
            gradient_accumulation_steps=num_sequences // workload.micro_batch,
            num_generations=workload.group_size,
            max_completion_length=workload.response_tokens,
            beta=KL_COEF,
            learning_rate=LEARNING_RATE,
        ),
        train_dataset=Dataset.from_list(
            [{"prompt": [{"role": "user", "content": text}]} for text in workload.prompts()]
        ),
        processing_class=tokenizer,
    )
    num_seen = 0.0  # of tokens; the trainer logs how many there were so far

    def answer(question: Mapping[str, Any]) -> Mapping[str, float]:
        nonlocal num_seen
        found = trainer.step(question)
        num_tokens, num_seen = found["num_tokens"] - num_seen, found["num_tokens"]
        return {
            "seconds": found["seconds"],
            "gen": found["gen"],
            "reward": found["reward"],
            "learn": found["seconds"] - found["gen"] - found["reward"],
            "num_tokens": num_tokens,
            "response_length": found["completions/mean_length"],
        }

    return answer
