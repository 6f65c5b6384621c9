"""Where plugins come from: the core, the entry points that are installed, and single files."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from rlgym_llm.errors import UserError
from rlgym_llm.file_module import import_file
from rlgym_llm.hookspecs import PROJECT_NAME
from rlgym_llm.specs import Kind

__all__ = ["PluginRecord", "PluginSource", "own_version", "plugin_sources"]

_OWN_DISTRIBUTION = "rlgym-llm"
_CORE = "rlgym_llm.builtin_commands"
_GROUP = re.compile(rf"^\s*\[\s*{PROJECT_NAME}\s*\]", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginRecord:
    """Who a plugin is, what it brings, and why it is broken where it is."""

    name: str
    """Name of the entry point, or the path of a file given by ``--plugin``."""
    distribution: str | None = None
    """None for a file."""
    version: str | None = None
    """Version of the distribution; None for a file."""
    entry_point: str
    """The module that was loaded, or the file's path."""
    brings: Mapping[Kind, tuple[str, ...]] = field(default_factory=dict)
    """Names by kind; of a broken plugin those that it would bring, as far as it got."""
    reason: str | None = None
    """Why it is broken, in one line; None for a plugin that works."""
    error: str | None = None
    """The whole traceback, or ``reason`` where a traceback would add nothing."""

    @property
    def label(self) -> str:
        """What messages call it: ``plugin 'rewards' of rlgym-llm 0.1.0``, ``plugin mine.py``."""
        if self.distribution is None:
            return f"plugin {self.name}"
        return f"plugin {self.name!r} of {self.distribution} {self.version or ''}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSource:
    """A plugin that may be loaded: who it is, and how."""

    record: PluginRecord
    load: Callable[[], Any]


def plugin_sources(extra: Sequence[str | Path] = ()) -> list[PluginSource]:
    """The core, every entry point of the group, then the files; nothing is imported yet.

    The order is fixed: the own distribution first, then by distribution and entry-point name.
    Raises UserError for a file that does not exist.
    """
    core = PluginRecord(
        name="core", distribution=_OWN_DISTRIBUTION, version=own_version(), entry_point=_CORE
    )
    return [
        PluginSource(record=core, load=lambda: importlib.import_module(_CORE)),
        *sorted(_installed(), key=_order),
        *map(_file, {Path(path).resolve(): Path(path) for path in extra}.values()),
    ]


def own_version() -> str | None:
    """Version of the installed distribution; None in a source tree that is not installed."""
    try:
        return metadata.version(_OWN_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return None


def _order(source: PluginSource) -> tuple[bool, str, str]:
    record = source.record
    return record.distribution != _OWN_DISTRIBUTION, record.distribution or "", record.name


def _installed() -> Iterator[PluginSource]:
    """The entry points of the group. Other distributions' metadata cannot break ours."""
    seen = set()
    for distribution in metadata.distributions():
        try:
            text = distribution.read_text("entry_points.txt") or ""
        except (OSError, ValueError):
            continue
        if not _GROUP.search(text):
            continue
        where = str(getattr(distribution, "_path", "unknown"))
        name = version = None
        try:
            name, version = distribution.metadata["Name"], distribution.version
            points = list(distribution.entry_points.select(group=PROJECT_NAME))
        except Exception as failure:  # the boundary: a broken distribution is a broken plugin
            record = PluginRecord(name=name or where, distribution=name, entry_point=where)
            yield PluginSource(record=record, load=_raiser(failure))
            continue
        normal_name = re.sub(r"[-_.]+", "-", name).lower()
        if normal_name in seen:  # a second copy further down sys.path, which imports never reach
            continue
        seen.add(normal_name)
        for point in points:
            record = PluginRecord(
                name=point.name, distribution=name, version=version, entry_point=point.value
            )
            yield PluginSource(record=record, load=point.load)


def _raiser(failure: Exception) -> Callable[[], Any]:
    def load() -> Any:
        raise failure

    return load


def _file(path: Path) -> PluginSource:
    if not path.resolve().is_file():
        raise UserError(f"plugin file {path} does not exist")
    record = PluginRecord(name=str(path), entry_point=str(path))
    return PluginSource(record=record, load=lambda: import_file(path))
