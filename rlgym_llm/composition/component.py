"""One component of the composed reward, as it is configured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    FiniteFloat,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from rlgym_llm.composition.combine import Combine
from rlgym_llm.composition.gate import Gate
from rlgym_llm.composition.schedule import compile_schedule
from rlgym_llm.composition.section import Section
from rlgym_llm.composition.transform import compile_transforms

__all__ = ["ComponentConfig", "Placement"]

_OF_REWARDS = ("options", "backend", "timeout_s", "memory_mb", "concurrency", "placement")

Placement = Literal["last_token", "turn", "step", "token", "potential"]
"""Where a contribution lands on the sampled tokens: see `rlgym_llm.composition.placement`."""


class ComponentConfig(Section):
    """One term of the sum: a reward (or a combination of components), its weight and its rules."""

    reward: str | None = None
    """Name of an installed reward; absent only under ``combine``."""
    weight: FiniteFloat = 1.0
    """Used as written, never normalised; 0 makes the component a metric."""
    options: Mapping[str, Any] = Field(default_factory=dict)
    """The reward's own options."""
    eval_weight: FiniteFloat | None = None
    """The weight in evaluation; None keeps ``weight``. It is not scheduled."""
    gate: tuple[Gate, ...] = ()
    """The contribution is 0, and a reward of scope ``sample`` is not called, unless all are open.
    One gate may stand without a list."""
    transform: tuple[Mapping[str, Any], ...] = ()
    """Applied to the raw score in order: ``[{scale: -0.01}, {clip: [-1, 0]}]``."""
    schedule: Mapping[str, Any] | None = None
    """Multiplies the weight by training step: ``{linear: [1.0, 0.0, 2000]}``."""
    when: Mapping[str, Any] = Field(default_factory=dict)
    """Columns that a row must have: ``{data_source: math}``; a list stands for any of its values.
    To other rows the component does not apply."""
    placement: Placement = "last_token"
    """Where the contribution lands on the sampled tokens."""
    gamma: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Discount per step of the placement ``potential``."""
    backend: Literal["inline", "thread", "process", "async"] | None = None
    """Where the reward runs; None is what it declares."""
    timeout_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Seconds that one call may take; None is what the reward declares."""
    memory_mb: Annotated[int, Field(ge=1)] | None = None
    """Bound on a worker of the backend ``process``; None is what the reward declares."""
    concurrency: Annotated[int, Field(ge=1)] | None = None
    """Calls side by side, but under ``inline``; None is what the reward declares."""
    combine: Combine | None = None
    """Makes the raw score out of other components: ``{product: [correct, format]}``."""

    @field_validator("weight", "eval_weight", mode="before")
    @classmethod
    def _check_weight(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError(f"Input should be a number, not {str(value).lower()}")
        return value

    @field_validator("when")
    @classmethod
    def _check_when(cls, value: Mapping[str, Any]) -> Any:
        for column, wanted in value.items():
            if isinstance(wanted, list | tuple | Mapping) and not wanted:
                raise ValueError(f"column {column!r} may have none of no values: it never applies")
        return value

    @field_validator("gate", "transform", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, Mapping | Gate) else value

    @field_validator("transform")
    @classmethod
    def _check_transform(cls, value: tuple[Mapping[str, Any], ...]) -> Any:
        compile_transforms(value)
        return value

    @field_validator("schedule")
    @classmethod
    def _check_schedule(cls, value: Mapping[str, Any] | None) -> Any:
        if value is not None:
            compile_schedule(value)
        return value

    @model_validator(mode="after")
    def _check_what_scores(self) -> Self:
        if (self.reward is None) == (self.combine is None):
            raise ValueError("a component has either a reward or a combine")
        if self.combine is not None:
            for key in _OF_REWARDS:
                if key in self.model_fields_set:
                    raise ValueError(f"{key} is of a reward, and a combine is none")
        if self.placement == "potential" and self.transform:
            raise ValueError("placement potential takes no transform: potentials are differences")
        if self.gamma != 1.0 and self.placement != "potential":
            raise ValueError("gamma is of the placement potential only")
        return self

    @model_serializer(mode="wrap")
    def _leave_out_defaults(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A component is written as people would: reward, weight, options, and the unusual."""
        fields = type(self).model_fields
        return {
            key: value
            for key, value in dump(self).items()
            if key == "weight"
            or (key in ("reward", "options") and self.reward is not None)
            or getattr(self, key) != fields[key].get_default(call_default_factory=True)
        }

    def weight_in(self, *, evaluation: bool, step: int | None = None) -> float:
        """The weight that counts in training at ``step`` (None is step 0) or in evaluation.

        Schedules are of training: evaluations of different steps stay comparable.
        """
        if evaluation:
            return self.weight if self.eval_weight is None else self.eval_weight
        if self.schedule is None:
            return self.weight
        return self.weight * compile_schedule(self.schedule)(step or 0)

    @property
    def depends_on(self) -> tuple[str, ...]:
        """Components that its gates and its combination read."""
        gates = tuple(gate.on for gate in self.gate)
        return gates if self.combine is None else (*gates, *self.combine.operands)
