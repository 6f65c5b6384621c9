"""The critic: what states are worth, before each update, and towards the returns in one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

from rlgym_llm.config_schema import CriticConfig
from rlgym_llm_trainers.algorithms.metrics import Metric, finalize, merge_steps, without_faults
from rlgym_llm_trainers.learner.batching import Batching
from rlgym_llm_trainers.learner.led import led
from rlgym_llm_trainers.learner.passes import Passes
from rlgym_llm_trainers.learner.ranks import ALONE, Ranks
from rlgym_llm_trainers.learner.sample import TrainingSample
from rlgym_llm_trainers.learner.score import add_scores
from rlgym_llm_trainers.learner.shard import shard
from rlgym_llm_trainers.learner.stepper import Stepper
from rlgym_llm_trainers.learner.value_objective import value_objective
from rlgym_llm_trainers.learner.value_scorer import ValueScorer, state_probe
from rlgym_llm_trainers.models.critic import ValueModel, save_value_model
from rlgym_llm_trainers.models.policy import Policy

__all__ = ["Critic"]


class Critic:
    """Owns the value model and its optimizer; the counterpart of `Learner` for values.

    Mini-batches, ranks, micro-batches, denominators and skipped steps are those of the learner; the
    metrics begin with ``critic/``.

    Args:
        model: what is trained.
        policy: whose token ids it reads, and whose tokenizer is saved beside it.
        config: the section ``critic``.
        loss_agg_mode: how the losses of tokens become one number.
        mini_batch_prompts: whole groups, for each optimizer step so many.
        micro_batch_size: sequences that are computed at once.
        max_tokens: tokens that are computed at once; None bounds the sequences alone.
        num_epochs: passes over each batch.
        max_response_length: what ``seq-mean-token-sum-norm`` divides by.
        num_updates: planned optimizer steps, over which the learning rate runs its course.
        shuffle_seed: None where mini-batches come in the order of the samples.
        ranks: each has a critic of its own, made alike; its parameters are then sharded, and what
            is called on rank 0's is called on all, as with the learner.
        balances: as in `Batching`.
        offloads_parameters: as in `shard`.
        offloads_optimizer: as in `Stepper`.
        note: hears why a step was skipped, on rank 0.
    """

    role = "critic"

    def __init__(
        self,
        model: ValueModel,
        policy: Policy,
        config: CriticConfig,
        *,
        loss_agg_mode: str,
        mini_batch_prompts: int,
        micro_batch_size: int,
        max_tokens: int | None = None,
        num_epochs: int,
        max_response_length: int,
        num_updates: int,
        shuffle_seed: int | None = None,
        ranks: Ranks = ALONE,
        balances: bool = True,
        offloads_parameters: bool = False,
        offloads_optimizer: bool = False,
        note: Callable[[str], None] | None = None,
    ) -> None:
        self.ranks = ranks
        self._policy = policy
        self._config = config
        self.last_step = 0
        """The newest step that changed the weights; 0 before the first."""
        self._scorer = ValueScorer(model)
        shard(self._scorer, ranks, offloads=offloads_parameters)
        batching = Batching(
            max_sequences=micro_batch_size,
            max_tokens=max_tokens,
            is_packed=self._scorer.is_packed,
            pad_token_id=policy.pad_token_id,
            device=policy.device,
            ranks=ranks,
            balances=balances,
        )
        # A sample that a budget cut off is asked for one state more than it is trained on.
        most = None if max_tokens is None else max_tokens + 1
        self._scoring = replace(batching, max_tokens=most)
        self._stepper = Stepper(
            model,
            config.optim,
            grad_clip=config.grad_clip,
            num_updates=num_updates,
            section="critic",
            max_skipped=config.max_skipped_steps,
            offloads=offloads_optimizer,
            note=note if ranks.is_first else None,
        )
        self._passes = Passes(
            batching=batching,
            stepper=self._stepper,
            num_prompts=mini_batch_prompts,
            num_epochs=num_epochs,
            loss_agg_mode=loss_agg_mode,
            max_length=max_response_length,
            shuffle_seed=shuffle_seed,
        )

    @property
    def updates_done(self) -> int:
        """Updates so far, skipped ones too."""
        return self._stepper.updates_done

    @property
    def is_broken(self) -> bool:
        """Whether an update left weights that are not finite."""
        return self._stepper.is_broken

    @led
    def save(self, folder: str | Path) -> None:
        """Writes all that it learns with into a new folder: weights, optimizer, counts."""
        self._stepper.save(folder, ranks=self.ranks, last_step=self.last_step)

    @led
    def load(self, folder: str | Path) -> None:
        """Goes on from a folder that `save` wrote. Raises DataError for that of another model."""
        self.last_step = self._stepper.load(folder, self.ranks)["last_step"]

    @led
    def save_model(self, folder: str | Path) -> None:
        """Saves the critic for ``critic.model.path`` of other runs; whole or not at all."""
        model = self._scorer.model
        whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
        weights: dict[str, Any] = get_model_state_dict(model, options=whole)  # all on rank 0
        if self.ranks.is_first:
            save_value_model(model, self._policy, folder, weights=weights)

    @led
    def add_values(
        self, samples: Sequence[TrainingSample], *, cut_off: Collection[str] = ()
    ) -> tuple[list[TrainingSample], dict[str, float]]:
        """The samples with their values, in the order given, and what came after those cut off.

        ``values[t]`` is the value of the state in which token t was sampled, 0 off the mask. The
        second is, by rollout id, the value of the state after the last token of each rollout in
        ``cut_off``: of what a budget kept it from earning.
        """
        self._scorer.eval()
        probes = [state_probe(s, with_end=s.rollout_id in cut_off) for s in samples]
        scored = add_scores(probes, "values", self._scorer, self._scoring)
        streams = [probe.values or () for probe in scored]
        return (
            [
                replace(sample, values=values[: sample.num_tokens])
                for sample, values in zip(samples, streams, strict=True)
            ],
            {
                sample.rollout_id: values[-1]
                for sample, values in zip(samples, streams, strict=True)
                if sample.rollout_id in cut_off
            },
        )

    @led
    def update(self, samples: Sequence[TrainingSample], *, step: int) -> dict[str, float]:
        """Moves the values towards the samples' returns and returns the step's metrics."""
        # Checkpointed layers work in training mode only; dropout is off in both.
        self._scorer.train()
        per_update: list[dict[str, Metric]] = []
        objective = partial(value_objective, self._scorer, clip=self._config.cliprange_value)
        for found in self._passes.gradients(samples, objective, step=step):
            metrics = found
            has_changed, of_step = self._stepper.step()
            if has_changed:
                self.last_step = step
            else:
                metrics = without_faults(metrics)
            per_update.append(metrics | of_step)
        return finalize(merge_steps(per_update)) if per_update else {}
