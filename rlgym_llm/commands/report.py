"""``rlgym report``: the HTML report of a file that was scored before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlgym_llm.cli import plugin_parser
from rlgym_llm.commands.score_paths import check_report_path
from rlgym_llm.errors import DataError, UserError
from rlgym_llm.view.meaning import summary_beside

__all__ = ["main"]


def main(argv: Sequence[str]) -> int:
    """Writes the report; raises DataError where there is no summary beside the scored file."""
    parser = plugin_parser("rlgym report", "Writes what a scoring run came to as one HTML file.")
    parser.add_argument("scored", metavar="SCORED", help="the output of rlgym score")
    parser.add_argument("html", metavar="FILE.html", nargs="?", help="default: SCORED.html")
    options = parser.parse_args(argv)
    scored = Path(options.scored)
    if not scored.is_file():
        raise DataError("no such file", path=scored)
    summary = summary_beside(scored)
    if summary is None:
        missing = scored.with_suffix(".summary.json").name
        raise DataError(
            f"no {missing} of it stands beside it: rlgym score writes both", path=scored
        )
    from rlgym_llm.report.write import write_report

    target = Path(options.html or scored.with_suffix(".html"))
    if target.resolve() in (scored.resolve(), scored.with_suffix(".summary.json").resolve()):
        raise UserError(f"{target} is what the report is made of: give the report another name")
    check_report_path(target)
    write_report(scored, summary, target)
    print(f"{scored} -> {target}")
    return 0
