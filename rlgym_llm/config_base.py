"""What every section of the configuration is made of: `Section`, and the kinds of number."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "Count",
    "Decay",
    "Every",
    "Mass",
    "Natural",
    "NonNegative",
    "Positive",
    "Section",
    "Seed",
    "Share",
    "TopK",
]

Count = Annotated[int, Field(strict=True, ge=1, le=10**7)]
Natural = Annotated[int, Field(strict=True, ge=0)]
Seed = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
Every = Annotated[int, Field(strict=True, ge=-1)]
TopK = Annotated[int, Field(strict=True, ge=-1)]
NonNegative = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(strict=True, ge=0, le=1)]
Mass = Annotated[float, Field(strict=True, gt=0, le=1)]
Decay = Annotated[float, Field(strict=True, ge=0, lt=1)]


class Section(BaseModel):
    """A section of the configuration: frozen, and no key beside its own."""

    # Built at first use: `--help` reads the fields and never pays for the validators.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
