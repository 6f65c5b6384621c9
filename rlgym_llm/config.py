"""Reads a run's configuration: defaults, then YAML files, then flags; the later one counts.

::

    rlgym-train --config run.yaml --rollout.n 16 actor.optim.lr=1e-5 --reward math=1.0

A file and a flag know the same keys, and the same other spellings of them (`rlgym_llm.aliases`).
Whatever is wrong is a ConfigError of one line: an unknown key with the nearest one, a key given by
two spellings, a value of the wrong type, a file that is missing or no YAML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from rlgym_llm.aliases import CUSTOM_REWARD_KEYS, NO_NEWS, unsupported_reason, without_alias
from rlgym_llm.config_errors import explain_invalid
from rlgym_llm.config_help import describe_config, help_text
from rlgym_llm.config_keys import Key, config_keys, nearest_key, sections
from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.config_text import format_config
from rlgym_llm.errors import ConfigError
from rlgym_llm.reward_config import RewardsConfig
from rlgym_llm.reward_flags import read_reward_flags
from rlgym_llm.secrets_mask import MASK, is_secret_name
from rlgym_llm.yaml_text import load_scalar, read_yaml, read_yaml_file

__all__ = [
    "ParsedCommand",
    "describe_config",
    "format_config",
    "load_config",
    "over_file",
    "parse_command",
]

Path = tuple[str, ...]
_ASSIGNMENT = re.compile(r"^\+{0,2}([A-Za-z_][\w.@/]*)=(.*)$", re.DOTALL)
_SWITCHES = ("--print-config", "--dry-run")
_MOST_ERRORS_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedCommand:
    """What a command line asks for."""

    config: TrainConfig
    sources: Mapping[Path, str] = field(default_factory=dict)
    """Where each value that is no default came from: a flag, or a file and its key."""
    print_config: bool = False
    dry_run: bool = False
    help: str | None = None
    """The text to print instead of doing anything, None where nobody asked for it."""
    plugin_files: tuple[str, ...] = ()
    """Files given by ``--plugin``."""
    layers: tuple[tuple[_Setting, ...], ...] = ()
    """What was given, layer by layer; `over_file` puts another one beneath."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    """One value given for one key."""

    path: Path
    value: Any
    spelling: str
    """The key as it was written: ``--rollout.n``, or ``run.yaml: rollout.n``."""


@dataclass(slots=True, kw_only=True)
class _Arguments:
    """A command line, sorted but not yet understood."""

    switches: set[str] = field(default_factory=set)
    files: list[str] = field(default_factory=list)
    rewards: list[str] = field(default_factory=list)
    plugins: list[str] = field(default_factory=list)
    values: list[tuple[str, str, str]] = field(default_factory=list)
    """(spelling, key, text) of every other flag."""


def load_config(argv: Sequence[str]) -> TrainConfig:
    """The configuration that a command line asks for. Raises ConfigError in one line.

    >>> load_config(["--rollout.n", "4", "actor_rollout_ref.actor.optim.lr=1e-5"]).actor.optim.lr
    1e-05
    """
    return parse_command(argv).config


def parse_command(argv: Sequence[str]) -> ParsedCommand:
    """All that a command line asks for; with ``--help`` nothing else on it is read.

    >>> parse_command(["--dry-run"]).dry_run
    True
    """
    if "--help" in argv or "-h" in argv:
        return ParsedCommand(config=TrainConfig(), help=help_text())
    arguments = _sort_arguments(argv)
    layers = [tuple(_settings_in(read_yaml_file(file), file)) for file in arguments.files]
    layers.append((*_flag_settings(arguments), *_reward_settings(arguments.rewards)))
    return _build(
        ParsedCommand(
            config=TrainConfig(),
            plugin_files=tuple(arguments.plugins),
            print_config="--print-config" in arguments.switches,
            dry_run="--dry-run" in arguments.switches,
            layers=tuple(layers),
        )
    )


def over_file(command: ParsedCommand, file: str) -> ParsedCommand:
    """The same command with the settings of ``file`` beneath all that it was given."""
    beneath = tuple(_settings_in(read_yaml_file(file), file))
    return _build(replace(command, layers=(beneath, *command.layers)))


def _build(command: ParsedCommand) -> ParsedCommand:
    """The command with the configuration that its layers amount to."""
    tree, sources = _merge(command.layers)
    if command.plugin_files and isinstance(tree.setdefault("plugins", []), list):
        tree["plugins"] = [*tree["plugins"], *command.plugin_files]
        sources["plugins",] = "--plugin"
    try:
        config = TrainConfig.model_validate(tree)
    except ValidationError as invalid:
        raise ConfigError(explain_invalid(invalid, tree, sources)) from None
    return replace(command, config=config, sources=sources)


def _sort_arguments(argv: Sequence[str]) -> _Arguments:
    found = _Arguments()
    lists = {"config": found.files, "reward": found.rewards, "plugin": found.plugins}
    rest = list(reversed(argv))
    while rest:
        word = rest.pop()
        if word in _SWITCHES:
            found.switches.add(word)
            continue
        if assignment := _ASSIGNMENT.match(word):
            found.values.append((assignment[1], assignment[1], assignment[2]))
            continue
        if not word.startswith("--") or word == "--":
            raise ConfigError(f"unexpected argument {word!r}: give keys as --KEY VALUE")
        name, is_joined, text = word[2:].partition("=")
        key = config_keys().get(without_alias(name))
        if not is_joined:
            has_next = bool(rest) and not rest[-1].startswith("--")
            if key is not None and key.is_flag:
                # `--trainer.val_only rollout.n=4` switches on, and the next word is a key itself.
                has_next = has_next and not _ASSIGNMENT.match(rest[-1])
                text = rest.pop() if has_next else "true"
            elif has_next:
                text = rest.pop()
            elif name not in lists and _find(without_alias(name)) is None:
                raise ConfigError(_unknown(word, name))
        if not text:
            raise ConfigError(f"--{name} needs a value (null for none)")
        if name in lists:
            lists[name].append(text)
        else:
            found.values.append((f"--{name}", name, text))
    return found


def _flag_settings(arguments: _Arguments) -> Iterator[_Setting]:
    problems = []
    for spelling, name, text in arguments.values:
        if text == NO_NEWS.get(name):
            continue
        key = _find(without_alias(name))
        if key is None and name not in CUSTOM_REWARD_KEYS and not _is_custom_kwarg(name):
            problems.append(_unknown(spelling, name))
            continue
        path = tuple(without_alias(name).split("."))
        yield from _spread(path, _value_of(key, text, spelling), spelling)
    _raise_all(problems)


def _value_of(key: Key | None, text: str, spelling: str) -> Any:
    if key is not None and key.is_text:
        return None if text == "null" else text
    # Only what opens like a list, a mapping or a quote is YAML; `Answer: yes` is a text.
    return read_yaml(text, where=spelling) if text[0] in "[{'\"" else load_scalar(text)


def _reward_settings(flags: Sequence[str]) -> Iterator[_Setting]:
    components = read_reward_flags(flags)  # in the flags' order, none twice
    for flag, (name, component) in zip(flags, components.items(), strict=True):
        spelling = "--reward " + (flag.rpartition("=")[0] or flag)
        given = component.model_dump(exclude_unset=True)
        if given["reward"] == name:
            del given["reward"]  # so that a component of a file keeps its own
        for setting in _spread(("rewards", "components", name), given, spelling):
            yield replace(setting, spelling=spelling)


def _settings_in(data: Any, file: str) -> Iterator[_Setting]:
    """The settings that a file's content amounts to."""
    if data is None:
        return
    if not isinstance(data, Mapping):
        raise ConfigError(f"{file}: expected keys and values, got a {type(data).__name__}")
    problems: list[str] = []
    try:
        yield from _walk_file(data, "", file, problems)
    except RecursionError:
        raise ConfigError(f"{file}: an anchor in it refers to itself") from None
    _raise_all(problems)


