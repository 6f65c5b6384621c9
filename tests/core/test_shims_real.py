"""The shims under the real trainers, each in an environment of its own, made on the first run."""

from __future__ import annotations

import pytest

# How many claims each benchmark checks: one that is left out would pass unseen.
CHECKS = {"trl": 30, "verl": 8, "openrlhf": 4}


@pytest.mark.slow
@pytest.mark.timeout(3600)  # the first run installs the trainer
@pytest.mark.parametrize("trainer", CHECKS)
def test_the_real_trainer_scores_as_the_composer_does(claims_held, trainer):
    assert len(claims_held(f"{trainer}_shim.py")) == CHECKS[trainer]
