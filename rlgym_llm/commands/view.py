"""``rlgym view``: a page on this machine to browse rows."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from rlgym_llm.cli import plugin_parser
from rlgym_llm.errors import UserError
from rlgym_llm.layouts.layout import FIELDS
from rlgym_llm.view.server import ViewServer

__all__ = ["main"]

_DESCRIPTION = (
    "Browses scored rows and rollout dumps (.jsonl, .parquet) on a page that only this machine "
    "reaches. Ctrl-C ends it."
)


def main(argv: Sequence[str]) -> int:
    """Serves the page until Ctrl-C; raises UserError and DataError."""
    parser = plugin_parser("rlgym view", _DESCRIPTION)
    parser.add_argument("file", metavar="FILE", help="scored rows, or rollouts of training")
    parser.add_argument("--port", type=int, default=0, help="default: a free one")
    parser.add_argument("--host", default="127.0.0.1", help="default: 127.0.0.1, this machine only")
    parser.add_argument("--no-open", action="store_true", help="do not open a browser")
    parser.add_argument(
        "--map", action="append", default=[], metavar="FIELD=COLUMN", help=", ".join(FIELDS)
    )
    parser.add_argument("--score-column", default="rlgym", metavar="NAME", help="default: rlgym")
    options = parser.parse_args(argv)
    if not 0 <= options.port < 1 << 16:
        raise UserError(f"--port {options.port}: ports are from 0 to 65535")
    server = ViewServer(
        options.file,
        host=options.host,
        port=options.port,
        mapping=dict(map(_pair, options.map)),
        score_column=options.score_column,
    )
    try:
        with server:
            print(f"{options.file} -> {server.url}  (Ctrl-C ends it)", flush=True)
            if not options.no_open and _has_display():
                import webbrowser

                webbrowser.open(server.url)
            server.wait()
    except KeyboardInterrupt:
        print(file=sys.stderr)  # behind the ^C that the terminal shows
    return 0


def _has_display() -> bool:
    """Without one, a browser that runs in the terminal would take it over."""
    if sys.platform in ("darwin", "win32"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def _pair(text: str) -> tuple[str, str]:
    field, equals, column = text.partition("=")
    if not (field and equals and column):
        raise UserError(f"--map takes FIELD=COLUMN, such as completion=response, not {text!r}")
    return field, column
