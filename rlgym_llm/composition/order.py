"""In which order components are scored, given what each of them reads of the others."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from rlgym_llm.errors import ConfigError, did_you_mean

__all__ = ["check_dependencies", "readers_of", "scoring_levels"]


def check_dependencies(reads: Mapping[str, Sequence[str]]) -> None:
    """Raises ConfigError where a component reads one that is not there, or itself in a circle."""
    for name, needed in reads.items():
        for other in needed:
            if other not in reads:
                hint = did_you_mean(other, [known for known in reads if known != name])
                raise ConfigError(
                    f"component {name!r} reads component {other!r}, which is not there{hint} "
                    f"(components: {', '.join(reads)})"
                )
    try:
        TopologicalSorter(reads).prepare()
    except CycleError as circle:
        path = " -> ".join(reversed(circle.args[1]))
        raise ConfigError(f"components read each other in a circle: {path}") from None


def scoring_levels(reads: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Components level by level: each reads only those of levels before; order kept in a level.

    >>> scoring_levels({"judge": ["math"], "math": [], "format": []})
    [['math', 'format'], ['judge']]
    """
    depth: dict[str, int] = {}
    for name in TopologicalSorter(reads).static_order():
        depth[name] = 1 + max((depth[other] for other in reads[name]), default=-1)
    levels: list[list[str]] = [[] for _ in range(1 + max(depth.values(), default=-1))]
    for name in reads:
        levels[depth[name]].append(name)
    return levels


def readers_of(names: Collection[str], reads: Mapping[str, Sequence[str]]) -> set[str]:
    """Components that read one of ``names``, themselves or through others.

    >>> sorted(readers_of({"a"}, {"a": [], "b": ["a"], "c": ["b"], "d": []}))
    ['b', 'c']
    """
    found: set[str] = set()
    for level in scoring_levels(reads):
        for name in level:
            if any(other in names or other in found for other in reads[name]):
                found.add(name)
    return found
