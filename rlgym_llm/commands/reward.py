"""``rlgym reward``: the rewards, and what one of them judges and takes."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from rlgym_llm.call_signature import named_parameters
from rlgym_llm.cli import plugin_parser
from rlgym_llm.commands.signature import print_parameters
from rlgym_llm.commands.table import print_table
from rlgym_llm.plugins import Plugins
from rlgym_llm.specs import Kind, Spec

__all__ = ["main"]


def main(argv: Sequence[str]) -> int:
    """Prints the table, or one reward; raises UserError for an unknown name."""
    parser = plugin_parser("rlgym reward", "The rewards that are installed.")
    parser.add_argument("action", choices=("list", "show"), help="all of them, or one")
    parser.add_argument("name", nargs="?", help="what to show, such as math")
    options = parser.parse_intermixed_args(argv)
    if (options.action == "show") != (options.name is not None):
        parser.error("show takes one name, and list none")
    plugins = Plugins.discover(options.plugin)
    if options.action == "list":
        print_table(
            ["name", "brought by", "what it is"],
            [
                [spec.name, plugins.owner(spec), spec.description]
                for spec in plugins.specs(Kind.REWARD)
            ],
        )
    else:
        _show(plugins.get(Kind.REWARD, options.name), plugins)
    return 0


def _show(spec: Spec, plugins: Plugins) -> None:
    found = plugins.load(spec)
    print(f"{spec.name}\n  from {spec.entry_point}, {plugins.owner(spec)}")
    low, high = _declared(found, "range", (0.0, 1.0))
    print(f"  range {low:g} to {high:g}, scope {_declared(found, 'scope', 'sample')}")
    if needs := _declared(found, "needs", ()):
        print(f"  needs {', '.join(needs)}")
    print()
    print(inspect.getdoc(found) or spec.description)
    print("\noptions:")
    parameters, _ = named_parameters(found)
    if not inspect.isclass(found):  # of a function the rest are columns of the rollout
        parameters = {k: p for k, p in parameters.items() if p.default is not p.empty}
    print_parameters(parameters)


def _declared(found: Any, what: str, default: Any) -> Any:
    """What the reward says of itself: a class's attribute, or what ``@reward`` noted."""
    noted = getattr(found, "__rlgym_reward__", None)
    return noted[what] if noted is not None else getattr(found, what, default)
