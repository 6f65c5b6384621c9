"""What the sections of the reward configuration have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from rlgym_llm.errors import did_you_mean

__all__ = ["Section"]


class Section(BaseModel):
    """A frozen section that refuses unknown keys and names the nearest known one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _name_the_nearest_key(cls, data: Any) -> Any:
        for key in data if isinstance(data, Mapping) else ():
            if key not in cls.model_fields:
                hint = did_you_mean(str(key), cls.model_fields)
                if isinstance(key, bool):
                    hint = "; a plain YAML reader takes on, off, yes and no for it: quote them"
                raise ValueError(f"unknown key {key!r}{hint} (keys: {', '.join(cls.model_fields)})")
        return data
