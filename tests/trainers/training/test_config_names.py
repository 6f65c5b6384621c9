"""The names that the configuration offers are those that the mathematics knows."""

from __future__ import annotations

from typing import get_args

from rlgym_llm_trainers.algorithms.aggregate import LossAggMode
from rlgym_llm_trainers.algorithms.kl import KlKind

from rlgym_llm import config_schema


def test_kl_estimators_and_aggregations_are_spelled_the_same():
    # The core may not import the trainers, so the schema spells them again.
    assert set(get_args(config_schema.KlKind)) == set(KlKind)
    assert set(get_args(config_schema.LossAggMode)) == set(LossAggMode)