def _walk_file(
    data: Mapping[Any, Any], prefix: str, file: str, problems: list[str]
) -> Iterator[_Setting]:
    for part, value in data.items():
        name = f"{prefix}{part}"
        spelling = f"{file}: {name}"
        ours = without_alias(name)
        key = _find(ours)
        is_mapping = isinstance(value, Mapping)
        if value is None and name in sections():
            continue  # a section with all its keys commented out
        if name in NO_NEWS and str(value) == NO_NEWS[name]:
            continue
        if (key is not None and (key.is_open or not is_mapping)) or name in CUSTOM_REWARD_KEYS:
            yield from _spread(tuple(ours.split(".")), value, spelling)
        elif is_mapping and (value or name in sections()):
            yield from _walk_file(value, f"{name}.", file, problems)
        else:
            problems.append(_unknown(spelling, name))


def _spread(path: Path, value: Any, spelling: str) -> Iterator[_Setting]:
    """One setting for each value at the end of a path, a reward's short forms written out."""
    if isinstance(value, Mapping) and value:
        for part, item in value.items():
            yield from _spread((*path, part), item, f"{spelling}.{part}")
        return
    if path[0] == "rewards" and isinstance(value, int | float) and not isinstance(value, bool):
        if len(path) == 2 and path[1] not in RewardsConfig.model_fields:
            path = ("rewards", "components", path[1])
        if len(path) == 3 and path[1] == "components":
            path = (*path, "weight")
    if value == MASK and is_secret_name(str(path[-1])):
        raise ConfigError(f"{spelling}: {MASK} stands for a secret; give the secret itself")
    yield _Setting(path=path, value=value, spelling=spelling)


