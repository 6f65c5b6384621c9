"""Advantage estimators: pure functions from rewards (and values) to advantages on tokens.

An estimator is ``estimate(inputs: AdvantageInputs, **options) -> Advantages``; its keyword
options with defaults are its configuration. Statistics are in float64, siblings are found by their
group id, and what stands under mask 0 never enters.
"""

from __future__ import annotations

from rlgym_llm_trainers.algorithms.advantages.inputs import AdvantageInputs, Advantages

__all__ = ["AdvantageInputs", "Advantages"]
