"""The schema of what a step learns from: groups that carry signal, and samples drawn again."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import field_validator, model_validator

from rlgym_llm.aliases import without_value_alias
from rlgym_llm.config_base import Natural, NonNegative, Section

__all__ = ["FilterGroupsConfig", "PfPpoConfig"]


class FilterGroupsConfig(Section):
    """Dynamic sampling (DAPO): groups whose rewards are all equal are replaced."""

    enable: bool = False
    """Samples further prompts until every prompt of the batch has responses that can be told apart;
    the others train nothing."""
    metric: str = "reward"
    """What tells them apart: the composed `reward`, `acc` for what says right or wrong, or a reward
    by its name."""
    max_num_gen_batches: Natural = 10
    """Rounds of at most `data.train_batch_size` prompts a step may sample, the first included; then
    the run ends, its model saved. 0 is no bound."""

    @field_validator("metric")
    @classmethod
    def _our_name(cls, name: str) -> str:
        return without_value_alias("algorithm.filter_groups.metric", name)

    @model_validator(mode="after")
    def _check_effect(self) -> Self:
        if not self.enable:
            for name in ("metric", "max_num_gen_batches"):
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"{name} has no effect without enable true")
        return self


class PfPpoConfig(Section):
    """Policy filtration (PF-PPO): samples are drawn again by what they scored."""

    reweight_method: Literal["pow", "max_min", "max_random"] = "pow"
    """Chance of a sample: pow is |score|^weight_pow, max_min is the best and the worst alone,
    max_random is the best four times as often as the others."""
    weight_pow: NonNegative = 2.0
    """Power of the score under pow."""

    @model_validator(mode="after")
    def _check_effect(self) -> Self:
        if self.reweight_method != "pow" and self.weight_pow != 2.0:
            raise ValueError(f"weight_pow has no effect on reweight_method {self.reweight_method}")
        return self
