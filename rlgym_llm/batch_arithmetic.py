"""What the batch sizes amount to: steps, mini-batches, micro-batches, and what must divide what.

Counted as in verl: ``data.train_batch_size`` and ``actor.ppo_mini_batch_size`` count *prompts*
over all ranks, ``*_micro_batch_size_per_gpu`` counts *sequences* on one rank.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.errors import ConfigError

__all__ = ["LARGEST_DEFAULT_MICRO_BATCH", "BatchPlan", "describe", "plan_batches"]

LARGEST_DEFAULT_MICRO_BATCH = 32
"""Sequences in a micro-batch, at most, where none is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """The arithmetic of a run; every division in it is exact."""

    batch_prompts: int
    """Prompts a step, over all ranks."""
    group_size: int
    """Responses a prompt."""
    batch_sequences: int
    """Sequences a step, over all ranks: prompts times responses."""
    mini_batch_prompts: int
    """Prompts an optimizer step, over all ranks."""
    mini_batch_sequences: int
    """Sequences an optimizer step, over all ranks."""
    micro_batch_size: int
    """Sequences in one forward and backward pass on one rank."""
    accumulation_steps: int
    """Micro-batches of one rank whose gradients are summed before an optimizer step."""
    reference_batch_size: int
    """Sequences in one forward pass of the reference policy on one rank."""
    ppo_epochs: int
    """Passes over each batch."""
    updates_per_step: int
    """Optimizer steps a batch."""
    dp_size: int
    """Data-parallel ranks."""
    num_prompts: int | None
    """Training prompts, None where they were not counted."""
    steps_per_epoch: int | None
    """Whole batches in the training prompts, None where those were not counted."""
    total_steps: int | None
    """Steps of the run, None where neither the prompts nor ``total_training_steps`` tell."""

    @property
    def num_updates(self) -> int | None:
        """Optimizer steps of the whole run, None where the steps are not known."""
        return None if self.total_steps is None else self.total_steps * self.updates_per_step

    @property
    def num_left_out(self) -> int | None:
        """Prompts of each epoch that fill no whole batch and are left out of it."""
        return None if self.num_prompts is None else self.num_prompts % self.batch_prompts


