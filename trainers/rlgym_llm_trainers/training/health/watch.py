"""Watches a run: the rules asked after every step, each finding said once in a while."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from rlgym_llm.config_health import HealthRule
from rlgym_llm.config_schema import TrainConfig
from rlgym_llm_trainers.training.health.finding import Finding
from rlgym_llm_trainers.training.health.history import History, Row
from rlgym_llm_trainers.training.health.rules import RULES

__all__ = ["Checkup", "Watch"]

_STEPS_KEPT = 256
"""The furthest that a rule looks back, in a window of up to a quarter of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """What the rules find at one step."""

    findings: tuple[Finding, ...]
    """All that holds at this step."""
    news: tuple[Finding, ...]
    """Those to say aloud: their rules have kept quiet for long enough."""
    fatal: Finding | None
    """The one that ends the run."""

    @property
    def metrics(self) -> dict[str, float]:
        """``health/<rule>`` 1.0 for every finding; what is in order has no metric."""
        return {f"health/{finding.rule}": 1.0 for finding in self.findings}


class Watch:
    """The rules over the steps of one run.

    What it says follows from the configuration and the rows that it has seen alone: a run that goes
    on shows it the rows of ``metrics.jsonl`` up to there, and it is as it was.
    """

    def __init__(self, config: TrainConfig) -> None:
        self._config = config
        self._health = config.trainer.health
        kept = max(_STEPS_KEPT, 4 * self._health.window)
        self._rows: deque[Row] = deque(maxlen=kept)
        self._last_said: dict[HealthRule, int] = {}

    def observe(self, step: int, metrics: Row) -> Checkup:
        """Takes the metrics of a step and asks every rule that is not to be ignored."""
        health = self._health
        if health.mode == "off":
            return Checkup(findings=(), news=(), fatal=None)
        self._rows.append(dict(metrics))
        history = History(tuple(self._rows), health.window)
        rules = [rule for name, rule in RULES.items() if name not in health.ignore]
        found = tuple(finding for rule in rules if (finding := rule(history, self._config)))
        news = tuple(finding for finding in found if self._is_due(finding.rule, step))
        self._last_said.update({finding.rule: step for finding in news})
        return Checkup(findings=found, news=news, fatal=next(filter(self._ends_run, found), None))

    def _is_due(self, rule: HealthRule, step: int) -> bool:
        last = self._last_said.get(rule)
        return last is None or step - last > self._health.quiet_steps

    def _ends_run(self, finding: Finding) -> bool:
        ends_errors = self._health.mode == "stop" and finding.severity == "error"
        return ends_errors or finding.rule in self._health.stop_on
