"""A scoring run as one HTML file that needs nothing else."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from rlgym_llm.errors import DataError
from rlgym_llm.offline.summary import exit_code
from rlgym_llm.report.charts import at_k_chart, histogram_charts, length_chart, matrix_chart
from rlgym_llm.report.gather import gather
from rlgym_llm.report.headlines import component_rows, failure_rows, headlines
from rlgym_llm.report.numbers import percent, seconds, short
from rlgym_llm.view.visible import visible

__all__ = ["render_report", "write_report"]


def write_report(output: str | Path, summary: Mapping[str, Any], path: str | Path) -> None:
    """Writes the report of the scored file ``output`` to ``path``; replaces what is there.

    The page is self-contained and holds no script. Raises DataError where the scored file has
    changed since, or ``path`` cannot be written.
    """
    page = render_report(output, summary).encode()
    target = Path(path)
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        draft.write_bytes(page)
        draft.replace(target)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise DataError(f"cannot be written: {error.strerror}", path=path) from error


def render_report(output: str | Path, summary: Mapping[str, Any]) -> str:
    """The page; the same summary and rows give the same text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("rlgym_llm.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "short": short,
        "percent": percent,
        "seconds": seconds,
        "visible": lambda text: visible(str(text)),
    }
    findings = gather(output, summary)
    style = [
        resources.files(package).joinpath(name).read_text()
        for package, name in (("rlgym_llm.view", "look.css"), ("rlgym_llm.report", "page.css"))
    ]
    return environment.get_template("page.html.j2").render(
        style="".join(style),
        summary=summary,
        name=Path(summary["output"]).name,
        is_clean=exit_code(dict(summary)) == 0,
        headlines=headlines(summary),
        components=component_rows(summary),
        histograms=list(histogram_charts(summary, findings)),
        length=length_chart(summary, findings),
        has_verdicts=any(point.is_right is not None for point in findings.points),
        matrix=matrix_chart(summary),
        at_k=at_k_chart(summary),
        failures=failure_rows(summary),
        slowest=findings.slowest,
        disputed=findings.disputed,
    )
