"""What the batch sizes amount to: steps, mini-batches, micro-batches, and what must divide what.

Counted as in verl: ``data.train_batch_size`` and ``actor.ppo_mini_batch_size`` count *prompts*
over all ranks, ``*_micro_batch_size_per_gpu`` counts *sequences* on one rank. The sizes of the
critic are counted like those of the actor.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlgym_llm.config_schema import ActorConfig, CriticConfig, TrainConfig
from rlgym_llm.errors import ConfigError

__all__ = ["LARGEST_DEFAULT_MICRO_BATCH", "BatchPlan", "CriticPlan", "describe", "plan_batches"]

LARGEST_DEFAULT_MICRO_BATCH = 32
"""Sequences in a micro-batch, at most, where none is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticPlan:
    """The arithmetic of the critic's updates, counted like the actor's."""

    mini_batch_prompts: int
    micro_batch_size: int
    accumulation_steps: int
    ppo_epochs: int
    updates_per_step: int
    max_tokens: int | None = None


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
    """Sequences in one forward and backward pass on one rank; all of its mini-batch where only
    ``max_tokens`` bounds them."""
    accumulation_steps: int
    """Micro-batches of one rank whose gradients are summed before an optimizer step; with
    ``max_tokens`` at least so many."""
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
    max_tokens: int | None = None
    """Tokens in one forward and backward pass on one rank; None where sequences are counted."""
    reference_max_tokens: int | None = None
    """Tokens in one forward pass of the reference policy, or None likewise."""
    critic: CriticPlan | None = None
    """None where no critic is trained."""
    critic_warmup: int = 0
    """First steps, in which the critic alone learns."""

    @property
    def num_updates(self) -> int | None:
        """Optimizer steps of the policy in the whole run, None where the steps are not known."""
        if self.total_steps is None:
            return None
        return max(self.total_steps - self.critic_warmup, 0) * self.updates_per_step

    @property
    def num_critic_updates(self) -> int | None:
        """Those of the critic, None where there is none or the steps are not known."""
        if self.total_steps is None or self.critic is None:
            return None
        return self.total_steps * self.critic.updates_per_step

    @property
    def num_left_out(self) -> int | None:
        """Prompts of each epoch that fill no whole batch and are left out of it."""
        return None if self.num_prompts is None else self.num_prompts % self.batch_prompts


