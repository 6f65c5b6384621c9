"""Every regular expression of the verifier, compiled: they are lazy, so no import would tell."""

from __future__ import annotations

import importlib
import pkgutil
import re

import pytest
import rlgym_llm_rewards.math

from rlgym_llm.lazy_pattern import _LazyPattern

MODULES = [
    importlib.import_module(found.name)
    for found in pkgutil.walk_packages(rlgym_llm_rewards.math.__path__, "rlgym_llm_rewards.math.")
]
PATTERNS = [
    pytest.param(value, id=f"{module.__name__.removeprefix('rlgym_llm_rewards.')}.{name}")
    for module in MODULES
    for name, value in vars(module).items()
    if isinstance(value, _LazyPattern)
]


def test_there_are_patterns():
    assert len(PATTERNS) > 100


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_lazy_pattern_is_that_of_re(pattern):
    expected = re.compile(pattern.pattern, pattern.given_flags)
    assert pattern.flags == expected.flags
    assert pattern.groupindex == expected.groupindex
    for text in ("", "x = 42", r"so \boxed{42} is wrong", "<think>7</think>\n#### 8\n"):
        assert [m.span() for m in pattern.finditer(text)] == [
            m.span() for m in expected.finditer(text)
        ]
