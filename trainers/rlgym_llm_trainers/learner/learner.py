"""The learner: mini-batches of samples in, one optimizer step each out; blind to the algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from torch import nn

from rlgym_llm.config_schema import ActorConfig
from rlgym_llm_trainers.algorithms.losses.binding import PolicyLoss
from rlgym_llm_trainers.algorithms.metrics import Metric, finalize, merge_steps
from rlgym_llm_trainers.learner.accumulate import accumulate
from rlgym_llm_trainers.learner.agreement import check_agreement
from rlgym_llm_trainers.learner.batch import Stream, TrainingSample
from rlgym_llm_trainers.learner.batching import Batching
from rlgym_llm_trainers.learner.mini_batches import mini_batches
from rlgym_llm_trainers.learner.objective import policy_objective
from rlgym_llm_trainers.learner.score import add_scores
from rlgym_llm_trainers.learner.stepper import Stepper
from rlgym_llm_trainers.learner.token_scorer import TokenScorer
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
        self._config = config
        self._policy_loss = policy_loss
        self._mini_batch_prompts = mini_batch_prompts
        self._max_response_length = max_response_length
        self._seed = seed
        self.last_step = 0
        """The newest step that changed the weights; 0 before the first."""
        self._scorer = TokenScorer(policy.model, temperature=temperature)
        self._reference = None
        if reference is not None:
            self._reference = TokenScorer(reference, temperature=temperature)
        self._batching = Batching(
            max_sequences=micro_batch_size,
            is_packed=self._scorer.is_packed,
            pad_token_id=policy.pad_token_id,
            device=policy.device,
        )
        self._scoring = replace(self._batching, max_sequences=reference_batch_size)
        self._stepper = Stepper(
            policy.model,
            config.optim,
            grad_clip=config.grad_clip,
            num_updates=num_updates,
            section="actor",
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
        return self._add_logprobs(samples, self._scorer.eval(), "old_logprobs")

    def _add_logprobs(
        self, samples: Sequence[TrainingSample], scorer: TokenScorer, stream: Stream
    ) -> list[TrainingSample]:
        return add_scores(samples, stream, lambda batch: scorer(batch)[0], self._scoring)

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
        self._scorer.train()
        per_update: list[dict[str, Metric]] = []
        for mini_batch in mini_batches(
            samples,
            num_prompts=self._mini_batch_prompts,
            num_epochs=self._config.ppo_epochs,
            shuffle_seed=(self._seed, step) if self._config.shuffle else None,
        ):
            metrics = accumulate(
                mini_batch,
                partial(
                    policy_objective,
                    self._scorer,
                    config=self._config,
                    policy_loss=self._policy_loss,
                    version=version,
                ),
                self._stepper,
                self._batching,
                loss_agg_mode=self._config.loss_agg_mode,
                max_length=self._max_response_length,
            )
            if not per_update:
                check_agreement(finalize(metrics))
            else:
                # Later mini-batches differ from the generator because the policy has moved.
                metrics = {k: v for k, v in metrics.items() if not k.startswith(_AGREEMENT)}
            has_changed, of_step = self._stepper.step()
            if has_changed:
                self.last_step = step
            per_update.append(metrics | of_step)
        return finalize(merge_steps(per_update)) if per_update else {}


_AGREEMENT = "training/rollout_"
"""Metrics that compare the learner with the generator begin so."""
