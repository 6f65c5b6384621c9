"""Loads plugins one at a time, each inside its own boundary, and says plainly what is wrong."""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pluggy

from rlgym_llm import hookspecs
from rlgym_llm.errors import PluginError, did_you_mean, one_line
from rlgym_llm.hookspecs import PROJECT_NAME
from rlgym_llm.plugin_sources import PluginRecord, PluginSource, plugin_sources
from rlgym_llm.specs import SPEC_TYPES, EnvSpec, Kind, Spec

__all__ = ["HOOK_NAMES", "LoadedPlugin", "load_plugins", "spec_key"]

_IMPL, _SPEC = f"{PROJECT_NAME}_impl", f"{PROJECT_NAME}_spec"  # pluggy's marks on functions
_ENV_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_VERSIONED = re.compile(r".*-v\d+")

HOOK_NAMES = tuple(sorted(name for name, f in vars(hookspecs).items() if hasattr(f, _SPEC)))
"""The hooks that a plugin may implement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedPlugin:
    """A plugin's record, its specs, and its hooks behind a pluggy manager of its own."""

    record: PluginRecord
    specs: tuple[tuple[Kind, Spec], ...] = ()
    hooks: Any = None
    """pluggy's ``HookRelay``; None where the plugin did not load."""


def load_plugins(extra: Sequence[str | Path] = ()) -> list[LoadedPlugin]:
    """Loads every source of `plugin_sources`, one by one; what fails is recorded.

    Raises UserError for a file that does not exist.
    """
    owners: dict[str, PluginRecord] = {}
    loaded = []
    for source in plugin_sources(extra):
        plugin = _load(source)
        owner = owners.setdefault(plugin.record.name, plugin.record)
        if owner is not plugin.record and plugin.record.reason is None:
            # pluggy itself would drop the second without a word.
            plugin = _broken(plugin, f"its entry point is named like {owner.label}; rename one")
        loaded.append(plugin)
    return loaded


def spec_key(spec: Spec) -> str:
    """What must be unique within a kind: the name, of environments with the version."""
    return f"{spec.name}-v{spec.version}" if isinstance(spec, EnvSpec) else spec.name


def _load(source: PluginSource) -> LoadedPlugin:
    """The one boundary that turns a plugin's failure into data."""
    plugin = LoadedPlugin(record=source.record)
    try:
        hooks = _hooks_of(source.load())
    except (Exception, SystemExit) as failure:
        return _broken(plugin, failure)
    specs: list[tuple[Kind, Spec]] = []
    failures: list[BaseException] = []
    for kind in Kind:
        try:
            specs.extend((kind, spec) for spec in _register(hooks, kind))
        except (Exception, SystemExit) as failure:
            failures.append(failure)
    brings = {kind: names for kind in Kind if (names := tuple(sorted(_keys(specs, kind))))}
    plugin = LoadedPlugin(
        record=replace(source.record, brings=brings), specs=tuple(specs), hooks=hooks
    )
    return _broken(plugin, failures[0]) if failures else plugin


def _keys(specs: Sequence[tuple[Kind, Spec]], kind: Kind) -> list[str]:
    return [spec_key(spec) for of_kind, spec in specs if of_kind is kind]


def _broken(plugin: LoadedPlugin, failure: BaseException | str) -> LoadedPlugin:
    if isinstance(failure, str | PluginError):
        reason = error = str(failure)
    else:
        message = (str(failure).strip().splitlines() or [""])[0]
        reason = f"{type(failure).__name__}: {message}".rstrip(": ")
        error = "".join(traceback.format_exception(failure)).rstrip()
    return replace(plugin, record=replace(plugin.record, reason=reason, error=error))


def _hooks_of(plugin: Any) -> Any:
    """The plugin's hooks, behind a manager of its own so that no plugin can disturb another."""
    if inspect.isclass(plugin):
        raise PluginError(
            f"the entry point names the class {plugin.__name__}; name a module or an instance"
        )
    _check_hook_names(plugin)
    manager = pluggy.PluginManager(PROJECT_NAME)
    manager.add_hookspecs(hookspecs)
    try:
        manager.register(plugin)
    except pluggy.PluginValidationError as wrong:
        raise PluginError(one_line(wrong)) from wrong
    return manager.hook


def _check_hook_names(plugin: Any) -> None:
    """Raises PluginError for what pluggy passes over: misspelt, unmarked and missing hooks."""
    num_hooks = 0
    for name in dir(plugin):
        member = inspect.getattr_static(plugin, name, None)
        function = getattr(member, "__func__", member)
        if not inspect.isfunction(function) or hasattr(function, _SPEC):
            continue
        options: Mapping[str, Any] | None = getattr(function, _IMPL, None)
        hook = (options or {}).get("specname") or name
        if hook in HOOK_NAMES:
            if options is None:
                raise PluginError(
                    f"the function {name} is named like a hook but is not marked: "
                    f"write @hookimpl above it (from rlgym_llm import hookimpl)"
                )
            num_hooks += 1
        elif options is not None and not options.get("optionalhook"):
            raise PluginError(f"there is no hook {hook!r}{_hint(hook)}")
        elif options is None and hook.startswith("rlgym_"):
            raise PluginError(
                f"the function {name} looks like a hook, but there is no such hook{_hint(hook)}"
            )
    if not num_hooks:
        raise PluginError(
            "it implements no hook: define rlgym_register(kind) and mark it "
            "@hookimpl (from rlgym_llm import hookimpl)"
        )


def _hint(hook: str) -> str:
    return did_you_mean(hook, HOOK_NAMES) + f" (hooks: {', '.join(HOOK_NAMES)})"


def _register(hooks: Any, kind: Kind) -> list[Spec]:
    """The specs of one kind, checked. Raises PluginError where the hook breaks its contract."""
    if not hooks.rlgym_register.get_hookimpls():
        return []  # an observer only
    wanted = SPEC_TYPES[kind]
    call, results = f"rlgym_register({kind.value!r})", hooks.rlgym_register(kind=kind)
    if not results:  # pluggy drops None
        raise PluginError(f"{call} returned None; return a list of {wanted.__name__}, or []")
    (specs,) = results
    if not isinstance(specs, list | tuple):
        raise PluginError(
            f"{call} returned a {type(specs).__name__}; return a list of {wanted.__name__}"
        )
    keys = set()
    for spec in specs:
        if not isinstance(spec, wanted):
            raise PluginError(
                f"{call} returned a {type(spec).__name__} ({spec!r}); "
                f"of this kind it returns {wanted.__name__}"
            )
        if spec_key(spec) in keys:
            raise PluginError(f"{call} returned {spec_key(spec)!r} twice")
        keys.add(spec_key(spec))
        if isinstance(spec, EnvSpec) and (
            not _ENV_NAME.fullmatch(spec.name) or _VERSIONED.fullmatch(spec.name)
        ):
            raise PluginError(
                f"{spec.name!r} cannot name an environment: letters, digits and . _ - only, "
                "and the version in EnvSpec.version"
            )
    return list(specs)
