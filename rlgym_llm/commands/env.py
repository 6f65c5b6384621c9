"""``rlgym env``: the environments, what one is and takes, a new one, and an episode to play."""

from __future__ import annotations

import argparse
import inspect
from argparse import SUPPRESS
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlgym_llm.call_signature import named_parameters
from rlgym_llm.cli import plugin_parser
from rlgym_llm.commands.signature import print_parameters
from rlgym_llm.commands.table import print_table
from rlgym_llm.errors import ConfigError, UnknownNameError, UserError
from rlgym_llm.plugins import Plugins
from rlgym_llm.registry import find_env
from rlgym_llm.specs import EnvSpec, Kind
from rlgym_llm.yaml_text import load_value

__all__ = ["main"]


def main(argv: Sequence[str]) -> int:
    """Lists, shows, writes or plays an environment; raises UserError for an unknown id."""
    parser = plugin_parser(
        "rlgym env", "The environments that are installed; a new one; an episode to play."
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="all of them")
    show = actions.add_parser("show", help="what one is and takes")
    show.add_argument("id", help="such as math-gsm8k or math-gsm8k-v0")
    new = actions.add_parser("new", help="write a plugin distribution with an environment")
    new.add_argument("name", help="a kebab-case word, such as guess-word")
    new.add_argument(
        "--kind",
        choices=("single", "multi", "tool"),
        default="single",
        help="one turn (the default), several turns, or Python functions as tools",
    )
    new.add_argument("--output", metavar="DIR", help="where to; default rlgym-llm-NAME")
    trying = actions.add_parser("try", help="play one episode, by hand or with a model")
    trying.add_argument("id", help="such as guess-number")
    trying.add_argument("--index", metavar="N", type=int, help="which task; default a random one")
    trying.add_argument(
        "--seed", metavar="N", type=int, help="of the episode; default a random one"
    )
    trying.add_argument("--model", metavar="PATH", help="a model that plays, or `starter`")
    trying.add_argument(
        "--max-tokens", metavar="N", type=int, default=256, help="of the model; default 256"
    )
    trying.add_argument(
        "--option",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="an argument of the environment, such as source=starter",
    )
    for action in (show, new, trying, listing):
        action.add_argument("--plugin", dest="more", action="append", default=[], help=SUPPRESS)
    options = parser.parse_args(argv)
    plugins = Plugins.discover([*options.plugin, *options.more])
    if options.action == "list":
        _list(plugins)
    elif options.action == "show":
        _show(find_env(options.id, plugins), plugins)
    elif options.action == "new":
        _new(options, plugins)
    else:
        return _try(options, plugins)
    return 0


def _list(plugins: Plugins) -> None:
    print_table(
        ["id", "brought by", "what it is"],
        [
            [spec.id, plugins.owner(spec), spec.description]
            for spec in plugins.specs(Kind.ENV)
            if isinstance(spec, EnvSpec)
        ],
    )


def _show(spec: EnvSpec, plugins: Plugins) -> None:
    found = plugins.load(spec)
    print(f"{spec.id}\n  from {spec.entry_point}, {plugins.owner(spec)}\n")
    print(inspect.getdoc(found) or spec.description)
    print("\narguments:")
    parameters, _ = named_parameters(found)
    print_parameters(found, parameters, spec.defaults)


def _new(options: argparse.Namespace, plugins: Plugins) -> None:
    from rlgym_llm.scaffold import scaffold

    try:
        taken = plugins.get(Kind.ENV, options.name)
    except UnknownNameError:
        pass
    else:
        owner = plugins.owner(taken)
        raise UserError(f"environment {options.name!r} is there already, by {owner}; name another")
    folder = Path(options.output or f"rlgym-llm-{options.name}")
    for path in scaffold("env", options.name, folder, kind=options.kind):
        print(path)
    print(f"\nNext: cd {folder} && pip install -e '.[test]' && pytest")


def _try(options: argparse.Namespace, plugins: Plugins) -> int:
    from rlgym_llm.commands.env_try import try_env

    if options.max_tokens < 1:
        raise UserError(f"--max-tokens {options.max_tokens}: give at least 1")
    if options.seed is not None and options.seed < 0:
        raise UserError(f"--seed {options.seed}: give 0 or more")
    return try_env(
        options.id,
        plugins,
        arguments=_arguments(options.option),
        index=options.index,
        seed=options.seed,
        model=options.model,
        max_tokens=options.max_tokens,
    )


def _arguments(flags: Sequence[str]) -> dict[str, Any]:
    """The environment's arguments of ``--option KEY=VALUE``, values as YAML reads them."""
    found: dict[str, Any] = {}
    for flag in flags:
        key, equals, text = (part.strip() for part in flag.partition("="))
        if not key or not equals:
            raise ConfigError(f"--option {flag!r} is no KEY=VALUE, such as source=starter")
        if key in found:
            raise ConfigError(f"--option {key} is given twice; keep one")
        found[key] = load_value(text)
    return found
