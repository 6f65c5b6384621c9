"""YAML in and out, without YAML 1.1's surprises.

``1e-6`` is a number; ``on``, ``no`` and ``1:30`` are text (only ``true`` and ``false`` are
booleans); ``010`` and ``2024-01-01`` are text; a key given twice in one mapping is an error.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from rlgym_llm.errors import ConfigError

__all__ = ["dump_value", "load_scalar", "load_value", "read_yaml", "read_yaml_file"]

_FLOAT = re.compile(
    r"^[-+]?(\d[\d_]*\.[\d_]*([eE][-+]?\d+)?|\.\d+([eE][-+]?\d+)?|\d+[eE][-+]?\d+"
    r"|\.(inf|Inf|INF))$|^\.(nan|NaN|NAN)$"
)
_SCALARS = (
    ("null", re.compile(r"^(~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    ("bool", re.compile(r"^(true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
    ("int", re.compile(r"^[-+]?(0|[1-9][\d_]*|0x[\da-fA-F]+)$"), list("-+0123456789")),
    ("float", _FLOAT, list("-+.0123456789")),
    ("merge", re.compile(r"^<<$"), ["<"]),
)
_LINE_BREAKS = re.compile("[\n\r\x85\u2028\u2029]")


class _Loader(yaml.SafeLoader):
    # A table of its own: the class attribute is PyYAML's, with `no`, dates and 1:30 in it.
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        first: dict[tuple[str, Any], yaml.Node] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and not key.tag.endswith(":merge"):
                name = (key.tag, key.value)
                if name in first:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key {key.value!r} is given twice", key.start_mark
                    )
                first[name] = key
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    # PyYAML's table stays: what any YAML reader would misread is quoted.
    def ignore_aliases(self, data: Any) -> bool:
        return True


for _tag, _pattern, _first in _SCALARS:
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", _pattern, _first)
    _Dumper.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", _pattern, _first)
_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style='"' if _LINE_BREAKS.search(text) else None
    ),
)


def read_yaml(text: str, *, where: str) -> Any:
    r"""What the text says, None for an empty one. Raises ConfigError with ``where`` and the line.

    >>> read_yaml("lr: 1e-6\nname: on\nn: 8", where="run.yaml")
    {'lr': 1e-06, 'name': 'on', 'n': 8}
    >>> read_yaml("n: 1\nn: 2", where="run.yaml")
    Traceback (most recent call last):
        ...
    rlgym_llm.errors.ConfigError: run.yaml:2: key 'n' is given twice
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as wrong:
        mark = wrong.problem_mark or wrong.context_mark
        line = "" if mark is None else f":{mark.line + 1}"
        raise ConfigError(f"{where}{line}: {wrong.problem or wrong.context}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as wrong:
        reason = str(wrong).splitlines()[0]
        raise ConfigError(f"{where}: {reason}") from None


def read_yaml_file(path: str) -> Any:
    """What the file says. Raises ConfigError where it is missing, unreadable or no YAML."""
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file") from None
    except OSError as wrong:
        raise ConfigError(f"{path}: cannot be read: {wrong.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is no UTF-8 text") from None
    return read_yaml(text, where=path)


def load_value(text: str) -> Any:
    """The value of a flag: a list or a mapping where it is written as one, else a plain word.

    >>> load_value("[think, answer]"), load_value("{limit: 3}"), load_value("no")
    (['think', 'answer'], {'limit': 3}, 'no')
    """
    if not text.strip().startswith(("[", "{")):
        return load_scalar(text)
    return read_yaml(text, where=text)


def load_scalar(text: str) -> Any:
    """The value of a plain word, whatever marks it holds.

    >>> load_scalar("1e-6"), load_scalar("no"), load_scalar("a: b # c"), load_scalar("null")
    (1e-06, 'no', 'a: b # c', None)
    """
    loader = _Loader("")
    tag = loader.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    return loader.construct_object(yaml.ScalarNode(tag, text))


def dump_value(value: Any) -> str:
    """The value in one line that `read_yaml` reads back.

    >>> dump_value(1e-6), dump_value("no"), dump_value(("console", None))
    ('1.0e-06', "'no'", '[console, null]')
    """
    text: str = yaml.dump(
        value,
        Dumper=_Dumper,
        default_flow_style=True,
        width=float("inf"),
        allow_unicode=True,
        sort_keys=False,
    )
    return text.removesuffix("\n").removesuffix("\n...")
