"""The core's own subcommands of ``rlgym``, brought in like those of any plugin."""

from __future__ import annotations

from rlgym_llm.hookspecs import hookimpl
from rlgym_llm.specs import CommandSpec, Kind, Spec

__all__ = ["BUILTIN_COMMANDS", "rlgym_register"]

BUILTIN_COMMANDS: tuple[CommandSpec, ...] = (
    CommandSpec(
        name="env",
        entry_point="rlgym_llm.commands.env:main",
        description="list the environments, or show one",
    ),
    CommandSpec(
        name="plugins",
        entry_point="rlgym_llm.commands.plugins:main",
        description="who brought what, and what is broken",
    ),
    CommandSpec(
        name="reward",
        entry_point="rlgym_llm.commands.reward:main",
        description="list the rewards, or show one",
    ),
)
"""These answer even where a plugin brings a command of the same name."""


@hookimpl
def rlgym_register(kind: Kind) -> list[Spec]:
    """The commands."""
    return list(BUILTIN_COMMANDS) if kind is Kind.COMMAND else []
