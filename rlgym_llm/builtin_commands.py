"""The core's own subcommands of ``rlgym``, brought in like those of any plugin."""

from __future__ import annotations

from rlgym_llm.hookspecs import hookimpl
from rlgym_llm.specs import CommandSpec, Kind, Spec

__all__ = ["BUILTIN_COMMANDS", "rlgym_register"]

BUILTIN_COMMANDS: tuple[CommandSpec, ...] = (
    CommandSpec(
        name="data",
        entry_point="rlgym_llm.commands.data:main",
        description="convert rows between files and layouts",
    ),
    CommandSpec(
        name="env",
        entry_point="rlgym_llm.commands.env:main",
        description="list, show, try or start an environment",
    ),
    CommandSpec(
        name="plugins",
        entry_point="rlgym_llm.commands.plugins:main",
        description="who brought what, and what is broken",
    ),
    CommandSpec(
        name="report",
        entry_point="rlgym_llm.commands.report:main",
        description="write what scoring came to as one HTML file",
    ),
    CommandSpec(
        name="reward",
        entry_point="rlgym_llm.commands.reward:main",
        description="list the rewards, or show one",
    ),
    CommandSpec(
        name="score",
        entry_point="rlgym_llm.commands.score:main",
        description="score generations that exist",
    ),
    CommandSpec(
        name="view",
        entry_point="rlgym_llm.commands.view:main",
        description="browse scored rows and rollouts on a local page",
    ),
)
"""These answer even where a plugin brings a command of the same name."""


@hookimpl
def rlgym_register(kind: Kind) -> list[Spec]:
    """The commands."""
    return list(BUILTIN_COMMANDS) if kind is Kind.COMMAND else []
