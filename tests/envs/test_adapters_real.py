"""The adapters on the real packages, each in an environment of its own, made on the first run."""

from __future__ import annotations

import pytest

# How many claims each benchmark checks: one that is left out would pass unseen.
CHECKS = {"reasoning_gym": 535, "gem": 34, "verifiers": 31}


@pytest.mark.slow
@pytest.mark.timeout(3600)  # the first run installs the package
@pytest.mark.parametrize("package", CHECKS)
def test_the_real_package_plays_here_as_it_says(claims_held, package):
    assert len(claims_held(f"{package}_adapter.py")) == CHECKS[package]
