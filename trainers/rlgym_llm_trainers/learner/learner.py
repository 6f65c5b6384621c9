"""The learner: mini-batches of samples in, one optimizer step each out; blind to the algorithm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import nn

from rlgym_llm.config_schema import ActorConfig
from rlgym_llm.errors import RlgymError
from rlgym_llm_trainers.algorithms.losses.binding import PolicyLoss
from rlgym_llm_trainers.algorithms.metrics import Metric, finalize, merge_steps, without_faults
from rlgym_llm_trainers.learner.agreement import check_agreement
from rlgym_llm_trainers.learner.batching import Batching
from rlgym_llm_trainers.learner.led import led
from rlgym_llm_trainers.learner.objective import policy_objective
from rlgym_llm_trainers.learner.passes import Passes
from rlgym_llm_trainers.learner.publish import publish
from rlgym_llm_trainers.learner.ranks import ALONE, Ranks
from rlgym_llm_trainers.learner.sample import Stream, TrainingSample
from rlgym_llm_trainers.learner.score import add_scores
from rlgym_llm_trainers.learner.shard import shard
from rlgym_llm_trainers.learner.stepper import Stepper
from rlgym_llm_trainers.learner.token_scorer import TokenScorer
from rlgym_llm_trainers.models.policy import Policy

__all__ = ["Learner"]


class Learner:
    """Owns the optimizer, and the reference policy where the KL divergence has a coefficient.

    A mini-batch is ``mini_batch_prompts`` whole groups; its gradient is accumulated over
    micro-batches with the denominators of the whole mini-batch, so neither the split nor the
    order of the sequences changes it, nor does the number of ranks. A loss or gradient that is not
    finite, on whatever rank, skips the step on all; ``actor/skipped_ratio`` is the share of a
    step's updates that were. Raises GeneratorError, before the first update, where the generator
    sampled from another policy than it says.

    Over several ranks each has one, made alike; the parameters are sharded. What is called on rank
    0's is called on all (`led`), with the same samples, of which each rank learns from its share.

    Args:
        policy: the model that is sampled from and saved. After each update its weights, on rank 0,
            are those that were learned.
        trained: the module that is trained; None is the policy's own. Another one where that is
            sharded or has adapters.
        max_tokens: that are computed for a micro-batch at most; None bounds its sequences alone.
        reference_max_tokens: the same of a forward pass without gradient.
        balances: as in `Batching`.
        note: hears why a step was skipped, on rank 0.
    """

    role = "actor"

    def __init__(
        self,
        policy: Policy,
        config: ActorConfig,
        *,
        policy_loss: PolicyLoss,
        mini_batch_prompts: int,
        micro_batch_size: int,
        reference_batch_size: int,
        max_tokens: int | None = None,
        reference_max_tokens: int | None = None,
        temperature: float,
        max_response_length: int,
        num_updates: int,
        seed: int,
        reference: nn.Module | None = None,
        trained: nn.Module | None = None,
        ranks: Ranks = ALONE,
        balances: bool = True,
        note: Callable[[str], None] | None = None,
    ) -> None:
        self.ranks = ranks
        self._config = config
        self._policy_loss = policy_loss
        self.last_step = 0
        """The newest step whose change of the weights is in the policy's model; 0 before one."""
        self._newest = 0
        """The newest step that changed what is trained."""
        self._trained = policy.model if trained is None else trained
        self._whole = policy.model if ranks.is_first else None
        device = policy.device  # before its parameters may go elsewhere
        is_mixed = ranks.mesh is not None and device.type == "cuda"
        self._is_exact = policy.model.dtype == torch.float32 and not is_mixed
        self._scorer = TokenScorer(self._trained, temperature=temperature)
        fsdp = config.fsdp_config
        shard(self._scorer, ranks, offloads=fsdp.param_offload)
        self._reference = None
        if reference is not None:
            self._reference = TokenScorer(reference, temperature=temperature)
            shard(self._reference, ranks, offloads=fsdp.param_offload)
        batching = Batching(
            max_sequences=micro_batch_size,
            max_tokens=max_tokens,
            is_packed=self._scorer.is_packed,
            pad_token_id=policy.pad_token_id,
            device=device,
            ranks=ranks,
            balances=balances,
        )
        self._scoring = replace(
            batching, max_sequences=reference_batch_size, max_tokens=reference_max_tokens
        )
        self._stepper = Stepper(
            self._trained,
            config.optim,
            grad_clip=config.grad_clip,
            num_updates=num_updates,
            section="actor",
            max_skipped=config.max_skipped_steps,
            offloads=fsdp.optimizer_offload,
            note=note if ranks.is_first else None,
        )
        self._passes = Passes(
            batching=batching,
            stepper=self._stepper,
            num_prompts=mini_batch_prompts,
            num_epochs=config.ppo_epochs,
            loss_agg_mode=config.loss_agg_mode,
            max_length=max_response_length,
            shuffle_seed=seed if config.shuffle else None,
        )

    @property
    def updates_done(self) -> int:
        """Updates so far, skipped ones too."""
        return self._stepper.updates_done

    @property
    def is_broken(self) -> bool:
        """Whether an update left weights in the policy's model that are not finite."""
        return self._stepper.is_broken and self._trained is self._whole

    @led
    def save(self, folder: str | Path) -> None:
        """Writes all that it learns with into a new folder: weights, optimizer, counts."""
        self._stepper.save(folder, ranks=self.ranks, last_step=self.last_step)

    @led
    def load(self, folder: str | Path) -> None:
        """Goes on from a folder that `save` wrote. Raises DataError for that of another model."""
        self._newest = self._stepper.load(folder, self.ranks)["last_step"]
        self._publish()

    @property
    def is_exact(self) -> bool:
        """Whether it computes in float32, as then do all that sample from its weights.

        Their log-probs are then its own up to a rounding that no clip sees; bfloat16's is coarser.
        """
        return self._is_exact

    @property
    def has_reference(self) -> bool:
        """Whether samples need the reference policy's log-probs before an update."""
        return self._reference is not None

    @led
    def add_reference(self, samples: Sequence[TrainingSample]) -> list[TrainingSample]:
        """The samples with the reference policy's log-probs, in the order given."""
        if self._reference is None:
            raise ValueError("this learner has no reference policy")
        return self._add_logprobs(samples, self._reference, "ref_logprobs")

    @led
    def add_old_logprobs(self, samples: Sequence[TrainingSample]) -> list[TrainingSample]:
        """The samples with this policy's log-probs, in the order given; before the first update.

        The clipped ratio then starts at 1, whoever sampled.
        """
        return self._add_logprobs(samples, self._scorer.eval(), "old_logprobs")

    def _add_logprobs(
        self, samples: Sequence[TrainingSample], scorer: TokenScorer, stream: Stream
    ) -> list[TrainingSample]:
        return add_scores(samples, stream, lambda batch: scorer(batch)[0], self._scoring)

    @led
    def update(
        self, samples: Sequence[TrainingSample], *, step: int, version: int | None = None
    ) -> dict[str, float]:
        """Trains on the samples for ``ppo_epochs`` and returns the step's metrics.

        The samples carry advantages; where they carry no old log-probs, those are the generator's
        own. Samples of one group stay in one mini-batch. ``version`` is the policy version of these
        weights: only tokens that were sampled under it must be as likely here as they were there.
        None says that all were. Raises RlgymError, on all ranks alike, where the policy loss does
        on one of them, and where an update leaves weights that are not finite.
        """
        try:
            return self._update(samples, step=step, version=version)
        except RlgymError:  # on all ranks alike
            if not self._stepper.is_broken:
                self._publish()
            raise

    def _update(
        self, samples: Sequence[TrainingSample], *, step: int, version: int | None
    ) -> dict[str, float]:
        # Checkpointed layers work in training mode only; dropout is off in both.
        self._scorer.train()
        per_update: list[dict[str, Metric]] = []
        objective = partial(
            policy_objective,
            self._scorer,
            config=self._config,
            policy_loss=self._policy_loss,
            version=version,
        )
        for found in self._passes.gradients(samples, objective, step=step):
            metrics = found
            if not per_update:
                check_agreement(finalize(metrics))
            else:
                # Later mini-batches differ from the generator because the policy has moved.
                metrics = {k: v for k, v in metrics.items() if not k.startswith(_AGREEMENT)}
            has_changed, of_step = self._stepper.step()
            if has_changed:
                self._newest = step
                if self._trained is self._whole:
                    self.last_step = step
            else:
                metrics = without_faults(metrics)
            per_update.append(metrics | of_step)
        self._publish()
        return finalize(merge_steps(per_update)) if per_update else {}

    def _publish(self) -> None:
        publish(self._trained, self._whole)
        self.last_step = self._newest


_AGREEMENT = "training/rollout_"
"""Metrics that compare the learner with the generator begin so."""
