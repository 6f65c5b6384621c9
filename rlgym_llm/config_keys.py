"""Every key of the configuration, read off the schema."""

from __future__ import annotations

import difflib
import functools
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from rlgym_llm.aliases import CUSTOM_REWARD_KEYS, OTHER_NAMES, VERL_PREFIX
from rlgym_llm.config_base import Section
from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.yaml_text import dump_value

__all__ = ["Key", "config_keys", "given_values", "nearest_key", "sections", "unwrapped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One leaf of the schema."""

    name: str
    """Dotted path, such as ``actor.optim.lr``."""
    owner: str
    """Class that declares it."""
    annotation: Any
    default: Any

    @property
    def is_open(self) -> bool:
        """Whether keys of anyone's choosing may stand below it, as below ``env.kwargs``."""
        kind = unwrapped(self.annotation)[0]
        is_model = isinstance(kind, type) and issubclass(kind, BaseModel)
        return is_model or get_origin(kind) is Mapping

    @property
    def is_flag(self) -> bool:
        """Whether it is true or false."""
        return self.annotation is bool

    @property
    def is_text(self) -> bool:
        """Whether its value is text as it stands: ``42`` is the text 42."""
        return unwrapped(self.annotation)[0] is str

    @property
    def leaf(self) -> str:
        """The last part of its name."""
        return self.name.rpartition(".")[2]


@functools.cache
def config_keys() -> Mapping[str, Key]:
    """All keys by name, in the order of the schema.

    >>> config_keys()["rollout.n"].default
    8
    """
    return {key.name: key for key in _walk(TrainConfig, "")}


@functools.cache
def sections() -> frozenset[str]:
    """Names that only hold keys, such as ``actor`` and ``actor.optim``.

    >>> "actor.optim" in sections(), "actor.optim.lr" in sections()
    (True, False)
    """
    names = {*config_keys(), *(VERL_PREFIX + name for name in config_keys()), *CUSTOM_REWARD_KEYS}
    parts = [name.split(".") for name in names]
    return frozenset(".".join(p[:end]) for p in parts for end in range(1, len(p)))


def given_values(config: TrainConfig, names: Sequence[str]) -> dict[str, str]:
    """The keys of sections or keys ``names`` that are not at their defaults, as YAML, by name.

    >>> given_values(TrainConfig.model_validate({"rollout": {"n": 4}}), ["rollout", "trainer.seed"])
    {'rollout.n': '4'}
    """
    found = {}
    for key in config_keys().values():
        if any(f"{key.name}.".startswith(f"{name}.") for name in names):
            value = functools.reduce(getattr, key.name.split("."), config)
            if value != key.default:
                found[key.name] = dump_value(value)
    return found


def nearest_key(name: str) -> str | None:
    """The key that a misspelt or misplaced name most likely means.

    >>> [nearest_key(name) for name in ("train.learnig_rate", "kl_coef", "rollout.val_kwarg.n")]
    ['actor.optim.lr', 'algorithm.kl_ctrl.kl_coef', 'rollout.val_kwargs.n']
    """
    keys = config_keys()
    leaf = name.rpartition(".")[2].replace("-", "_")
    leaves = {key.leaf for key in keys.values()}
    found = difflib.get_close_matches(leaf, [*leaves, *OTHER_NAMES], n=1, cutoff=0.75)
    if found and found[0] in leaves:
        same = [key.name for key in keys.values() if key.leaf == found[0]]
        return difflib.get_close_matches(name, same, n=1, cutoff=0)[0]
    if found:
        return OTHER_NAMES[found[0]]
    return next(iter(difflib.get_close_matches(name, keys, n=1, cutoff=0.6)), None)


def _walk(section: type[Section], prefix: str) -> Iterator[Key]:
    for name, field in section.model_fields.items():
        kind: Any = field.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            yield from _walk(kind, f"{prefix}{name}.")
        else:
            default = field.get_default(call_default_factory=True, validated_data={})
            declares = (cls.__name__ for cls in section.__mro__ if name in cls.__annotations__)
            owner = next(declares, section.__name__)
            yield Key(name=prefix + name, owner=owner, annotation=kind, default=default)


def unwrapped(annotation: Any) -> tuple[Any, bool]:
    """(the type without constraints and without None, whether None is allowed).

    >>> unwrapped(int | None)
    (<class 'int'>, True)
    """
    if get_origin(annotation) is Annotated:
        return unwrapped(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        inner = [part for part in get_args(annotation) if part is not types.NoneType]
        return unwrapped(inner[0])[0], True
    return annotation, False
