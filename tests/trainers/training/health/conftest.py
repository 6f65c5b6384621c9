"""Hand-made histories, and one rule asked about them."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from rlgym_llm_trainers.training.health.history import History
from rlgym_llm_trainers.training.health.rules import RULES

from rlgym_llm.config import load_config
from rlgym_llm.config_keys import config_keys
from rlgym_llm.reward_config import RewardsConfig


@pytest.fixture
def judge():
    """Asks the rule about the rows, under the flags of a command line; the window is 4 steps.

    Whatever it finds is one line under its own name, with keys that exist.
    """

    def ask(rule, rows, *flags):
        config = load_config(["--trainer.health.window", "4", *flags])
        finding = RULES[rule](History(rows, config.trainer.health.window), config)
        if finding is not None:
            assert finding.rule == rule
            assert "\n" not in finding.line
            assert [key for key in finding.keys if not exists(key)] == []
        return finding

    return ask


def exists(key):
    if key == "reward":  # the flag for one component of `rewards`
        return True
    section, _, rest = key.partition(".")
    if section == "rewards":
        return rest.partition(".")[0] in RewardsConfig.model_fields
    if section == "critic" or key == "trainer.critic_warmup":
        return key in config_keys() or not any(name.startswith("critic.") for name in config_keys())
    return key in config_keys()


@pytest.fixture
def steps():
    """Makes a row a step from lists of figures, all of one length or a single figure for all.

    >>> steps({"a": [1, 2], "b": 0})
    [{'a': 1, 'b': 0}, {'a': 2, 'b': 0}]
    """

    def make(columns, *, num=4):
        num = max([len(c) for c in columns.values() if isinstance(c, list)], default=num)
        full = {key: c if isinstance(c, list) else [c] * num for key, c in columns.items()}
        return [dict(zip(full, row, strict=True)) for row in zip(*full.values(), strict=True)]

    return make


@pytest.fixture(scope="session")
def starter_run():
    """The metrics that the rules read, of the starter run with seed 0: 18% to 90% in 40 steps."""
    with (Path(__file__).parent / "starter_run.csv").open() as file:
        return [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
