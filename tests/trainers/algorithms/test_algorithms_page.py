"""docs/algorithms.md names all that can be chosen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rlgym_llm_trainers import rlgym_register
from rlgym_llm_trainers.algorithms.aggregate import LossAggMode
from rlgym_llm_trainers.algorithms.kl import KlKind

from rlgym_llm.specs import Kind

PAGE = Path(__file__).parents[3] / "docs" / "algorithms.md"


def in_tables(heading):
    """What stands in code in the first column of the tables below a heading."""
    text = PAGE.read_text(encoding="utf-8")
    (section,) = re.findall(rf"^## {heading}$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\|([^|]*)\|", section, re.MULTILINE)
    return {name for cell in rows for name in re.findall(r"`([^`]*)`", cell)}


@pytest.mark.parametrize(
    ("heading", "names"),
    [
        (
            "Advantage estimators",
            {
                *("grpo_vectorized", "rloo_vectorized"),
                *(spec.name for spec in rlgym_register(Kind.ADVANTAGE)),
            },
        ),
        (
            "Policy losses",
            {"vanilla", "geo_mean", *(spec.name for spec in rlgym_register(Kind.POLICY_LOSS))},
        ),
        ("Aggregation", set(LossAggMode)),
        ("KL to the reference", set(KlKind)),
    ],
)
def test_every_choice_has_a_row_and_every_row_is_a_choice(heading, names):
    assert in_tables(heading) == names
