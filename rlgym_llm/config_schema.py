"""The schema of a training run: one frozen model a section, one leaf a key that has an effect.

Names are verl's, defaults are ours: they suit a small model on the machine at hand. Numbers are
strict (``true`` is no number, ``8.0`` is no integer); booleans take ``true``/``false``,
``yes``/``no``, ``on``/``off`` and ``1``/``0`` in any case. Lone values are checked here, beside
their field; what batch sizes must divide is checked in `rlgym_llm.batch_arithmetic`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from rlgym_llm.aliases import without_value_alias
from rlgym_llm.config_algorithm import (
    AlgorithmConfig,
    KlCtrlConfig,
    KlKind,
    RolloutCorrectionConfig,
)
from rlgym_llm.config_base import (
    Count,
    Every,
    Natural,
    NonNegative,
    Positive,
    Section,
    Seed,
)
from rlgym_llm.config_checkpoint import CheckpointKeys
from rlgym_llm.config_critic import CriticConfig
from rlgym_llm.config_fsdp import FsdpConfig, LoraKeys
from rlgym_llm.config_health import HealthConfig
from rlgym_llm.config_rollout import RolloutConfig
from rlgym_llm.config_update import LossAggMode, OptimConfig
from rlgym_llm.reward_config import RewardsConfig
from rlgym_llm.secrets_mask import mask_secrets

__all__ = [
    "ActorConfig",
    "AlgorithmConfig",
    "CriticConfig",
    "CurriculumConfig",
    "DataConfig",
    "EnvConfig",
    "KlCtrlConfig",
    "ModelConfig",
    "OptimConfig",
    "RefConfig",
    "RolloutCorrectionConfig",
    "TrainConfig",
    "TrainerConfig",
]

Logger = Literal["console", "jsonl", "tensorboard", "wandb"]


class EnvConfig(Section):
    """What the policy is trained on."""

    id: str = "math-gsm8k"
    """Environment, by its short name or its Gymnasium id."""
    kwargs: Mapping[str, Any] = Field(default_factory=dict)
    """Further arguments of the environment, such as `--env.kwargs.few_shot 4`."""


class ModelConfig(LoraKeys):
    """The policy that is trained."""

    path: str | None = None
    """Hugging Face folder or hub id; null, or `starter`, is the model that ships with the
    package."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Type of the weights; auto is float32. In bfloat16 small updates round to nothing."""
    trust_remote_code: bool = False
    """Runs Python code that comes with the model; only for models you trust."""
    enable_gradient_checkpointing: bool = False
    """Recomputes activations in the backward pass: less memory, more time."""
    use_torch_compile: bool = False
    """Compiles the layers of the model that learns; worth its minutes on GPUs and long runs."""

    @field_validator("path")
    @classmethod
    def _starter_is_none(cls, path: str | None) -> str | None:
        return None if path == "starter" else path


class CurriculumConfig(Section):
    """Which kinds of task are drawn more often: levels, members of a mixture."""

    type: Literal["auto", "none", "success"] = "auto"
    """success prefers the kinds (`level` of a task, environment of a mixture) at which the policy
    succeeds about as often as `target`; auto is what the environment says, mostly none."""
    target: Annotated[float, Field(strict=True, ge=0, le=1)] = 0.5
    """The success rate that there is most to learn at."""
    width: Positive = 0.2
    """How far from the target a kind still counts; at this distance it counts e times less."""
    window: Count = 64
    """So many of the last tasks of a kind make its success rate."""
    floor: Positive = 0.05
    """What is left of the share of a kind that is solved or hopeless."""

    @model_validator(mode="after")
    def _check_effect(self) -> Self:
        if self.type != "success":
            for name in ("target", "width", "window", "floor"):
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"{name} has no effect without type success")
        return self


class DataConfig(Section):
    """Tasks, and how many of them make a batch."""

    train: str | None = None
    """File of training tasks; null leaves the choice to the environment."""
    val: str | None = None
    """File of validation tasks; null leaves the choice to the environment."""
    train_batch_size: Count = 32
    """Prompts a step; each is sampled `rollout.n` times."""
    val_max_samples: Count | None = 200
    """Validation tasks that are used, the first ones; null is all."""
    max_prompt_length: Count = 512
    """Longest prompt, in tokens."""
    max_response_length: Count = 256
    """Longest response, in tokens: all that is sampled in an episode, whatever its turns."""
    shuffle: bool = True
    """Draws the tasks of each epoch in an order of its own."""
    seed: Seed | None = None
    """Seed of that order; null is `trainer.seed`."""
    filter_overlong_prompts: bool = True
    """Leaves out tasks whose prompt is too long (the number is shown); false makes them errors."""
    truncation: Literal["error"] = "error"
    """What is done to a prompt that is too long: prompts are never cut."""
    curriculum: CurriculumConfig = CurriculumConfig()


