"""The schema of the section ``critic``: the model that says what a state is worth."""

from __future__ import annotations

from rlgym_llm.config_base import Count, Natural, Positive, Section
from rlgym_llm.config_update import LossAggMode, Lr, OptimConfig

__all__ = ["CriticConfig", "CriticModelConfig", "CriticOptimConfig"]


class CriticModelConfig(Section):
    """The model beneath the value head."""

    path: str | None = None
    """Hugging Face folder or hub id, with the tokenizer of the policy; null is the model that the
    policy begins as, `starter` the one that ships with the package. A critic that a run has saved
    brings its value head along."""


class CriticOptimConfig(OptimConfig):
    """AdamW and the learning rate of the critic."""

    lr: Lr = 1e-5
    """Highest learning rate of the critic."""


class CriticConfig(Section):
    """The critic, for the estimators that need one (gae), and its update."""

    model: CriticModelConfig = CriticModelConfig()
    optim: CriticOptimConfig = CriticOptimConfig()
    ppo_mini_batch_size: Count | None = None
    """Prompts an optimizer step, over all ranks; null is as many as the actor takes."""
    ppo_micro_batch_size_per_gpu: Count | None = None
    """Sequences in one forward and backward pass on one rank; null is the largest divisor up to 32.
    It bounds the memory and never changes the result."""
    ppo_epochs: Count | None = None
    """Passes over each batch; null is as many as the actor makes."""
    cliprange_value: Positive | None = 0.5
    """A value may move so far from what it was before the update; null does not bound it."""
    bootstrap_truncated: bool = True
    """Adds the value of the state where a budget cut an episode short to its rewards: the budget
    is then no part of the task. Only under `rewards.on_truncated: keep`; what other rules make of a
    truncation is final."""
    loss_agg_mode: LossAggMode | None = None
    """How the losses of tokens become one number; null is as in the actor."""
    grad_clip: Positive = 1.0
    """Largest norm of the gradient."""
    max_skipped_steps: Natural = 10
    """Updates in a row that may be skipped, their loss or gradient not finite; one more ends the
    run."""