def plan_batches(
    config: TrainConfig, *, dp_size: int = 1, num_prompts: int | None = None
) -> BatchPlan:
    """The plan of a run over ``dp_size`` ranks and ``num_prompts`` training prompts.

    Raises ConfigError, with the nearest size that works, where one does not divide another.

    >>> from rlgym_llm.config import load_config
    >>> config = load_config(["--data.train_batch_size", "256", "--rollout.n", "1",
    ...     "--actor.ppo_mini_batch_size", "128", "--actor.ppo_micro_batch_size_per_gpu", "16"])
    >>> plan = plan_batches(config, dp_size=8)
    >>> plan.updates_per_step, plan.accumulation_steps
    (2, 1)
    """
    batch, group = config.data.train_batch_size, config.rollout.n
    mini = batch if config.actor.ppo_mini_batch_size is None else config.actor.ppo_mini_batch_size
    if batch % mini:
        raise ConfigError(
            f"--actor.ppo_mini_batch_size {mini} does not divide --data.train_batch_size {batch}; "
            f"the nearest that does is {_nearest_divisor(mini, batch)}"
        )
    if mini * group % dp_size:
        raise ConfigError(
            f"the {mini * group} sequences of a mini-batch (--actor.ppo_mini_batch_size {mini} "
            f"times --rollout.n {group}) do not spread evenly over {dp_size} ranks"
        )
    per_rank = mini * group // dp_size
    micro = config.actor.ppo_micro_batch_size_per_gpu
    if micro is None:
        micro = max(d for d in range(1, LARGEST_DEFAULT_MICRO_BATCH + 1) if per_rank % d == 0)
    elif per_rank % micro:
        raise ConfigError(
            f"--actor.ppo_micro_batch_size_per_gpu {micro} does not divide the {per_rank} "
            f"sequences that a rank has in a mini-batch ({mini} prompts times --rollout.n {group} "
            f"over {dp_size} {'rank' if dp_size == 1 else 'ranks'}); "
            f"the nearest that does is {_nearest_divisor(micro, per_rank)}"
        )
    steps_per_epoch, total_steps = _count_steps(config, num_prompts)
    plan = BatchPlan(
        batch_prompts=batch,
        group_size=group,
        batch_sequences=batch * group,
        mini_batch_prompts=mini,
        mini_batch_sequences=mini * group,
        micro_batch_size=micro,
        accumulation_steps=per_rank // micro,
        reference_batch_size=config.ref.log_prob_micro_batch_size_per_gpu or micro,
        ppo_epochs=config.actor.ppo_epochs,
        updates_per_step=config.actor.ppo_epochs * (batch // mini),
        dp_size=dp_size,
        num_prompts=num_prompts,
        steps_per_epoch=steps_per_epoch,
        total_steps=total_steps,
    )
    warmup = config.actor.optim.lr_warmup_steps
    if plan.num_updates and warmup > plan.num_updates:
        raise ConfigError(
            f"--actor.optim.lr_warmup_steps {warmup} is more than the run's "
            f"{plan.num_updates} optimizer steps"
        )
    return plan


def describe(plan: BatchPlan) -> str:
    """The plan in words, one line a fact, as ``--dry-run`` prints it."""
    count = _counted
    lines = [
        f"batch        {count(plan.batch_prompts, 'prompt')} x {plan.group_size} = "
        f"{count(plan.batch_sequences, 'sequence')} a step",
        f"mini-batch   {count(plan.mini_batch_prompts, 'prompt')} x {plan.group_size} = "
        f"{count(plan.mini_batch_sequences, 'sequence')} an optimizer step",
        f"micro-batch  {count(plan.micro_batch_size, 'sequence')} on each of "
        f"{count(plan.dp_size, 'rank')}: {plan.mini_batch_sequences:,} = {plan.micro_batch_size} x "
        f"{plan.dp_size} x {count(plan.accumulation_steps, 'accumulation step')}",
        f"updates      {plan.ppo_epochs} x {plan.batch_prompts} / {plan.mini_batch_prompts} = "
        f"{count(plan.updates_per_step, 'optimizer step')} a batch",
    ]
    if plan.num_prompts is not None:
        lines.append(
            f"epoch        {count(plan.num_prompts, 'prompt')} = "
            f"{count(plan.steps_per_epoch or 0, 'step')}, "
            f"{count(plan.num_left_out or 0, 'prompt')} left out (they fill no batch)"
        )
    if plan.total_steps is None:
        lines.append("run          steps unknown until the training prompts are counted")
    else:
        lines.append(
            f"run          {count(plan.total_steps, 'step')}, "
            f"{count(plan.num_updates or 0, 'optimizer step')}"
        )
    if plan.updates_per_step == 1:
        lines.append("note         one optimizer step a batch: pg_clipfrac and ppo_kl are always 0")
    if plan.group_size == 1:
        lines.append("note         groups of 1 have no advantage under grpo: nothing is learned")
    return "\n".join(lines)


def _count_steps(config: TrainConfig, num_prompts: int | None) -> tuple[int | None, int | None]:
    """(steps an epoch, steps of the run). The last, partial batch of an epoch is left out."""
    wanted, batch = config.trainer.total_training_steps, config.data.train_batch_size
    if num_prompts is None:
        return None, wanted
    if num_prompts < batch and not config.trainer.val_only:
        raise ConfigError(
            f"--data.train_batch_size {batch} is more than the {num_prompts} training prompts; "
            f"take {num_prompts} or fewer"
        )
    steps_per_epoch = num_prompts // batch
    return steps_per_epoch, (
        steps_per_epoch * config.trainer.total_epochs if wanted is None else wanted
    )


def _divisors(number: int) -> list[int]:
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def _nearest_divisor(wanted: int, number: int) -> int:
    return min(_divisors(number), key=lambda divisor: (abs(divisor - wanted), divisor))


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
