"""Asks sympy, in a sandbox, whether two values are equal: bounded in time and memory."""

from __future__ import annotations

import os
from functools import lru_cache

from rlgym_llm.sandbox import OutcomeStatus, Sandbox
from rlgym_llm_rewards.math.parsing.nodes import Node, to_json
from rlgym_llm_rewards.math.values import Prove, UndecidedError
from rlgym_llm_rewards.math.verdict import VerdictStatus

__all__ = ["DEADLINE_S", "MEMORY_MB", "NUM_WORKERS", "prover", "sandbox"]

DEADLINE_S = 0.5
"""Longest proof. All proofs of one verdict together take less than twice as long."""
MEMORY_MB = 768
NUM_WORKERS = min(4, os.cpu_count() or 1)
"""Most sympy processes that one process starts; each starts when it is first needed."""


@lru_cache(maxsize=1)
def sandbox() -> Sandbox:
    """This process's workers; they start when the first proof is asked for."""
    return Sandbox(
        "rlgym_llm_rewards.math.symbolic:prove",
        num_workers=NUM_WORKERS,
        deadline_s=DEADLINE_S,
        memory_mb=MEMORY_MB,
    )


def prover() -> Prove:
    """A `Prove` for one verdict, with its budget of time."""
    spent = 0.0

    def prove(left: Node, right: Node) -> bool | None:
        nonlocal spent
        if spent > 0.8 * DEADLINE_S:
            raise UndecidedError(VerdictStatus.TIMEOUT, "the proofs together took too long")
        outcome = sandbox().call([to_json(left), to_json(right)])
        spent += outcome.seconds
        if outcome.status is OutcomeStatus.OK:
            value: bool | None = outcome.value
            return value
        if outcome.status is OutcomeStatus.ERROR:
            return None
        raise UndecidedError(VerdictStatus.TIMEOUT, f"sympy: {outcome.error}")

    return prove
