"""Environments by id: `make` for everything installed, and their names in Gymnasium's registry."""

from __future__ import annotations

import importlib.machinery
import re
import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rlgym_llm.builtin_envs import BUILTIN_ENVS
from rlgym_llm.call_signature import check_arguments, named_parameters
from rlgym_llm.errors import UnknownNameError, UserError
from rlgym_llm.specs import EnvSpec, Kind
from rlgym_llm.task_cache import cached, file_key

if TYPE_CHECKING:
    import gymnasium

    from rlgym_llm.plugins import Plugins

__all__ = ["announce_builtin_envs", "find_env", "make", "register_envs"]

_REGISTRATION = "gymnasium.envs.registration"
_ID = re.compile(r"(?:rlgym_llm:)?(?:rlgym_llm/)?(?P<name>.+?)(?:-v(?P<version>\d+))?")
_GYMNASIUM_OPTIONS = ("max_episode_steps", "disable_env_checker")  # of gymnasium.make itself
_WRAPPING = frozenset((*_GYMNASIUM_OPTIONS, "render_mode"))
"""Arguments by which Gymnasium chooses its wrappers."""
_PLAIN = frozenset((str, int, bool, type(None), type(Path())))
"""Types of arguments that nothing can change and that are compared by value."""


def make(id: str, /, *, plugins: Plugins | None = None, **kwargs: Any) -> gymnasium.Env[Any, Any]:  # noqa: A002  Gymnasium's word
    """A new environment: ``math-gsm8k``, ``math-gsm8k-v0`` or ``rlgym_llm/math-gsm8k-v0``.

    Without a version it is the newest. ``kwargs`` go to the environment's constructor, over the
    spec's defaults; Gymnasium's own ``max_episode_steps`` and ``disable_env_checker`` are taken
    too (the checker of every first step is off unless asked for: `check_env` finds more). The
    result enforces the order of calls, as from ``gymnasium.make``.
    Raises UnknownNameError with the nearest id, UserError for a version that does not exist,
    ConfigError for an argument that the constructor does not take, and PluginError.
    """
    import gymnasium

    from rlgym_llm.plugins import Plugins

    plugins = Plugins.installed() if plugins is None else plugins
    spec = find_env(id, plugins)
    entry = plugins.load(spec)
    if _takes_plugins(entry):  # one that makes environments itself
        kwargs = {"plugins": plugins, **kwargs}
    key = _key(spec, entry, plugins, {**spec.defaults, **kwargs})
    if key is None:
        return _made(spec, plugins, kwargs)
    made: Any = cached(key, lambda: _made(spec, plugins, kwargs)).unwrapped
    env = made.fresh()
    env.spec = object.__new__(type(made.spec))  # as `copy.copy`, which takes three times as long
    env.spec.__dict__.update(made.spec.__dict__, kwargs=dict(made.spec.kwargs))
    return gymnasium.wrappers.OrderEnforcing(env)


def _key(
    spec: EnvSpec, entry: Any, plugins: Plugins, arguments: Mapping[str, Any]
) -> Hashable | None:
    """What an environment is made of, where one made of the same before may be copied, or None.

    Asks for what `TextEnv.data_files` says, arguments that nobody can change, and no other wrapper.
    """
    named = _data_files(entry)
    if not named or arguments.get(named[0]) is None or not _WRAPPING.isdisjoint(arguments):
        return None
    kinds = tuple(map(type, arguments.values()))  # 1, 1.0 and True are equal
    if not _PLAIN.issuperset(kinds):
        return None
    paths = [arguments[name] for name in named if arguments.get(name) is not None]
    try:
        files = tuple(map(file_key, paths))
    except (OSError, TypeError, ValueError):  # no file: the constructor has words for it
        return None
    return spec.id, entry, plugins, tuple(arguments.items()), kinds, files


