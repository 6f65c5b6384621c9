"""``rlgym reward``: the rewards, what one judges and takes, a new one, and how one is gamed."""

from __future__ import annotations

import argparse
import inspect
from argparse import SUPPRESS
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlgym_llm.call_signature import named_parameters
from rlgym_llm.cli import plugin_parser
from rlgym_llm.commands.signature import print_parameters
from rlgym_llm.commands.table import print_table
from rlgym_llm.counted import counted
from rlgym_llm.errors import UserError
from rlgym_llm.file_module import import_named
from rlgym_llm.plugins import Plugins
from rlgym_llm.reward_flags import read_component
from rlgym_llm.rewards import FunctionReward, Reward, build_reward
from rlgym_llm.specs import Kind

__all__ = ["main"]


def main(argv: Sequence[str]) -> int:
    """Lists, shows, writes or stresses a reward; raises UserError for an unknown name."""
    parser = plugin_parser(
        "rlgym reward", "The rewards that are installed; a new one; how one can be gamed."
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="all of them")
    show = actions.add_parser("show", help="what one judges and takes")
    show.add_argument("name", help="such as math, or file.py:function")
    new = actions.add_parser("new", help="write a plugin distribution with a reward of that name")
    new.add_argument("name", help="a snake_case word, such as brevity")
    new.add_argument("--output", metavar="DIR", help="where to; default rlgym-llm-NAME")
    stress = actions.add_parser("stress", help="what it pays for nothing, trick by trick")
    stress.add_argument("name", help="such as math, or file.py:function")
    stress.add_argument("--prompt", help="a task of yours, with --gold and --wrong")
    stress.add_argument("--gold", help="its right answer")
    stress.add_argument("--wrong", help="a wrong answer of the same kind")
    for action in (show, stress):
        action.add_argument(
            "--option", metavar="KEY=VALUE", action="append", default=[], help="an option of it"
        )
    for action in (show, new, stress, listing):
        action.add_argument("--plugin", dest="more", action="append", default=[], help=SUPPRESS)
    options = parser.parse_args(argv)
    plugins = Plugins.discover([*options.plugin, *options.more])
    if options.action == "list":
        print_table(
            ["name", "brought by", "what it is"],
            [
                [spec.name, plugins.owner(spec), spec.description]
                for spec in plugins.specs(Kind.REWARD)
            ],
        )
    elif options.action == "show":
        _show(options, plugins)
    elif options.action == "new":
        return _new(options.name, options.output)
    else:
        return _stress(options, plugins)
    return 0


def _new(name: str, output: str | None) -> int:
    from rlgym_llm.scaffold import scaffold

    folder = Path(output or f"rlgym-llm-{name.replace('_', '-')}")
    for path in scaffold("reward", name, folder):
        print(path)
    print(f"\nNext: cd {folder} && pip install -e '.[test]' && pytest")
    return 0


def _stress(options: argparse.Namespace, plugins: Plugins) -> int:
    """Prints the report; 1 where there is a problem in it."""
    from rlgym_llm.stress import stress_reward

    task = {k: v for k in ("prompt", "gold", "wrong") if (v := getattr(options, k)) is not None}
    if task and len(task) < 3:
        raise UserError("--prompt, --gold and --wrong make a task together; give all three")
    component = read_component(options.name, options.option)
    assert component.reward is not None
    found = plugins.load(plugins.get(Kind.REWARD, component.reward))
    report = stress_reward(build_reward(found, component.options), **task)
    right, wrong = _number(report.right), _number(report.wrong)
    print(f"the best honest right answer gets {right}, the best honest wrong one {wrong}")
    if report.right == report.wrong:
        print("it does not tell them apart: what pays is its own measure; mind its weight's sign")
    print_table(
        ["attack", "value", "seconds", "problem", "text"],
        [
            [
                finding.attack,
                _number(finding.value),
                f"{finding.seconds:.3f}",
                finding.problem or "",
                _short(finding.text) if finding.problem else "",
            ]
            for finding in report.findings
        ],
    )
    if report.problems:
        shown = counted(len(report.problems), "attack shows", "attacks show")
        print(f"\nof {len(report.findings)}, {shown} a problem")
    return int(bool(report.problems))


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:g}"


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _show(options: argparse.Namespace, plugins: Plugins) -> None:
    component = read_component(options.name, options.option)
    assert component.reward is not None
    spec = plugins.get(Kind.REWARD, component.reward)
    found = plugins.load(spec)
    built, problem = _built(found, component.options, is_asked=bool(options.option))
    path = component.options.get("path") if ":" in options.name else None
    if path is None:
        print(f"{spec.name}\n  from {spec.entry_point}, {plugins.owner(spec)}")
    else:
        found = _function(str(path))
        print(f"{found.__name__}\n  from {path}, by the reward {spec.name!r}")
    known = found if built is None else built
    print(f"  {_about(known)}", end="")
    if _is_decided_by_options(built):
        print(f" (by {'these' if options.option else 'its default'} options)", end="")
    print()
    if needs := _declared(known, "needs", ()):
        print(f"  needs {', '.join(needs)}")
    if uses := _declared(known, "uses", ()):
        print(f"  uses the components {', '.join(uses)}")
    parameters, _ = named_parameters(found)
    if problem is not None:
        missing = [name for name, p in parameters.items() if p.default is p.empty]
        why = f"it needs {', '.join(missing)}" if missing else problem
        print(f"  all that before any --option KEY=VALUE, and it is not built without: {why}")
    print()
    print(inspect.getdoc(found) or (spec.description if path is None else "(no docstring)"))
    print("\noptions:" if path is None else "\narguments with defaults (its option kwargs):")
    if not inspect.isclass(found):  # of a function the rest are columns of the rollout
        parameters = {k: p for k, p in parameters.items() if p.default is not p.empty}
    print_parameters(found, parameters)


def _built(
    found: Any, options: Mapping[str, Any], *, is_asked: bool
) -> tuple[Reward | None, str | None]:
    """The reward as its options make it, or None and why it cannot be built without them."""
    try:
        built = build_reward(found, options)
    except UserError as wrong:
        if is_asked or options:
            raise
        return None, str(wrong)
    built.close()
    return built, None


def _function(path: str) -> Any:
    """The function of ``file.py:name`` or ``module:name``, which the reward has found before."""
    where, _, name = path.rpartition(":")
    return getattr(import_named(where), name)


def _about(reward: Any) -> str:
    low, high = _declared(reward, "range", (0.0, 1.0))
    scope = _declared(reward, "scope", "sample")
    backend = _declared(reward, "backend", "inline")
    return f"range {low:g} to {high:g}, scope {scope}, backend {backend}"


def _is_decided_by_options(built: Reward | None) -> bool:
    """Whether range or scope stand on the reward that was built, rather than on its class."""
    if built is None or isinstance(built, FunctionReward):
        return False
    return not vars(built).keys().isdisjoint(("range", "scope"))


def _declared(found: Any, what: str, default: Any) -> Any:
    """What the reward says of itself: its attribute, or what ``@reward`` noted."""
    noted = getattr(found, "__rlgym_reward__", None)
    value = noted[what] if noted is not None else getattr(found, what, default)
    return default if isinstance(value, property) else value
