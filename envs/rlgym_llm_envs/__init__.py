"""The built-in environments and data sets. Importing this names them and imports none."""

from __future__ import annotations

from rlgym_llm.hookspecs import hookimpl
from rlgym_llm.specs import EnvSpec, Kind, RowSourceSpec, Spec

__all__ = ["rlgym_register"]


@hookimpl
def rlgym_register(kind: Kind) -> list[Spec]:
    """The environments, which the core's table of built-ins names too, and the hub's rows."""
    if kind is Kind.ROW_SOURCE:
        return [
            RowSourceSpec(
                name="hf",
                entry_point="rlgym_llm_envs.hub_rows:hub_rows",
                description="A data set of the Hugging Face hub: hf:OWNER/NAME[:CONFIG[:SPLIT]].",
            ),
        ]
    if kind is not Kind.ENV:
        return []
    return [
        EnvSpec(
            name="math-gsm8k",
            entry_point="rlgym_llm_envs.math_gsm8k:MathGsm8kEnv",
            description="Grade-school maths word problems; the reply ends in '#### <number>'.",
        ),
    ]