def plan_batches(
    config: TrainConfig,
    *,
    dp_size: int = 1,
    num_prompts: int | None = None,
    has_critic: bool = False,
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
    max_tokens, reference_max_tokens = _check_max_tokens(config)
    mini, micro, per_rank = _split(
        "actor", config.actor, batch, group, dp_size, by_tokens=max_tokens is not None
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
        reference_batch_size=config.ref.log_prob_micro_batch_size_per_gpu
        or (per_rank if reference_max_tokens else micro),
        max_tokens=max_tokens,
        reference_max_tokens=reference_max_tokens,
        ppo_epochs=config.actor.ppo_epochs,
        updates_per_step=config.actor.ppo_epochs * (batch // mini),
        dp_size=dp_size,
        num_prompts=num_prompts,
        steps_per_epoch=steps_per_epoch,
        total_steps=total_steps,
        critic=_plan_critic(config, mini, dp_size) if has_critic else None,
        critic_warmup=config.trainer.critic_warmup if has_critic else 0,
    )
    _check_warmups(config, plan)
    return plan


def describe(plan: BatchPlan) -> str:
    """The plan in words, one line a fact, as ``--dry-run`` prints it."""
    count = _counted
    lines = [
        f"batch        {count(plan.batch_prompts, 'prompt')} x {plan.group_size} = "
        f"{count(plan.batch_sequences, 'sequence')} a step",
        f"mini-batch   {count(plan.mini_batch_prompts, 'prompt')} x {plan.group_size} = "
        f"{count(plan.mini_batch_sequences, 'sequence')} an optimizer step",
        _describe_micro_batch(plan),
        f"updates      {plan.ppo_epochs} x {plan.batch_prompts} / {plan.mini_batch_prompts} = "
        f"{count(plan.updates_per_step, 'optimizer step')} a batch",
    ]
    if critic := plan.critic:
        sequences = critic.mini_batch_prompts * plan.group_size
        lines.append(
            f"critic       {count(critic.micro_batch_size, 'sequence')} on each of "
            f"{count(plan.dp_size, 'rank')}: {sequences:,} = {critic.micro_batch_size} x "
            f"{plan.dp_size} x {count(critic.accumulation_steps, 'accumulation step')}; "
            f"{critic.ppo_epochs} x {plan.batch_prompts} / {critic.mini_batch_prompts} = "
            f"{count(critic.updates_per_step, 'optimizer step')} a batch"
        )
        if plan.critic_warmup:
            lines.append(f"warm-up      {count(plan.critic_warmup, 'step')} of the critic alone")
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
        lines.append(
            "note         one optimizer step a batch: it is made where the ratio is 1, so "
            "pg_clipfrac and ppo_kl say nothing"
        )
    return "\n".join(lines)


def _describe_micro_batch(plan: BatchPlan) -> str:
    ranks = _counted(plan.dp_size, "rank")
    if plan.max_tokens is not None:
        return (
            f"micro-batch  at most {_counted(plan.max_tokens, 'token')} on each of {ranks}, as "
            "many accumulation steps as that takes"
        )
    return (
        f"micro-batch  {_counted(plan.micro_batch_size, 'sequence')} on each of {ranks}: "
        f"{plan.mini_batch_sequences:,} = {plan.micro_batch_size} x {plan.dp_size} x "
        f"{_counted(plan.accumulation_steps, 'accumulation step')}"
    )


def _split(
    section: str,
    sizes: ActorConfig | CriticConfig,
    batch: int,
    group: int,
    dp_size: int,
    *,
    default_mini: int | None = None,
    by_tokens: bool = False,
) -> tuple[int, int, int]:
    """(prompts of a mini-batch, sequences of a micro-batch, sequences of a rank's mini-batch)."""
    mini = sizes.ppo_mini_batch_size or default_mini or batch
    if batch % mini:
        raise ConfigError(
            f"--{section}.ppo_mini_batch_size {mini} does not divide --data.train_batch_size "
            f"{batch}; the nearest that does is {_nearest_divisor(mini, batch)}"
        )
    if mini * group % dp_size:
        raise ConfigError(
            f"the {mini * group} sequences of a mini-batch (--{section}.ppo_mini_batch_size {mini} "
            f"times --rollout.n {group}) do not spread evenly over {dp_size} ranks"
        )
    per_rank = mini * group // dp_size
    micro = sizes.ppo_micro_batch_size_per_gpu
    if micro is None and by_tokens:
        micro = per_rank
    elif micro is None:
        micro = max(d for d in range(1, LARGEST_DEFAULT_MICRO_BATCH + 1) if per_rank % d == 0)
    elif per_rank % micro:
        raise ConfigError(
            f"--{section}.ppo_micro_batch_size_per_gpu {micro} does not divide the {per_rank} "
            f"sequences that a rank has in a mini-batch ({mini} prompts times --rollout.n {group} "
            f"over {dp_size} {'rank' if dp_size == 1 else 'ranks'}); "
            f"the nearest that does is {_nearest_divisor(micro, per_rank)}"
        )
    return mini, micro, per_rank


def _check_max_tokens(config: TrainConfig) -> tuple[int | None, int | None]:
    """The bounds of a pass in tokens, of the actor and of the reference policy; None is none.

    Raises ConfigError for one that the longest sequence does not fit, or that has no effect.
    """
    actor, ref = config.actor, config.ref
    by_tokens = ref.log_prob_use_dynamic_bsz
    if by_tokens and ref.log_prob_micro_batch_size_per_gpu is not None:
        raise ConfigError(
            "--ref.log_prob_micro_batch_size_per_gpu: has no effect with "
            "--ref.log_prob_use_dynamic_bsz"
        )
    if by_tokens is None:
        by_tokens = actor.use_dynamic_bsz and ref.log_prob_micro_batch_size_per_gpu is None
    if not by_tokens and ref.log_prob_max_token_len_per_gpu is not None:
        raise ConfigError(
            f"--ref.log_prob_max_token_len_per_gpu {ref.log_prob_max_token_len_per_gpu}: has no "
            "effect without --ref.log_prob_use_dynamic_bsz"
        )
    needed = config.data.max_prompt_length + config.data.max_response_length
    bounds = {
        "actor.ppo_max_token_len_per_gpu": actor.ppo_max_token_len_per_gpu
        if actor.use_dynamic_bsz
        else None,
        "ref.log_prob_max_token_len_per_gpu": (
            ref.log_prob_max_token_len_per_gpu or actor.ppo_max_token_len_per_gpu
        )
        if by_tokens
        else None,
    }
    for key, bound in bounds.items():
        if bound is not None and bound < needed:
            raise ConfigError(
                f"--{key} {bound}: one sequence may have {needed} tokens "
                f"(--data.max_prompt_length {config.data.max_prompt_length} and "
                f"--data.max_response_length {config.data.max_response_length}); take that or more"
            )
    found = list(bounds.values())
    return found[0], found[1]


def _plan_critic(config: TrainConfig, actor_mini: int, dp_size: int) -> CriticPlan:
    batch = config.data.train_batch_size
    mini, micro, per_rank = _split(
        "critic",
        config.critic,
        batch,
        config.rollout.n,
        dp_size,
        default_mini=actor_mini,
        by_tokens=config.actor.use_dynamic_bsz,
    )
    is_own = config.critic.ppo_micro_batch_size_per_gpu is not None
    epochs = config.critic.ppo_epochs or config.actor.ppo_epochs
    return CriticPlan(
        mini_batch_prompts=mini,
        micro_batch_size=micro,
        accumulation_steps=per_rank // micro,
        ppo_epochs=epochs,
        updates_per_step=epochs * (batch // mini),
        max_tokens=None
        if is_own or not config.actor.use_dynamic_bsz
        else config.actor.ppo_max_token_len_per_gpu,
    )


def _check_warmups(config: TrainConfig, plan: BatchPlan) -> None:
    """Raises ConfigError for a warm-up that is longer than what it opens."""
    if plan.critic_warmup and plan.total_steps and plan.critic_warmup >= plan.total_steps:
        raise ConfigError(
            f"--trainer.critic_warmup {plan.critic_warmup}: the run has {plan.total_steps} steps, "
            "so the policy would never learn"
        )
    for section, optim, num_updates in (
        ("actor", config.actor.optim, plan.num_updates),
        ("critic", config.critic.optim, plan.num_critic_updates),
    ):
        if num_updates and optim.lr_warmup_steps > num_updates:
            raise ConfigError(
                f"--{section}.optim.lr_warmup_steps {optim.lr_warmup_steps} is more than the run's "
                f"{num_updates} optimizer steps"
            )


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
