"""The schema of the section ``algorithm``: from rewards to advantages, and to samples' weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from rlgym_llm.aliases import without_value_alias
from rlgym_llm.config_base import Count, NonNegative, Positive, Section, Share
from rlgym_llm.config_samples import FilterGroupsConfig, PfPpoConfig

__all__ = ["AlgorithmConfig", "KlCtrlConfig", "KlKind", "RolloutCorrectionConfig"]

KlKind = Literal["kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3", "k3+", "low_var_kl+"]


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
    """Advantage estimator, by its registered name; `rlgym plugins` lists them."""
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
