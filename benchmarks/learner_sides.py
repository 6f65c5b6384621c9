"""The sides of `learner.py`: who trains, each made in the process that it will train in.

All take the same samples of random ids and make one optimizer step on them.
"""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rlgym_llm_trainers.learner.batch import TrainingSample
from side import Answer

__all__ = ["SIDES", "Workload", "side_of"]

SIDES = ("bare", "ours")
_LEARNING_RATE = 1e-6

Step = Callable[[Sequence[TrainingSample]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One mini-batch, which is also one micro-batch; all sequences are equally long."""

    num_groups: int
    group_size: int
    prompt_tokens: int
    response_tokens: int

    @property
    def num_sequences(self) -> int:
        """Sequences of the mini-batch."""
        return self.num_groups * self.group_size

    @property
    def num_tokens(self) -> int:
        """Tokens of a sequence."""
        return self.prompt_tokens + self.response_tokens

    def samples(self, *, shares_prompts: bool, seed: int, vocabulary: int) -> list[TrainingSample]:
        """Random ids, the same for the same seed; advantages of +1 and -1 in turn."""
        draw = random.Random(seed)

        def ids(count: int) -> tuple[int, ...]:
            return tuple(draw.randrange(10, vocabulary) for _ in range(count))

        prompts = [ids(self.prompt_tokens) for _ in range(self.num_sequences)]
        mask = (False,) * self.prompt_tokens + (True,) * self.response_tokens
        return [
            TrainingSample(
                token_ids=prompts[i // self.group_size if shares_prompts else i]
                + ids(self.response_tokens),
                loss_mask=mask,
                rollout_logprobs=(0.0,) * self.num_tokens,
                policy_versions=tuple(0 if is_on else -1 for is_on in mask),
                rollout_id=str(i),
                group_id=str(i // self.group_size),
                sample_index=i % self.group_size,
                advantages=tuple((-1.0) ** i if is_on else 0.0 for is_on in mask),
            )
            for i in range(self.num_sequences)
        ]


def side_of(side: str, model: str | None, workload: Workload) -> Answer:
    """What answers a question with the seconds of one step and the peak memory so far."""
    import torch
    from rlgym_llm_trainers.models.policy import load_policy
    from rlgym_llm_trainers.models.starter import starter_model_path
    from rlgym_llm_trainers.models.torch_setup import set_up_torch

    set_up_torch(num_threads=None, seed=0)
    policy = load_policy(model or starter_model_path(), device=torch.device("cpu"))
    prepare, step = {"bare": _bare, "ours": _ours}[side](policy, workload)

    def answer(question: dict[str, Any]) -> dict[str, float]:
        samples = prepare(
            workload.samples(
                shares_prompts=question["workload"] == "siblings",
                seed=question["seed"],
                vocabulary=policy.model.config.vocab_size,
            )
        )
        started = time.perf_counter()
        step(samples)
        seconds = time.perf_counter() - started
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        return {"seconds": seconds, "peak_gib": peak}

    return answer


def _bare(policy: Any, workload: Workload) -> tuple[Callable[..., Any], Step]:
    """The loop that anyone would write: nothing padded here, as all lengths are equal."""
    import torch
    import torch.nn.functional as F

    model = policy.model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=_LEARNING_RATE)
    num_targets = workload.response_tokens

    def step(samples: Sequence[TrainingSample]) -> None:
        ids = torch.tensor([sample.token_ids for sample in samples])
        logits = model(input_ids=ids, use_cache=False, logits_to_keep=num_targets + 1).logits
        targets = ids[:, -num_targets:]
        F.cross_entropy(logits[:, :-1].flatten(0, 1), targets.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return lambda samples: samples, step


def _ours(policy: Any, workload: Workload) -> tuple[Callable[..., Any], Step]:
    """The learner; a forward pass beforehand, outside the time, says what the policy thought."""
    from rlgym_llm_trainers.algorithms.losses import ppo_clip_loss
    from rlgym_llm_trainers.learner.learner import Learner

    from rlgym_llm.config_schema import ActorConfig

    learner = Learner(
        policy,
        ActorConfig.model_validate({"optim": {"lr": _LEARNING_RATE}}),
        policy_loss=ppo_clip_loss,
        mini_batch_prompts=workload.num_groups,
        micro_batch_size=workload.num_sequences,
        reference_batch_size=workload.num_sequences,
        temperature=1.0,
        max_response_length=workload.response_tokens,
        num_updates=1000,
        seed=0,
    )
    steps = iter(range(1, 1000))

    def step(samples: Sequence[TrainingSample]) -> None:
        number = next(steps)
        # Version 0 sampled them all, so none is held against the weights of now.
        learner.update(samples, step=number, version=number)

    return learner.add_old_logprobs, step
