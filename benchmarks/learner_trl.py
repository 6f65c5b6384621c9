"""The side of TRL in `learner.py`, under TRL's own interpreter: ``GRPOTrainer`` given its samples.

A ``rollout_func`` hands them over where TRL would generate, and the rewards make the advantages:
+1 and -1 in turn have the mean 0, and nothing divides them. What is timed is the rest of a step:
the reference's log-probs, rewards, forward, backward, clipping of the gradient and AdamW.
"""

from __future__ import annotations

import atexit
import tempfile
from typing import Any

from datasets import Dataset
from learner_sides import KL_COEF, LEARNING_RATE, Workload, disturb, peak_gib
from side import Answer
from transformers import AutoTokenizer
from trl_steps import SteppedTrainer, config_of

__all__ = ["trl_side"]


def trl_side(model: str, workload: Workload) -> Answer:
    """What answers a question with one step, as `learner_sides.side_of`."""
    scratch = tempfile.TemporaryDirectory()
    atexit.register(scratch.cleanup)  # it lasts as long as the process

    def generate(prompts: list[Any], trainer: SteppedTrainer) -> dict[str, Any]:
        samples = workload.samples(
            trainer.question, vocabulary=trainer.model.get_input_embeddings().num_embeddings
        )
        assert len(samples) == len(prompts)
        start = workload.prompt_tokens
        return {
            "prompt_ids": [list(sample.token_ids[:start]) for sample in samples],
            "completion_ids": [list(sample.token_ids[start:]) for sample in samples],
            "logprobs": None,
            "advantage": [sample.advantages[-1] for sample in samples],
        }

    def reward(completions: list[str], advantage: list[float], **_: Any) -> list[float]:
        return advantage

    trainer = SteppedTrainer(
        model=model,
        reward_funcs=reward,
        rollout_func=generate,
        args=config_of(
            scratch.name,
            per_device_train_batch_size=workload.num_sequences,
            gradient_accumulation_steps=1,
            num_generations=workload.group_size,
            max_completion_length=workload.response_tokens,
            beta=KL_COEF,
            scale_rewards="none",
            learning_rate=LEARNING_RATE,
        ),
        train_dataset=Dataset.from_list([{"prompt": str(i)} for i in range(workload.num_groups)]),
        processing_class=AutoTokenizer.from_pretrained(model, padding_side="left"),
    )
    disturb(trainer.model)

    def answer(question: dict[str, Any]) -> dict[str, float]:
        assert question["has_kl"]
        found = trainer.step(question)
        kept = {name: found[name] for name in ("grad_norm", "loss", "kl")}
        return {**kept, "seconds": found["seconds"] - found["gen"], "peak_gib": peak_gib()}

    return answer
