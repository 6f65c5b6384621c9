"""``rlgym``: lists the commands that plugins bring, and imports only the one that is called."""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from rlgym_llm.builtin_commands import BUILTIN_COMMANDS
from rlgym_llm.errors import RlgymError, UserError
from rlgym_llm.plugin_sources import own_version
from rlgym_llm.plugins import Plugins
from rlgym_llm.specs import CommandSpec, Kind, Spec

__all__ = ["CommandParser", "guarded", "main", "plugin_parser"]

FAILED, USER_ERROR, INTERRUPTED, PIPE_CLOSED = 1, 2, 128 + 2, 128 + 13
"""Exit codes: a failure on the way; user errors; Ctrl-C and closed pipes as shells do."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs ``rlgym``; returns the command's exit code, or those of `guarded`."""
    return guarded(_run, sys.argv[1:] if argv is None else list(argv), "rlgym")


def guarded(fn: Callable[[Sequence[str]], int], argv: Sequence[str], prog: str) -> int:
    """``fn(argv)``, with what ends a command line early turned into its exit code.

    A UserError is one line ``prog: message`` on stderr and 2; Ctrl-C is 130; a reader that closed
    the pipe (``rlgym env list | head -1``) is 141, in silence. What failed on the way through
    nobody's typing (a judge that is down, a full disk) is one line and 1. Our own mistakes keep a
    traceback.
    """
    if sys.stdout is None:  # a closed descriptor: there is nowhere to say anything
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  kept until the end
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # an ASCII terminal still gets its curve
    try:
        code = fn(argv)
        sys.stdout.flush()  # so that a closed pipe shows here and not at the interpreter's exit
        return code
    except RlgymError as wrong:
        said = "; ".join([str(wrong), *getattr(wrong, "__notes__", ())])
        print(f"{prog}: {' '.join(said.splitlines())}", file=sys.stderr)
        return USER_ERROR if isinstance(wrong, UserError) else FAILED
    except KeyboardInterrupt:
        print(f"{prog}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        _drop_stdout()
        return PIPE_CLOSED
    except OSError as full:
        if full.errno not in (errno.ENOSPC, errno.EFBIG):
            raise
        where = f"{full.filename}: " if full.filename else ""
        print(f"{prog}: {where}{full.strerror}", file=sys.stderr)
        _drop_stdout()
        return FAILED


def _drop_stdout() -> None:
    """The interpreter flushes stdout once more when it exits: lets that go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class CommandParser(argparse.ArgumentParser):
    """An argument parser whose errors are UserErrors: one line, without the usage above it."""

    def error(self, message: str) -> NoReturn:
        """Raises UserError."""
        raise UserError(f"{message} (see {self.prog} --help)")


def plugin_parser(prog: str, description: str, *, add_help: bool = True) -> CommandParser:
    """A parser with the one option that every command takes: ``--plugin PATH``, a list."""
    parser = CommandParser(
        prog=prog, description=description, allow_abbrev=False, add_help=add_help
    )
    parser.add_argument(
        "--plugin",
        metavar="PATH",
        action="append",
        default=[],
        help="load this Python file as a plugin; may be given several times",
    )
    return parser


class _Help(argparse.Action):
    """Help that lists the commands, those of ``--plugin`` files before it included."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        plugins = Plugins.discover(namespace.plugin, tolerant=True)
        commands: dict[str, CommandSpec] = plugins.commands()
        commands.update((command.name, command) for command in BUILTIN_COMMANDS)
        width = max(map(len, commands))
        lines = [f"  {name:{width}}  {commands[name].description}" for name in sorted(commands)]
        broken = [record.label for record in plugins.report() if record.reason is not None]
        if broken:
            lines += ["", f"broken, see `rlgym plugins`: {', '.join(broken)}"]
        lines += ["", "`rlgym COMMAND --help` tells more."]
        parser.epilog = "\n".join(["commands:", *lines])
        parser.print_help()
        parser.exit()


def _run(argv: Sequence[str]) -> int:
    description = "A gym for reinforcement learning of language models."
    parser = plugin_parser("rlgym", description, add_help=False)
    parser.usage = "rlgym [--help] [--version] [--plugin PATH] COMMAND ..."
    parser.formatter_class = argparse.RawDescriptionHelpFormatter  # keeps the list of commands
    parser.add_argument("-h", "--help", action=_Help, nargs=0, help="list the commands")
    version = f"rlgym_llm {own_version() or 'of a source tree that is not installed'}"
    parser.add_argument("--version", action="version", version=version)
    parser.add_argument("command", nargs=argparse.PARSER, help=argparse.SUPPRESS)
    options = parser.parse_args(list(argv) or ["--help"])
    name, *arguments = options.command
    # A file is handed on, for the command finds its rewards and environments by itself.
    handed_on = [part for path in options.plugin for part in ("--plugin", path)]
    return _load(name, options.plugin)([*handed_on, *arguments])


def _load(name: str, extra: Sequence[str]) -> Callable[[Sequence[str]], int]:
    plugins = Plugins()
    # The core's own answer first: `rlgym plugins` must work whatever the plugins do.
    spec: Spec | None = {command.name: command for command in BUILTIN_COMMANDS}.get(name)
    if spec is None:
        plugins = Plugins.discover(extra)
        spec = plugins.get(Kind.COMMAND, name)
    command: Callable[[Sequence[str]], int] = plugins.load(spec)
    return command