def _merge(layers: Sequence[Sequence[_Setting]]) -> tuple[dict[str, Any], dict[Path, str]]:
    """All layers as one tree, and the source of each of its values."""
    tree: dict[str, Any] = {}
    sources: dict[Path, str] = {}
    for layer in layers:
        spellings: dict[Path, str] = {}
        for setting in layer:
            other = spellings.setdefault(setting.path, setting.spelling)
            is_read_twice = other is not setting.spelling and ": " in other  # flat and nested
            if other != setting.spelling or is_read_twice:
                raise ConfigError(
                    f"{'.'.join(map(str, setting.path))} is given twice, as {other} and as "
                    f"{setting.spelling}; keep one"
                )
            _put(tree, setting.path, setting.value)
            sources[setting.path] = setting.spelling
    _make_custom_reward(tree, sources)
    return tree, sources


def _put(tree: dict[str, Any], path: Path, value: Any) -> None:
    for part in path[:-1]:
        if not isinstance(tree.get(part), dict):
            tree[part] = {}
        tree = tree[part]
    if value == {} and isinstance(tree.get(path[-1]), dict):
        return  # an empty mapping adds nothing to one that is there
    tree[path[-1]] = value


def _make_custom_reward(tree: dict[str, Any], sources: dict[Path, str]) -> None:
    """Turns verl's ``custom_reward_function`` into a component named after the function."""
    given = tree.pop("custom_reward_function", {})
    if given and "path" not in given:
        raise ConfigError("custom_reward_function needs custom_reward_function.path")
    if given.get("path") is None:
        return
    name = str(given.get("name") or "compute_score")
    path: Path = ("rewards", "components", name)
    options: dict[str, Any] = {"path": f"{given['path']}:{name}"}
    if given.get("reward_kwargs"):
        options["kwargs"] = given["reward_kwargs"]
    _put(tree, path, {"reward": "function", "options": options})
    sources[path] = sources["custom_reward_function", "path"]


def _find(name: str) -> Key | None:
    """The key that takes this name: itself, or an open one that it lies below."""
    keys, parts = config_keys(), name.split(".")
    if name in keys:
        return keys[name]
    above = (keys.get(".".join(parts[:end])) for end in range(1, len(parts)))
    if any(key is not None and key.is_open for key in above):
        return Key(name=name, owner="", annotation=Any, default=None)
    return None


def _is_custom_kwarg(name: str) -> bool:
    return name.startswith("custom_reward_function.reward_kwargs.")


def _unknown(spelling: str, name: str) -> str:
    ours = without_alias(name)
    if reason := unsupported_reason(ours):
        return f"this version does not support {spelling} yet: {reason}"
    if name in sections():
        such = next((f", such as {k}" for k in config_keys() if k.startswith(f"{ours}.")), "")
        return f"{spelling} is a section: give one of its keys{such}"
    guess = nearest_key(ours)
    dashes = "--" if spelling.startswith("--") else ""
    hint = f"did you mean {dashes}{guess}?" if guess else "rlgym-train --help lists all keys"
    return f"unknown key {spelling}; {hint}"


def _raise_all(problems: Sequence[str]) -> None:
    if problems:
        shown = "; ".join(problems[:_MOST_ERRORS_SHOWN])
        more = len(problems) - _MOST_ERRORS_SHOWN
        raise ConfigError(shown + (f"; and {more} more like these" if more > 0 else ""))
