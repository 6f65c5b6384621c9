"""The learner: mini-batches of samples in, one optimizer step each out; blind to the algorithm."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from rlgym_llm.config_schema import ActorConfig
from rlgym_llm.errors import ConfigError
from rlgym_llm_trainers.algorithms.aggregate import Reduce, aggregate, tokens_by_prompt
from rlgym_llm_trainers.algorithms.losses import (
    PolicyLossInputs,
    WeightedReduce,
    entropy_loss,
    kl_loss,
)
from rlgym_llm_trainers.algorithms.losses.binding import PolicyLoss
from rlgym_llm_trainers.algorithms.metrics import Metric, finalize, merge, merge_steps
from rlgym_llm_trainers.learner.agreement import (
    check_agreement,
    generator_agreement,
    sampled_entropy,
)
from rlgym_llm_trainers.learner.batch import (
    Batch,
    Stream,
    TrainingSample,
    collate,
    split_micro_batches,
    with_stream,
)
from rlgym_llm_trainers.learner.batch_logprobs import batch_logprobs, is_plain_head
from rlgym_llm_trainers.learner.forward import can_pack, enable_packing
from rlgym_llm_trainers.learner.micro_batches import split_samples
from rlgym_llm_trainers.learner.schedule import lr_at
from rlgym_llm_trainers.models.policy import Policy

__all__ = ["Learner"]


class Learner:
    """Owns the optimizer, and the reference policy where the KL divergence has a coefficient.

    A mini-batch is ``mini_batch_prompts`` whole groups; its gradient is accumulated over
    micro-batches with the denominators of the whole mini-batch, so neither the split nor the
    order of the sequences changes it. A gradient that is not finite skips its step;
    ``actor/skipped_ratio`` is the share of a step's updates that were. Raises GeneratorError,
    before the first update, where the generator sampled from another policy than it says.
    """

    def __init__(
        self,
        policy: Policy,
        config: ActorConfig,
        *,
        policy_loss: PolicyLoss,
        mini_batch_prompts: int,
        micro_batch_size: int,
        reference_batch_size: int,
        temperature: float,
        max_response_length: int,
        num_updates: int,
        seed: int,
        reference: nn.Module | None = None,
    ) -> None:
        self._policy = policy
        self._config = config
        self._policy_loss = policy_loss
        self._mini_batch_prompts = mini_batch_prompts
        self._micro_batch_size = micro_batch_size
        self._reference_batch_size = reference_batch_size
        self._temperature = temperature
        self._max_response_length = max_response_length
        self._num_updates = num_updates
        self._updates_done = 0
        self.last_step = 0
        """The newest step that changed the weights."""
        self._seed = seed
        self._reference = reference
        self._has_plain_head = is_plain_head(policy.model)
        for model in filter(None, (policy.model, reference)):
            enable_packing(model)
        optim = config.optim
        self._optimizer = torch.optim.AdamW(
            policy.model.parameters(),
            lr=optim.lr,
            betas=optim.betas,
            eps=optim.eps,
            weight_decay=optim.weight_decay,
            fused=True,
        )

    @property
    def has_reference(self) -> bool:
        """Whether samples need the reference policy's log-probs before an update."""
        return self._reference is not None

    def add_reference(self, samples: Sequence[TrainingSample]) -> list[TrainingSample]:
        """The samples with the reference policy's log-probs, in the order given."""
        if self._reference is None:
            raise ValueError("this learner has no reference policy")
        return self._add_logprobs(samples, self._reference, "ref_logprobs")

    def add_old_logprobs(self, samples: Sequence[TrainingSample]) -> list[TrainingSample]:
        """The samples with this policy's log-probs, in the order given; before the first update.

        The clipped ratio then starts at 1, whoever sampled.
        """
        self._policy.model.eval()  # type: ignore[no-untyped-call]
        return self._add_logprobs(samples, self._policy.model, "old_logprobs")

    def _add_logprobs(
        self, samples: Sequence[TrainingSample], model: nn.Module, stream: Stream
    ) -> list[TrainingSample]:
        done: dict[str, TrainingSample] = {}
        with torch.no_grad():
            for part in self._split(samples, self._reference_batch_size):
                batch = self._collate(part)
                logprobs, _ = batch_logprobs(
                    model,
                    batch,
                    temperature=self._temperature,
                    has_plain_head=self._has_plain_head,
                )
                for sample in with_stream(part, stream, logprobs):
                    done[sample.rollout_id] = sample
        return [done[sample.rollout_id] for sample in samples]

    def update(
        self, samples: Sequence[TrainingSample], *, step: int, version: int | None = None
    ) -> dict[str, float]:
        """Trains on the samples for ``ppo_epochs`` and returns the step's metrics.

        The samples carry advantages; where they carry no old log-probs, those are the generator's
        own. Samples of one group stay in one mini-batch. ``version`` is the policy version of these
        weights: only tokens that were sampled under it must be as likely here as they were there.
        None says that all were.
        """
        # Checkpointed layers work in training mode only; dropout is off in both.
        self._policy.model.train()
        groups = _by_group(samples)
        per_update: list[dict[str, Metric]] = []
        for epoch in range(self._config.ppo_epochs):
            order = list(groups)
            if self._config.shuffle:
                rng = np.random.Generator(np.random.Philox(key=[self._seed, step * 1000 + epoch]))
                order = [order[i] for i in rng.permutation(len(order))]
            for start in range(0, len(order), self._mini_batch_prompts):
                chosen = order[start : start + self._mini_batch_prompts]
                mini_batch = [sample for group in chosen for sample in groups[group]]
                is_first = not per_update
                per_update.append(
                    self._optimizer_step(mini_batch, is_on_policy=is_first, version=version)
                )
                self.last_step = step
        return finalize(merge_steps(per_update)) if per_update else {}

    def _optimizer_step(
        self, samples: Sequence[TrainingSample], *, is_on_policy: bool, version: int | None
    ) -> dict[str, Metric]:
        lr = lr_at(
            self._updates_done,
            base_lr=self._config.optim.lr,
            kind=self._config.optim.lr_scheduler_type,
            warmup_steps=self._config.optim.lr_warmup_steps,
            total_steps=self._num_updates,
        )
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        # Counted over the whole mini-batch: what a micro-batch contributes never depends on it.
        num_tokens = [sample.num_trained_tokens for sample in samples]
        of_prompt = tokens_by_prompt(num_tokens, [sample.group_id for sample in samples])
        reduce = partial(
            aggregate,
            mode=self._config.loss_agg_mode,
            num_tokens=sum(num_tokens),
            num_sequences=sum(count > 0 for count in num_tokens),
            num_prompts=sum(count > 0 for count in of_prompt.values()),
            max_length=self._max_response_length,
        )
        self._optimizer.zero_grad(set_to_none=True)
        parts = []
        for micro_batch in self._split(samples, self._micro_batch_size):
            rows = torch.tensor([of_prompt[sample.group_id] for sample in micro_batch])
            loss, metrics = self._loss(
                self._collate(micro_batch), partial(reduce, prompt_tokens=rows), version
            )
            loss.backward()  # type: ignore[no-untyped-call]
            parts.append(metrics)
        metrics = merge(parts)
        if is_on_policy:
            check_agreement(finalize(metrics))
        else:
            # Later mini-batches differ from the generator because the policy has moved.
            metrics = {k: v for k, v in metrics.items() if not k.startswith("training/rollout_")}

        grad_norm = float(
            nn.utils.clip_grad_norm_(self._policy.model.parameters(), self._config.grad_clip)
        )
        is_finite = math.isfinite(grad_norm)
        if is_finite:
            self._optimizer.step()
        self._updates_done += 1
        return metrics | {
            "actor/grad_norm": Metric.mean(grad_norm, 1),
            "actor/lr": Metric.mean(lr, 1),
            "actor/skipped_ratio": Metric.mean(float(not is_finite), 1),
        }

    def _loss(
        self, batch: Batch, reduce: Reduce, version: int | None
    ) -> tuple[Tensor, dict[str, Metric]]:
        """The micro-batch's share of the loss, and its metrics."""
        config = self._config
        assert batch.advantages is not None, "samples come with advantages"
        logprobs, entropy = batch_logprobs(
            self._policy.model,
            batch,
            temperature=self._temperature,
            with_entropy=config.entropy_coeff != 0,
            has_plain_head=self._has_plain_head,
        )
        mask, policy_reduce = batch.accepted_mask, reduce
        if batch.is_weights is not None:
            policy_reduce = WeightedReduce(reduce, batch.loss_mask, batch.is_weights)
            reduce = WeightedReduce(reduce, batch.loss_mask)
        output = self._policy_loss(
            PolicyLossInputs(
                logprobs=logprobs,
                old_logprobs=(
                    batch.rollout_logprobs if batch.old_logprobs is None else batch.old_logprobs
                ),
                advantages=batch.advantages,
                mask=mask,
            ),
            reduce=policy_reduce,
        )
        if isinstance(policy_reduce, WeightedReduce) and not policy_reduce.was_used:
            raise ConfigError(
                f"--actor.policy_loss {config.policy_loss} does not call the reduce it is given, "
                "so samples of another policy would train it uncorrected; change the loss, or "
                "take --algorithm.rollout_correction.bypass_mode true"
            )
        loss, metrics = output.loss, dict(output.metrics)
        if entropy is not None:
            entropy_term = entropy_loss(entropy, mask, reduce=reduce)
            metrics |= entropy_term.metrics
            loss = loss + config.entropy_coeff * entropy_term.loss
        else:
            metrics["actor/entropy"] = sampled_entropy(batch)
        if config.use_kl_loss and batch.ref_logprobs is not None:
            kl_term = kl_loss(
                logprobs,
                batch.ref_logprobs,
                mask,
                reduce=reduce,
                kind=config.kl_loss_type,
            )
            metrics |= kl_term.metrics
            metrics["actor/kl_coef"] = Metric.mean(config.kl_loss_coef, 1)
            loss = loss + config.kl_loss_coef * kl_term.loss
        metrics["actor/loss"] = Metric.sum(float(loss.detach()))
        return loss, metrics | generator_agreement(logprobs.detach(), batch, version)

    def _split(
        self, samples: Sequence[TrainingSample], max_sequences: int
    ) -> list[list[TrainingSample]]:
        """Siblings together where they share their prompt, else equal lengths to pad little."""
        if self._has_plain_head and can_pack(self._policy.model):
            return split_samples(samples, max_sequences=max_sequences)
        return split_micro_batches(samples, max_sequences)

    def _collate(self, samples: Sequence[TrainingSample]) -> Batch:
        return collate(samples, self._policy.pad_token_id).to(self._policy.device)


def _by_group(samples: Iterable[TrainingSample]) -> dict[str, list[TrainingSample]]:
    groups: dict[str, list[TrainingSample]] = {}
    for sample in samples:
        groups.setdefault(sample.group_id, []).append(sample)
    return groups
