"""The typed face of everything that is installed: environments, rewards, commands, algorithms."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rlgym_llm.errors import PluginError, UnknownNameError
from rlgym_llm.plugin_loader import LoadedPlugin, load_plugins, spec_key
from rlgym_llm.plugin_sources import PluginRecord
from rlgym_llm.scores import ScoreCard
from rlgym_llm.specs import CommandSpec, EnvSpec, Kind, RewardSpec, Spec

__all__ = ["PluginRecord", "Plugins"]

_S = TypeVar("_S", bound=Spec)


class Plugins:
    """What the plugins bring, by kind and name. Make a fresh one per process and per test.

    Listing imports the plugins' own small modules and nothing that their specs point to. A broken
    plugin is recorded and skipped; a name that two plugins bring is in no table, and asking for it
    is an error that names both. A pickle holds the extra paths only: the plugins are found again
    where it is opened.

    >>> plugins = Plugins.discover()
    >>> plugins.rewards()["math"].entry_point
    'rlgym_llm_rewards.math:Math'
    """

    def __init__(
        self, loaded: Sequence[LoadedPlugin] = (), *, extra: Sequence[str | Path] = ()
    ) -> None:
        self._loaded = tuple(loaded)
        self._extra = tuple(Path(path).absolute() for path in extra)
        self._claims: dict[tuple[Kind, str], list[tuple[PluginRecord, Spec]]] = {}
        for plugin in self._loaded:
            for kind, spec in plugin.specs:
                claim = (plugin.record, spec)
                self._claims.setdefault((kind, spec_key(spec)), []).append(claim)
        self._observers = [
            plugin
            for plugin in self._loaded
            if plugin.record.reason is None and plugin.hooks.rlgym_scored.get_hookimpls()
        ]
        self._failed_observers: set[str] = set()
        self._tables: dict[Kind, dict[str, Spec]] = {}

    @classmethod
    def discover(cls, extra: Sequence[str | Path] = (), *, tolerant: bool = False) -> Plugins:
        """Loads the entry points of the group ``rlgym_llm`` one by one, then the ``extra`` files.

        A file's specs name its own things as ``f"{__name__}:attr"``. Raises UserError for a file
        that does not exist and, unless ``tolerant``, PluginError for a file that is broken: it was
        asked for by name.
        """
        plugins = cls(load_plugins(extra), extra=extra)
        for record in plugins.report():
            if not tolerant and record.distribution is None and record.reason is not None:
                raise PluginError(_why_broken(record, option=f" --plugin {record.name}"))
        return plugins

    @classmethod
    def installed(cls) -> Plugins:
        """What is installed, found once per process: for making environments, which is often.

        It is found again once ``sys.path`` has changed, or a folder on it (which is looked at once
        a second), so that what was installed in the meantime is seen. `discover` makes a fresh one.
        """
        global _installed
        paths, now = tuple(sys.path), time.monotonic()
        if _installed is not None and _installed.paths == paths and now < _installed.good_until:
            return _installed.plugins
        times = tuple(map(_time_of_change, paths))
        same = _installed is not None and (_installed.paths, _installed.times) == (paths, times)
        plugins = _installed.plugins if _installed is not None and same else cls.discover()
        _installed = _Installed(plugins=plugins, paths=paths, times=times, good_until=now + 1)
        return plugins

    def __reduce__(self) -> tuple[Callable[..., Plugins], tuple[tuple[Path, ...], ...]]:
        return (Plugins.discover, (self._extra,)) if self._extra else (Plugins.installed, ())

    def __deepcopy__(self, memo: dict[int, Any]) -> Plugins:
        return self  # nothing in it changes, and environments that carry it are copied often

    @property
    def extra(self) -> tuple[Path, ...]:
        """The files that it was given beside what is installed; other processes find them so."""
        return self._extra

    def specs(self, kind: Kind) -> list[Spec]:
        """Every usable spec of a kind, sorted by name, then (environments) by version."""
        found = [
            claims[0][1]
            for (of_kind, _), claims in self._claims.items()
            if of_kind is kind and len(claims) == 1 and claims[0][0].reason is None
        ]
        return sorted(found, key=lambda spec: (spec.name, getattr(spec, "version", 0)))

    def table(self, kind: Kind) -> dict[str, Spec]:
        """The usable specs of a kind by name, sorted; of an environment the newest version."""
        return dict(self._table(Kind(kind)))

    def envs(self) -> dict[str, EnvSpec]:
        """Environments by name, the newest version of each."""
        return self._typed(Kind.ENV, EnvSpec)

    def rewards(self) -> dict[str, RewardSpec]:
        """Rewards by name."""
        return self._typed(Kind.REWARD, RewardSpec)

    def commands(self) -> dict[str, CommandSpec]:
        """Subcommands of ``rlgym`` by name, the core's own among them."""
        return self._typed(Kind.COMMAND, CommandSpec)

    def get(self, kind: Kind, name: str) -> Spec:
        """The spec of that name; an environment's may carry its version, ``math-gsm8k-v0``.

        Raises UnknownNameError with the nearest name, and PluginError where the name is that of a
        broken plugin or where two plugins bring it.
        """
        kind = Kind(kind)
        table = self._table(kind)
        if name in table:
            return table[name]
        claims = [
            claim
            for (of_kind, key), found in self._claims.items()
            if of_kind is kind and (key == name or found[0][1].name == name)
            for claim in found
        ]
        usable = [(record, spec) for record, spec in claims if record.reason is None]
        if len(usable) == 1:
            return usable[0][1]
        if usable:
            raise PluginError(_clash(kind, name, [record for record, _ in usable]))
        if claims:
            raise PluginError(f"{_called(kind)} {name!r}: {_why_broken(claims[0][0])}")
        raise self._unknown(kind, name, table)

    def load(self, spec: Spec) -> Any:
        """Imports what a spec points to. Raises PluginError, naming the plugin, if that fails."""
        try:
            return spec.load()
        except (
            Exception,
            SystemExit,
        ) as failure:  # the boundary: whatever a plugin's module does on import
            kind, owner = self._owner(spec)
            who = f"{_called(kind)} {spec.name!r}" if kind else repr(spec.name)
            raise PluginError(
                f"{who} ({owner}) does not load from {spec.entry_point}: "
                f"{type(failure).__name__}: {failure}"
            ) from failure

    def owner(self, spec: Spec) -> str:
        """Who brings a spec, for people: ``plugin 'rewards' of rlgym-llm 0.1.0``."""
        return self._owner(spec)[1]

    def report(self) -> list[PluginRecord]:
        """One record per plugin, broken ones included, in the order of loading."""
        return [plugin.record for plugin in self._loaded]

    def clashes(self) -> list[str]:
        """One line for each name that two working plugins bring; none of them gets it."""
        lines = []
        for (kind, name), claims in sorted(self._claims.items()):
            usable = [record for record, _ in claims if record.reason is None]
            if len(usable) > 1:
                lines.append(_clash(kind, name, usable))
        return lines

    def scored(self, cards: Sequence[ScoreCard]) -> None:
        """Tells every observer, one at a time; one that raises does not stop the others.

        It is named in a RuntimeWarning, once.
        """
        failed: list[tuple[PluginRecord, BaseException]] = []
        for plugin in self._observers:
            try:
                plugin.hooks.rlgym_scored(cards=cards)
            except (Exception, SystemExit) as failure:  # the boundary around an observer
                failed.append((plugin.record, failure))
        for record, raised in failed:  # after all were told: a warning may be made an error
            if record.label not in self._failed_observers:
                self._failed_observers.add(record.label)
                warnings.warn(
                    f"{record.label}: rlgym_scored raised {type(raised).__name__}: {raised}",
                    RuntimeWarning,
                    stacklevel=2,
                )

    def _table(self, kind: Kind) -> dict[str, Spec]:
        if kind not in self._tables:
            self._tables[kind] = {spec.name: spec for spec in self.specs(kind)}
        return self._tables[kind]

    def _typed(self, kind: Kind, cls: type[_S]) -> dict[str, _S]:
        return {name: spec for name, spec in self.table(kind).items() if isinstance(spec, cls)}

    def _owner(self, spec: Spec) -> tuple[Kind | None, str]:
        for (kind, _), claims in self._claims.items():
            for record, claimed in claims:
                if claimed is spec:
                    return kind, record.label
        return None, "no plugin"

    def _unknown(self, kind: Kind, name: str, known: Sequence[str] | dict[str, Spec]) -> Exception:
        unknown = UnknownNameError(_called(kind), name, known)
        broken = [record for record in self.report() if record.reason is not None]
        if broken:
            reasons = "; ".join(f"{record.label}: {record.reason}" for record in broken)
            unknown.args = (
                f"{unknown}; it may be among what broken plugins bring ({reasons}); "
                "see `rlgym plugins`",
            )
        return unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class _Installed:
    """What was found, and by what it is known to be still so."""

    plugins: Plugins
    paths: tuple[str, ...]
    times: tuple[int, ...]
    good_until: float


_installed: _Installed | None = None


def _time_of_change(path: str) -> int:
    try:
        return os.stat(path or ".").st_mtime_ns
    except OSError:
        return 0


def _called(kind: Kind) -> str:
    return "environment" if kind is Kind.ENV else kind.value.replace("_", " ")


def _clash(kind: Kind, name: str, records: Sequence[PluginRecord]) -> str:
    owners = " and ".join(record.label for record in records)
    return f"{_called(kind)} {name!r} is brought by {owners}; rename it in one or uninstall one"


def _why_broken(record: PluginRecord, option: str = "") -> str:
    return f"{record.label} is broken: {record.reason}; see `rlgym plugins{option}`"
