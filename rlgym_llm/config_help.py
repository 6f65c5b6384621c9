"""The keys in words: what ``--help`` prints and what the documentation lists."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

from rlgym_llm import (
    config_algorithm,
    config_checkpoint,
    config_critic,
    config_fsdp,
    config_health,
    config_rollout,
    config_samples,
    config_schema,
    config_update,
)
from rlgym_llm.aliases import ALIASES, CUSTOM_REWARD_KEYS, VALUE_ALIASES, VERL_PREFIX
from rlgym_llm.attribute_docs import attribute_docs
from rlgym_llm.config_keys import Key, config_keys, unwrapped
from rlgym_llm.yaml_text import dump_value

__all__ = ["describe_config", "help_text"]


def describe_config() -> str:
    """All keys as Markdown, a table a section, then the table of other spellings."""
    texts, lines = _descriptions(), []
    for section, keys in _by_section().items():
        lines += [f"## {section or 'top level'}", ""]
        lines += ["| key | type | default | meaning |", "|---|---|---|---|"]
        for key in keys:
            kind = _type_text(key.annotation).replace("|", "\\|")
            meaning = texts.get(f"{key.owner}.{key.leaf}", "")
            lines.append(f"| `{key.name}` | {kind} | `{dump_value(key.default)}` | {meaning} |")
        lines.append("")
    lines += ["## Other spellings", "", "| spelling | key |", "|---|---|"]
    lines.append(f"| `{VERL_PREFIX}KEY` | `KEY` |")
    lines += [f"| `{spelling}` | `{key}` |" for spelling, key in ALIASES.items()]
    for name, values in VALUE_ALIASES.items():
        lines += [f"| `{name} {spelling}` | `{name} {ours}` |" for spelling, ours in values.items()]
    lines += [f"| `{key}` | a `function` reward in `rewards` |" for key in CUSTOM_REWARD_KEYS]
    return "\n".join(lines) + "\n"


_HELP_HEAD = """\
usage: rlgym-train [--config FILE]... [--KEY VALUE]... [KEY=VALUE]...

Trains a language model by reinforcement learning. With no arguments: the starter model on
starter problems. A flag beats a file, a later file beats an earlier one, both beat the default.

  --env ID               environment                  (env.id)
  --model PATH           model                        (model.path)
  --output DIR           folder of the run            (trainer.output)
  --seed N               seed of everything           (trainer.seed)
  --reward NAME=WEIGHT   one reward of several; NAME may be file.py:function
  --plugin FILE          a Python file with plugins; may be repeated
  --config FILE          a YAML file with the keys below; may be repeated
  --print-config         print the whole configuration and stop
  --dry-run              print the batch arithmetic and stop
  --help                 print this and stop

Keys, with their defaults; verl's spellings are taken too.
"""


def help_text() -> str:
    """What ``--help`` prints: every key, grouped, with its default and its meaning."""
    texts, lines = _descriptions(), [_HELP_HEAD]
    for section, keys in _by_section().items():
        lines.append(f"{section}: {texts.get(keys[0].owner, '')}" if section else "top level:")
        for key in keys:
            meaning = texts.get(f"{key.owner}.{key.leaf}", "").replace("`", "")
            if get_origin(kind := unwrapped(key.annotation)[0]) is Literal:
                meaning += f" ({', '.join(map(str, get_args(kind)))})"
            wrapped = textwrap.wrap(meaning, 100 - 49, break_on_hyphens=False)
            head = f"  --{key.name} {dump_value(key.default)}"
            if len(head) > 48:  # a long name has a line of its own
                lines.append(head)
                head = ""
            lines.append(f"{head:<48} {wrapped[0]}")
            lines += [" " * 49 + line for line in wrapped[1:]]
        lines.append("")
    return "\n".join(lines).rstrip()


def _by_section() -> dict[str, list[Key]]:
    grouped: dict[str, list[Key]] = {}
    for key in config_keys().values():
        grouped.setdefault(key.name.rpartition(".")[0], []).append(key)
    return grouped


@functools.cache
def _descriptions() -> dict[str, str]:
    """The docstring under every class and field of the schema, read off its source.

    pydantic could read them too, at a tenth of a second for each start of the program.
    """
    found = {}
    parts = (
        config_schema,
        config_algorithm,
        config_update,
        config_rollout,
        config_critic,
        config_fsdp,
        config_health,
        config_checkpoint,
        config_samples,
    )
    trees = [ast.parse(inspect.getsource(part)) for part in parts]
    nodes = (node for tree in trees for node in tree.body)
    for owner in (node for node in nodes if isinstance(node, ast.ClassDef)):
        found[owner.name] = (ast.get_docstring(owner) or "").partition("\n\n")[0]
        found |= {f"{owner.name}.{name}": text for name, text in attribute_docs(owner).items()}
    return found


def _type_text(annotation: Any) -> str:
    kind, is_nullable = unwrapped(annotation)
    origin, args = get_origin(kind), get_args(kind)
    if origin is Literal:
        text = " | ".join(map(str, args))
    elif origin is tuple and args[-1] is Ellipsis:
        text = f"list of {_type_text(args[0])}"
    elif origin is tuple:
        text = f"[{', '.join(map(_type_text, args))}]"
    elif origin is Mapping or kind not in (int, float, bool, str):
        text = "mapping"
    else:
        text = {int: "integer", float: "number", bool: "true | false", str: "text"}[kind]
    return f"{text} or null" if is_nullable else text
