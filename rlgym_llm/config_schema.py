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
from rlgym_llm.config_base import (
    Count,
    Every,
    Natural,
    NonNegative,
    Positive,
    Section,
    Seed,
    Share,
)
from rlgym_llm.config_checkpoint import CheckpointKeys
from rlgym_llm.config_critic import CriticConfig
from rlgym_llm.config_fsdp import FsdpConfig, LoraKeys
from rlgym_llm.config_health import HealthConfig
from rlgym_llm.config_rollout import RolloutConfig
from rlgym_llm.config_samples import FilterGroupsConfig, PfPpoConfig
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

KlKind = Literal["kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3", "k3+", "low_var_kl+"]
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


class KlCtrlConfig(Section):
    """The coefficient of the KL term inside the reward."""

    type: Literal["fixed", "adaptive"] = "fixed"
    """How the coefficient moves: not at all, or after each step towards a KL of `target_kl`."""
    kl_coef: NonNegative = 0.001
    """Coefficient of the KL term where `algorithm.use_kl_in_reward` is on; the first one where it
    is adaptive."""
    target_kl: Positive = 0.1
    """The KL that an adaptive coefficient aims at: nats a token, mean over sequences."""
    horizon: Count = 10_000
    """After so many sequences far above the target an adaptive coefficient is about 1.2 times as
    large."""

    @model_validator(mode="after")
    def _check_effect(self) -> Self:
        if self.type != "adaptive":
            for name in ("target_kl", "horizon"):
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"{name} has no effect without type adaptive")
        elif not self.kl_coef:
            raise ValueError("kl_coef 0 cannot adapt: the coefficient is multiplied")
        return self


class RolloutCorrectionConfig(Section):
    """What is done about samples of another policy than the one that learns."""

    rollout_is: Literal["auto", "token", "sequence"] | None = "auto"
    """Truncated importance sampling: the loss of a token counts min(ratio, threshold) times, with
    ratio = p_learner / p_generator before the update, of the token or of its whole sequence. auto
    is token where `rollout.max_staleness` is above 0, else null: none."""
    rollout_is_threshold: Positive = 2.0
    """Largest such weight."""
    rollout_is_batch_normalize: bool = False
    """Divides the weights by their mean over the batch."""
    rollout_rs: Literal["token", "sequence", "geometric"] | None = None
    """Masks what is too far off (MIS): tokens whose ratio, or sequences whose product or geometric
    mean of ratios, is out of bounds train nothing."""
    rollout_rs_threshold: Positive | None = None
    """Upper bound of that ratio; null is `rollout_is_threshold`."""
    rollout_rs_threshold_lower: Positive | None = None
    """Lower bound; null is 1 over the upper one."""
    bypass_mode: bool = False
    """Takes the generator's log-probs as the old ones, without another forward pass: the clipped
    ratio then spans both policies, so that no weight is applied on top."""

    @field_validator("rollout_rs", mode="before")
    @classmethod
    def _check_bounded_ratio(cls, level: Any) -> Any:
        if isinstance(level, str) and level.endswith(("_k1", "_k2", "_k3")):
            raise ValueError(
                f"{level} bounds p_generator / p_learner or a divergence; token, sequence and "
                "geometric bound p_learner / p_generator, so take one of them with "
                "rollout_rs_threshold 1 / lower and rollout_rs_threshold_lower 1 / upper"
            )
        return level


class AlgorithmConfig(Section):
    """From rewards to advantages."""

    adv_estimator: str = "grpo"
    """Advantage estimator, by its registered name."""
    adv_kwargs: Mapping[str, Any] = Field(default_factory=dict)
    """Further options of the estimator, such as `--algorithm.adv_kwargs.eps 1e-4`."""
    gamma: Share = 1.0
    """Discount per sampled token, for estimators over tokens."""
    lam: Share = 1.0
    """Lambda of generalised advantage estimation: 1 trusts rewards alone, 0 the critic."""
    norm_adv_by_std_in_grpo: bool = True
    """Divides a group's advantages by the standard deviation of its rewards."""
    use_kl_in_reward: bool = False
    """Takes `kl_coef` times the KL to the reference policy off the reward."""
    kl_penalty: KlKind = "kl"
    """Estimator of that KL: kl = k1, mse = k2, low_var_kl = k3 clamped at 10."""
    kl_ctrl: KlCtrlConfig = KlCtrlConfig()
    filter_groups: FilterGroupsConfig = FilterGroupsConfig()
    use_pf_ppo: bool = False
    """Draws the samples of a step again, with replacement, by what they scored: policy filtration.
    For estimators that do not compare siblings."""
    pf_ppo: PfPpoConfig = PfPpoConfig()
    rollout_correction: RolloutCorrectionConfig = RolloutCorrectionConfig()

    @field_validator("adv_estimator")
    @classmethod
    def _our_name(cls, name: str) -> str:
        return without_value_alias("algorithm.adv_estimator", name)

    @model_validator(mode="after")
    def _check_controller(self) -> Self:
        if self.kl_ctrl.type == "adaptive" and not self.use_kl_in_reward:
            raise ValueError("kl_ctrl.type adaptive has no effect without use_kl_in_reward")
        if self.pf_ppo != PfPpoConfig() and not self.use_pf_ppo:
            raise ValueError("pf_ppo has no effect without use_pf_ppo")
        return self


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
    clip_ratio: NonNegative = 0.2
    """The ratio of new to old probability is clipped to 1 - this ... 1 + this. gspo wants 3e-4,
    gmpo 0.4."""
    clip_ratio_low: NonNegative | None = None
    """Lower clip alone; null is `actor.clip_ratio`."""
    clip_ratio_high: NonNegative | None = None
    """Upper clip alone; null is `actor.clip_ratio`."""
    clip_ratio_c: Annotated[float, Field(strict=True, gt=1, allow_inf_nan=False)] = 3.0
    """Dual clip: bound of the ratio where the advantage is negative."""
    policy_loss: str = "ppo_clip"
    """Policy loss, by its registered name."""
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

    @field_validator("policy_loss")
    @classmethod
    def _our_name(cls, name: str) -> str:
        return without_value_alias("actor.policy_loss", name)

    @property
    def clip_low(self) -> float:
        """The lower clip that counts: ``clip_ratio_low`` where given, else ``clip_ratio``."""
        return self.clip_ratio if self.clip_ratio_low is None else self.clip_ratio_low

    @property
    def clip_high(self) -> float:
        """The upper clip that counts: ``clip_ratio_high`` where given, else ``clip_ratio``."""
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
