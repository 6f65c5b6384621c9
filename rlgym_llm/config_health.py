"""The schema of the section ``trainer.health``: what is watched for while a run trains."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rlgym_llm.config_base import Natural, Section

__all__ = ["HealthConfig", "HealthRule"]

HealthRule = Literal[
    "reward_drop",
    "reward_spread",
    "noise_rewards",
    "zero_variance_groups",
    "component_scale",
    "truncation",
    "dropped_rows",
    "mask_sanity",
    "logprob_mismatch",
    "stale_samples",
    "clip_fraction",
    "policy_still",
    "kl_spike",
    "kl_flat",
    "dead_gradient",
    "skipped_steps",
    "loss_swings",
    "explained_variance",
    "value_loss",
    "value_drift",
]
Share = Annotated[float, Field(strict=True, ge=0, le=1)]


class HealthConfig(Section):
    """Rules that watch the metrics of a run and say what looks wrong."""

    mode: Literal["warn", "stop", "off"] = "warn"
    """warn says it; stop also ends the run, model saved, at what makes the learning wrong; off
    looks at nothing."""
    stop_on: tuple[HealthRule, ...] = ()
    """Rules that end the run, model saved, whatever they find."""
    ignore: tuple[HealthRule, ...] = ()
    """Rules that are left out."""
    window: Annotated[int, Field(strict=True, ge=2, le=1000)] = 8
    """Steps that make a judgement: one noisy step is no finding."""
    quiet_steps: Natural = 20
    """Steps for which a rule that has spoken keeps quiet; its metric is logged all the same."""
    max_zero_variance: Share = 0.5
    """Largest share of groups without any difference in reward that passes."""
    max_truncated: Share = 0.25
    """Largest share of cut responses that passes."""

    @model_validator(mode="after")
    def _check_effect(self) -> Self:
        if self.mode == "off":
            given = {"stop_on": self.stop_on, "ignore": self.ignore}
            for name in (name for name, rules in given.items() if rules):
                raise ValueError(f"{name} has no effect with mode off")
        if both := [rule for rule in self.stop_on if rule in self.ignore]:
            raise ValueError(f"{both[0]} stands in stop_on and in ignore; leave out one")
        return self
