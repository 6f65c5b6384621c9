"""The sides of `learner.py`: who trains, each made in the process that it will train in.

All take the same samples of random ids and make one optimizer step on them. TRL's stands in
`learner_trl.py`.
"""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlgym_llm_trainers.learner.sample import TrainingSample
from side import Answer

if TYPE_CHECKING:
    from torch import nn

__all__ = ["KL_COEF", "LEARNING_RATE", "SIDES", "Workload", "disturb", "peak_gib", "side_of"]

SIDES = ("bare", "ours", "trl")
KL_COEF = 0.04
LEARNING_RATE = 1e-12
"""AdamW does all its work, but no weight moves by a digit: whatever was trained on before, all
sides must find the same gradient."""

Step = Callable[[Sequence[TrainingSample], bool], dict[str, float]]
"""Samples, and whether there is a KL term, to the ``seconds`` of a step and what is compared."""


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

    def samples(self, question: Mapping[str, Any], *, vocabulary: int) -> list[TrainingSample]:
        """Random ids, the same for the same ``seed``; advantages of +1 and -1 in turn.

        In the workload ``siblings`` a group shares its prompt, in ``apart`` no two sequences do.
        """
        shares_prompts = question["workload"] == "siblings"
        draw = random.Random(question["seed"])

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
    """What answers a question (``workload``, ``seed``, ``has_kl``) with one step.

    The answer holds its ``seconds``, the ``peak_gib`` of the process so far, and the ``grad_norm``,
    ``loss`` and ``kl`` that the side tells.
    """
    import torch
    from rlgym_llm_trainers.models.policy import load_policy
    from rlgym_llm_trainers.models.starter import starter_model_path
    from rlgym_llm_trainers.models.torch_setup import set_up_torch

    set_up_torch(num_threads=None, seed=0)
    path = str(model or starter_model_path())
    if side == "trl":
        from learner_trl import trl_side

        return trl_side(path, workload)
    policy = load_policy(path, device=torch.device("cpu"))
    step = {"bare": _bare, "ours": _ours}[side](policy, workload)

    def answer(question: dict[str, Any]) -> dict[str, float]:
        samples = workload.samples(question, vocabulary=policy.num_ids)
        return {**step(samples, question["has_kl"]), "peak_gib": peak_gib()}

    return answer


def peak_gib() -> float:
    """The most memory that this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def disturb(model: nn.Module) -> None:
    """Moves every weight by about 1%, the same at each call: the KL to the reference is not 0."""
    import torch

    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1 + 0.01 * torch.randn(weight.shape, generator=generator))


def _bare(policy: Any, workload: Workload) -> Step:
    """The loop that anyone would write: nothing padded here, as all lengths are equal."""
    import torch
    import torch.nn.functional as F

    model = policy.model.train()
    disturb(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    num_targets = workload.response_tokens

    def step(samples: Sequence[TrainingSample], has_kl: bool) -> dict[str, float]:
        assert not has_kl
        started = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        ids = torch.tensor([sample.token_ids for sample in samples])
        advantages = torch.tensor([sample.advantages for sample in samples])[:, -num_targets:]
        logits = model(input_ids=ids, use_cache=False, logits_to_keep=num_targets + 1).logits
        targets = ids[:, -num_targets:].flatten()
        losses = F.cross_entropy(logits[:, :-1].flatten(0, 1), targets, reduction="none")
        loss: Any = (losses * advantages.flatten()).mean()
        loss.backward()
        optimizer.step()
        seconds = time.perf_counter() - started
        norms = [weight.grad.norm() for weight in model.parameters()]
        return {"seconds": seconds, "grad_norm": float(torch.stack(norms).norm())}

    return step


def _ours(policy: Any, workload: Workload) -> Step:
    """The learner; where there is a KL term, the forward pass of the reference is in the time.

    What the policy thought before the step is what a generator would have said: outside the time.
    """
    from rlgym_llm_trainers.algorithms.losses import ppo_clip_loss
    from rlgym_llm_trainers.learner.learner import Learner
    from rlgym_llm_trainers.models.policy import make_reference

    from rlgym_llm.config_schema import ActorConfig

    reference = make_reference(policy)
    disturb(policy.model)
    learner = Learner(
        policy,
        ActorConfig.model_validate(
            {
                "optim": {"lr": LEARNING_RATE},
                "use_kl_loss": True,
                "kl_loss_coef": KL_COEF,
                "kl_loss_type": "low_var_kl",
            }
        ),
        policy_loss=ppo_clip_loss,
        mini_batch_prompts=workload.num_groups,
        micro_batch_size=workload.num_sequences,
        reference_batch_size=workload.num_sequences,
        temperature=1.0,
        max_response_length=workload.response_tokens,
        num_updates=1000,
        seed=0,
        reference=reference,
    )
    steps = iter(range(1, 1000))

    def step(samples: Sequence[TrainingSample], has_kl: bool) -> dict[str, float]:
        samples = learner.add_old_logprobs(samples)
        number = next(steps)
        started = time.perf_counter()
        if has_kl:
            samples = learner.add_reference(samples)
        # Version 0 sampled them all, so none is held against the weights of now.
        found = learner.update(samples, step=number, version=number)
        seconds = time.perf_counter() - started
        names = {"actor/grad_norm": "grad_norm", "actor/loss": "loss", "actor/kl_loss": "kl"}
        return {"seconds": seconds, **{names[k]: v for k, v in found.items() if k in names}}

    return step