class ActorConfig(Section):
    """The update of the policy."""

    optim: OptimConfig = OptimConfig()
    ppo_mini_batch_size: Count | None = None
    """Prompts an optimizer step, over all ranks; null is `data.train_batch_size`."""
    ppo_micro_batch_size_per_gpu: Count | None = None
    """Sequences in one forward and backward pass on one rank; null is the largest divisor up to 32.
    It bounds the memory and never changes the result."""
    use_dynamic_bsz: bool = False
    """Bounds a pass by its tokens, `ppo_max_token_len_per_gpu`, and no longer by its sequences."""
    ppo_max_token_len_per_gpu: Count = 16_384
    """Tokens in one forward and backward pass on one rank, with `use_dynamic_bsz` only."""
    ppo_epochs: Count = 1
    """Passes over each batch."""
    shuffle: bool = False
    """Draws the prompts of each mini-batch anew in each pass."""
    clip_ratio: NonNegative | None = None
    """The ratio of new to old probability is clipped to 1 - this ... 1 + this; null is as published
    with the policy loss: ppo_clip 0.2, gspo 3e-4 and 4e-4, gmpo 0.4 (of the log-ratio)."""
    clip_ratio_low: NonNegative | None = None
    """Lower clip alone; null is `actor.clip_ratio`."""
    clip_ratio_high: NonNegative | None = None
    """Upper clip alone; null is `actor.clip_ratio`."""
    clip_ratio_c: Annotated[float, Field(strict=True, gt=1, allow_inf_nan=False)] | None = None
    """Dual clip: bound of the ratio where the advantage is negative; null is the loss's own,
    ppo_clip 3."""
    policy_loss: str = "ppo_clip"
    """Policy loss, by its registered name; `rlgym plugins` lists them."""
    policy_loss_kwargs: Mapping[str, Any] = Field(default_factory=dict)
    """Further options of the policy loss, such as `--actor.policy_loss_kwargs.tau_neg 1.1`."""
    loss_agg_mode: LossAggMode = "token-mean"
    """How the losses of tokens become one number."""
    entropy_coeff: Annotated[float, Field(strict=True, allow_inf_nan=False)] = 0.0
    """Weight of the entropy bonus."""
    use_kl_loss: bool = False
    """Adds the KL to the reference policy to the loss."""
    kl_loss_coef: NonNegative = 0.001
    """Weight of that KL term."""
    kl_loss_type: KlKind = "low_var_kl"
    """Estimator of that KL: kl = k1, mse = k2, low_var_kl = k3 clamped at 10; with + the value of
    k3 and the gradient of k2, which is that of the KL."""
    kl_loss_unbiased: bool = False
    """Multiplies that KL of a token by its ratio of new to old probability (arXiv 2512.02556, TRL's
    use_bias_correction_kl): k1 and k3 are then unbiased in the later mini-batches of a step too,
    and their gradient is that of the KL."""
    grad_clip: Positive = 1.0
    """Largest norm of the gradient."""
    max_skipped_steps: Natural = 10
    """Updates in a row that may be skipped, since loss or gradient is not finite, before the run
    ends."""
    fsdp_config: FsdpConfig = FsdpConfig()

    @model_validator(mode="after")
    def _check_batch_bound(self) -> Self:
        if self.use_dynamic_bsz and self.ppo_micro_batch_size_per_gpu is not None:
            raise ValueError("ppo_micro_batch_size_per_gpu has no effect with use_dynamic_bsz")
        default = type(self).model_fields["ppo_max_token_len_per_gpu"].default
        if not self.use_dynamic_bsz and self.ppo_max_token_len_per_gpu != default:
            raise ValueError("ppo_max_token_len_per_gpu has no effect without use_dynamic_bsz")
        return self

    @model_validator(mode="after")
    def _check_kl_loss(self) -> Self:
        if self.kl_loss_unbiased and not self.use_kl_loss:
            raise ValueError("kl_loss_unbiased has no effect without use_kl_loss")
        return self

    @field_validator("policy_loss")
    @classmethod
    def _our_name(cls, name: str) -> str:
        return without_value_alias("actor.policy_loss", name)

    @property
    def clip_low(self) -> float | None:
        """The lower clip that is given, ``clip_ratio_low`` or ``clip_ratio``, None the loss's."""
        return self.clip_ratio if self.clip_ratio_low is None else self.clip_ratio_low

    @property
    def clip_high(self) -> float | None:
        """The upper clip that is given, ``clip_ratio_high`` or ``clip_ratio``, None the loss's."""
        return self.clip_ratio if self.clip_ratio_high is None else self.clip_ratio_high


