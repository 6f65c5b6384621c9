"""Functions for tests of tools that other processes import."""

import os
import time

from rlgym_llm.tools.tool import tool


@tool
def shout(text: str, times: int = 1) -> str:
    """Makes a text loud.

    Args:
        text: What to shout.
        times: How often.
    """
    return " ".join([text.upper()] * times)


def whisper(text: str) -> str:
    """Makes a text quiet."""
    return text.lower()


@tool(isolated=True, timeout_s=1.0)
def apart(what: str) -> str:
    """Does what it is told, in a process of its own."""
    if what == "sleep":
        time.sleep(60)
    if what == "die":
        os._exit(3)
    if what == "raise":
        raise KeyError("no such thing")
    return what
