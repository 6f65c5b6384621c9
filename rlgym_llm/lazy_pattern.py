"""Regular expressions that are compiled when they are first used."""

from __future__ import annotations

import re
from typing import Any, cast

__all__ = ["lazy_pattern"]


def lazy_pattern(pattern: str, flags: int = 0) -> re.Pattern[str]:
    r"""As ``re.compile``, but that nothing is compiled before the first use.

    A package of a hundred expressions takes a third of a second to compile them, and most texts
    need few. What is wrong with one shows at its first use, so a test should use each.

    >>> digits = lazy_pattern(r"\d+")
    >>> digits.findall("12 + 60"), digits.pattern
    (['12', '60'], '\\d+')
    """
    return cast("re.Pattern[str]", _LazyPattern(pattern, flags))


class _LazyPattern:
    def __init__(self, pattern: str, flags: int) -> None:
        self.pattern = pattern
        self.given_flags = flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = getattr(re.compile(self.pattern, self.given_flags), name)
        setattr(self, name, value)  # from now on an attribute like any other
        return value