class RefConfig(Section):
    """The reference policy: the model as it was before training."""

    log_prob_micro_batch_size_per_gpu: Count | None = None
    """Sequences in one forward pass on one rank; null is as many as the actor takes."""
    log_prob_use_dynamic_bsz: bool | None = None
    """Bounds a pass by its tokens; null is as the actor does."""
    log_prob_max_token_len_per_gpu: Count | None = None
    """Tokens in one forward pass on one rank; null is as many as the actor takes."""


class TrainerConfig(CheckpointKeys):
    """The run: how long, where, and what is shown."""

    total_epochs: Count = 1
    """Passes over the training tasks."""
    total_training_steps: Natural | None = None
    """Steps to train for, whatever `total_epochs` says; null is what the epochs hold."""
    critic_warmup: Natural = 0
    """First steps, in which the critic alone learns; the policy stays as it is."""
    project_name: str = "rlgym"
    """Project under which loggers file the run."""
    experiment_name: str | None = None
    """Name of the run, in loggers and in its folder; null leaves it to them."""
    output: str | None = None
    """Folder of the run, new, empty or, to go on, its own; null makes one under `runs/`."""
    logger: tuple[Logger, ...] = ("console",)
    """Loggers; console shows the steps, `metrics.jsonl` in the run's folder is always written."""
    log_val_generations: Natural = 0
    """Validation samples shown each time."""
    rollout_data_dir: str | None = None
    """Folder for all training rollouts, one JSONL file a step."""
    validation_data_dir: str | None = None
    """Folder for all validation rollouts, one JSONL file a validation."""
    val_before_train: bool = True
    """Validates before the first step."""
    val_only: bool = False
    """Validates and stops."""
    balance_batch: bool = True
    """Gives each rank about as many tokens; false as many sequences, in the order they come."""
    test_freq: Every = -1
    """Validates every so many steps and after the last one; -1 only after the last one."""
    device: str = "auto"
    """Where the model runs, such as cpu or cuda:0; auto is CUDA where there is one."""
    seed: Seed = 0
    """Seed of everything that is drawn."""
    num_threads: Annotated[int, Field(strict=True, ge=1, le=1024)] | None = None
    """Threads of one matrix product on a CPU; null leaves it to torch."""
    health: HealthConfig = HealthConfig()

    @model_validator(mode="after")
    def _check_test_freq(self) -> Self:
        if self.test_freq == 0:
            raise ValueError("test_freq must be -1 (never) or at least 1")
        return self


class TrainConfig(Section):
    """All of a training run, as plain data. The defaults train on the starter problems.

    Every dump masks what is named like a secret; pass the object itself where its values count.

    >>> TrainConfig().data.train_batch_size, TrainConfig().rollout.n
    (32, 8)
    """

    env: EnvConfig = EnvConfig()
    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    actor: ActorConfig = ActorConfig()
    critic: CriticConfig = CriticConfig()
    ref: RefConfig = RefConfig()
    rollout: RolloutConfig = RolloutConfig()
    rewards: RewardsConfig | None = None
    """Rewards and their weights; null leaves them to the environment. See also `--reward`."""
    trainer: TrainerConfig = TrainerConfig()
    plugins: tuple[str, ...] = ()
    """Python files with plugins of your own, beside the installed ones."""

    @model_serializer(mode="wrap")
    def _without_secrets(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        dumped: dict[str, Any] = mask_secrets(handler(self))
        return dumped

    def __repr__(self) -> str:
        return f"TrainConfig({self.model_dump()!r})"

    __str__ = __repr__