def _made(spec: EnvSpec, plugins: Plugins, kwargs: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    import gymnasium

    from rlgym_llm.reward_config import RewardsConfig

    _check_once(spec, plugins, {*spec.defaults, *kwargs})
    env = gymnasium.make(
        gymnasium.envs.registration.EnvSpec(
            id=spec.id, entry_point=spec.entry_point, kwargs=dict(spec.defaults)
        ),
        **{"disable_env_checker": True, **kwargs},
    )
    inner = env.unwrapped
    if hasattr(inner, "plugins"):
        inner.plugins = plugins  # a file's environment may ask for the file's rewards
    if isinstance(rewards := getattr(inner, "rewards", None), RewardsConfig):
        for component in rewards.components.values():
            if component.reward is not None:
                plugins.get(Kind.REWARD, component.reward)  # unknown names fail here, not in step
    return env


@lru_cache(maxsize=256)
def _data_files(entry: Any) -> tuple[str, ...]:
    """What a class of ours says of itself, not what it inherits."""
    from rlgym_llm.env import TextEnv

    is_ours = isinstance(entry, type) and issubclass(entry, TextEnv)
    found: tuple[str, ...] = vars(entry).get("data_files", ()) if is_ours else ()
    return found


@lru_cache(maxsize=256)
def _takes_plugins(entry: Any) -> bool:
    return "plugins" in named_parameters(entry)[0]


_checked: dict[tuple[int, frozenset[str]], Any] = {}  # holds what it names, so ids stay theirs


def _check_once(spec: EnvSpec, plugins: Plugins, names: set[str]) -> None:
    """Checks the names of the arguments; reading signatures is slow, so each set of them once."""
    entry = plugins.load(spec)
    own = frozenset(names.difference(_GYMNASIUM_OPTIONS))
    if (id(entry), own) not in _checked:
        check_arguments(f"environment {spec.name!r}", entry, dict.fromkeys(sorted(own)))
        _checked[id(entry), own] = entry


def find_env(id: str, plugins: Plugins) -> EnvSpec:  # noqa: A002  Gymnasium's word
    """The spec that an id names, in any of the spellings of `make`; raises as `make` does."""
    key, name, version = _parts(id) if isinstance(id, str) else (None, "", None)
    if key is None:
        raise UserError(f"an environment id looks like 'math-gsm8k' or 'math-gsm8k-v0', not {id!r}")
    try:
        found = plugins.get(Kind.ENV, key)
    except UnknownNameError:
        from rlgym_llm.plugin_loader import spec_key

        existing = [spec_key(spec) for spec in plugins.specs(Kind.ENV) if spec.name == name]
        if not existing:
            raise
        raise UserError(
            f"environment {name!r} has no version {version}; there is {', '.join(existing)}"
        ) from None
    assert isinstance(found, EnvSpec)
    return found


@lru_cache(maxsize=256)
def _parts(id: str) -> tuple[str | None, str, str | None]:  # noqa: A002  Gymnasium's word
    """What plugins know the id by, its name, and its version; of no id None."""
    parts = _ID.fullmatch(id)
    if parts is None:
        return None, "", None
    name, version = parts["name"], parts["version"]
    return (name if version is None else f"{name}-v{int(version)}"), name, version


def register_envs(plugins: Plugins | None = None) -> tuple[str, ...]:
    """Makes ``gymnasium.make`` know every installed environment, third parties' included.

    Returns their ids. Entry points stay strings, so nothing heavy is imported; an id that
    Gymnasium knows already stays as it is, so calling twice changes nothing.
    """
    import gymnasium  # noqa: F401  fills sys.modules

    from rlgym_llm.plugins import Plugins

    plugins = Plugins.installed() if plugins is None else plugins
    specs = [spec for spec in plugins.specs(Kind.ENV) if isinstance(spec, EnvSpec)]
    _register(specs)
    return tuple(spec.id for spec in specs)


def announce_builtin_envs() -> None:
    """Makes ``gymnasium.make`` know the built-in environments: now, or when Gymnasium is imported.

    Importing Gymnasium costs a quarter of a second, which a command line's ``--help`` need not
    pay. Where nobody has imported it yet, the registration waits for the import of its registry.
    """
    if _REGISTRATION in sys.modules:
        _register(BUILTIN_ENVS)
    elif not any(isinstance(finder, _AfterGymnasium) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterGymnasium())


class _AfterGymnasium:
    """Lets Gymnasium's registry load as ever, registers right after that, and is gone."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != _REGISTRATION:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_then_register(module: ModuleType) -> None:
                execute(module)
                _register(BUILTIN_ENVS)

            spec.loader.exec_module = execute_then_register  # type: ignore[method-assign]
        return spec


def _register(specs: Iterable[EnvSpec]) -> None:
    registration = sys.modules[_REGISTRATION]
    for spec in specs:
        if spec.id not in registration.registry:
            registration.register(
                id=spec.id, entry_point=spec.entry_point, kwargs=dict(spec.defaults)
            )
