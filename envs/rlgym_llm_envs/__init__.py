"""The built-in environments. Importing this names them and imports none."""

from __future__ import annotations

from rlgym_llm.hookspecs import hookimpl
from rlgym_llm.specs import EnvSpec, Kind, Spec

__all__ = ["rlgym_register"]


@hookimpl
def rlgym_register(kind: Kind) -> list[Spec]:
    """The environments; the core's table of built-ins names the same (a test compares)."""
    if kind is not Kind.ENV:
        return []
    return [
        EnvSpec(
            name="math-gsm8k",
            entry_point="rlgym_llm_envs.math_gsm8k:MathGsm8kEnv",
            description="Grade-school maths word problems; the reply ends in '#### <number>'.",
        ),
    ]
