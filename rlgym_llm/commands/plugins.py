"""``rlgym plugins``: who brought what, and what is broken, with its traceback."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rlgym_llm.cli import plugin_parser
from rlgym_llm.plugins import PluginRecord, Plugins

__all__ = ["main"]


def main(argv: Sequence[str]) -> int:
    """Prints one block per plugin; 1 under ``--strict`` where anything is broken, else 0."""
    parser = plugin_parser("rlgym plugins", "Who brought what, and what is broken.")
    parser.add_argument(
        "--strict", action="store_true", help="exit with 1 if a plugin is broken or a name clashes"
    )
    options = parser.parse_args(argv)
    plugins = Plugins.discover(options.plugin, tolerant=True)
    for record in plugins.report():
        _print(record)
    for clash in plugins.clashes():
        print(f"CLASH   {clash}")
    is_broken = any(record.reason is not None for record in plugins.report())
    return 1 if options.strict and (is_broken or plugins.clashes()) else 0


def _print(record: PluginRecord) -> None:
    state = "ok" if record.reason is None else "BROKEN"
    where = "" if record.distribution is None else f" ({record.entry_point})"
    print(f"{state:6}  {record.label}{where}")
    for kind, names in record.brings.items():
        print(f"        {kind.value}: {', '.join(names)}")
    if record.error is not None:
        print(textwrap.indent(record.error, "        | "))
