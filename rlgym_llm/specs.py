"""Specs: what a plugin brings, as plain data. Listing them imports nothing heavy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rlgym_llm.entry_point import load_entry_point

__all__ = [
    "AdvantageSpec",
    "CommandSpec",
    "EnvSpec",
    "GeneratorSpec",
    "Kind",
    "PolicyLossSpec",
    "RewardSpec",
    "RowSourceSpec",
    "Spec",
]

_ENTRY_POINT = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


class Kind(StrEnum):
    """What can be added through the one door."""

    ENV = "env"
    REWARD = "reward"
    COMMAND = "command"
    GENERATOR = "generator"
    ADVANTAGE = "advantage"
    POLICY_LOSS = "policy_loss"
    ROW_SOURCE = "row_source"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A name and where its code is; the code is imported by `load`, not before."""

    name: str
    entry_point: str
    """``"module:attr"``."""
    description: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a spec needs a name")
        if not _ENTRY_POINT.fullmatch(self.entry_point):
            raise ValueError(f"{self.name!r}: entry point {self.entry_point!r} is no 'module:attr'")

    def load(self) -> Any:
        """Imports and returns what ``entry_point`` names; import errors pass through."""
        return load_entry_point(self.entry_point)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvSpec(Spec):
    """An environment class, known as ``<name>`` and ``rlgym_llm/<name>-v<version>``."""

    version: int = 0
    """Bumped when the prompt, the parser or the default rewards change."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of the constructor, unless the caller gives others."""

    @property
    def id(self) -> str:
        """The id under which Gymnasium knows it."""
        return f"rlgym_llm/{self.name}-v{self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardSpec(Spec):
    """A reward: a `Reward` class, or a function made one by `@reward`."""

    is_verdict: bool = False
    """Whether its score says right or wrong, so that its mean is an accuracy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSpec(Spec):
    """A subcommand of ``rlgym``: ``main(argv: Sequence[str]) -> int``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorSpec(Spec):
    """A generator that ``--rollout.name`` can ask for; see ``training_generator.py``."""

    worker: str = ""
    """``module:attr`` of what a process of its own runs where ``rollout.num_workers`` is above 0;
    empty where it samples in the run's process only."""
    check: str = ""
    """``module:attr`` of what raises UserError where it cannot sample on this machine; it is called
    before a model is loaded."""
    trains: bool = True
    """Whether it knows the ids and log-probs of what it sampled, and takes new weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvantageSpec(Spec):
    """An advantage estimator that ``--algorithm.adv_estimator`` can ask for.

    ``estimate(inputs: AdvantageInputs, **options) -> Advantages``; its keyword options are filled
    in by name, from the keys of the section ``algorithm`` and from ``algorithm.adv_kwargs``.
    """

    needs_critic: bool = False
    """Whether it reads the values of a critic."""
    needs_baseline: bool = False
    """Whether it reads the reward of a greedy sibling."""
    needs_groups: bool = False
    """Whether it compares siblings: ``rollout.n`` is then at least 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLossSpec(Spec):
    """A policy loss that ``--actor.policy_loss`` can ask for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSourceSpec(Spec):
    """A source of rows that ``<name>:<address>`` asks for where a file is expected.

    ``open(address: str) -> Iterable[Mapping]``; the rows can be gone through more than once.
    """


SPEC_TYPES: Mapping[Kind, type[Spec]] = {
    Kind.ENV: EnvSpec,
    Kind.REWARD: RewardSpec,
    Kind.COMMAND: CommandSpec,
    Kind.GENERATOR: GeneratorSpec,
    Kind.ADVANTAGE: AdvantageSpec,
    Kind.POLICY_LOSS: PolicyLossSpec,
    Kind.ROW_SOURCE: RowSourceSpec,
}
"""The spec type that each kind's hook must return."""
