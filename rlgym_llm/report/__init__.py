"""The HTML report of a scoring run."""

from rlgym_llm.report.write import write_report

__all__ = ["write_report"]
