"""The examples in docstrings are true."""

import doctest
import importlib
import pkgutil

import pytest
import rlgym_llm_envs
import rlgym_llm_rewards
import rlgym_llm_trainers

import rlgym_llm

MODULES = sorted(
    module.name
    for package in (rlgym_llm, rlgym_llm_envs, rlgym_llm_rewards, rlgym_llm_trainers)
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + ".")
    if not module.name.endswith("sandbox_worker")  # a program, and no module
)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    found = doctest.testmod(importlib.import_module(name))
    assert found.failed == 0
