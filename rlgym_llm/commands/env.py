"""``rlgym env``: the environments, and what one of them is and takes."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from rlgym_llm.call_signature import named_parameters
from rlgym_llm.cli import plugin_parser
from rlgym_llm.commands.signature import print_parameters
from rlgym_llm.commands.table import print_table
from rlgym_llm.plugins import Plugins
from rlgym_llm.registry import find_env
from rlgym_llm.specs import EnvSpec, Kind

__all__ = ["main"]


def main(argv: Sequence[str]) -> int:
    """Prints the table, or one environment; raises UserError for an unknown id."""
    parser = plugin_parser("rlgym env", "The environments that are installed.")
    parser.add_argument("action", choices=("list", "show"), help="all of them, or one")
    parser.add_argument("id", nargs="?", help="what to show, such as math-gsm8k or math-gsm8k-v0")
    options = parser.parse_intermixed_args(argv)
    if (options.action == "show") != (options.id is not None):
        parser.error("show takes one id, and list none")
    plugins = Plugins.discover(options.plugin)
    if options.action == "list":
        print_table(
            ["id", "brought by", "what it is"],
            [
                [spec.id, plugins.owner(spec), spec.description]
                for spec in plugins.specs(Kind.ENV)
                if isinstance(spec, EnvSpec)
            ],
        )
    else:
        _show(find_env(options.id, plugins), plugins)
    return 0


def _show(spec: EnvSpec, plugins: Plugins) -> None:
    found = plugins.load(spec)
    print(f"{spec.id}\n  from {spec.entry_point}, {plugins.owner(spec)}\n")
    print(inspect.getdoc(found) or spec.description)
    print("\narguments:")
    parameters, _ = named_parameters(found)
    print_parameters(found, parameters, spec.defaults)
