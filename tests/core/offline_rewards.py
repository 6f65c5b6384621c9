"""Rewards that misbehave where the completion asks for it."""

import os
import re
import signal
import time

from rlgym_llm import reward


def hostile(completion, answer):
    if "HANG" in completion:
        time.sleep(1000)
    if "SPIN" in completion:  # holds the interpreter lock: no thread of the process can end it
        re.match(r"(a+)+$", "a" * 60 + "b")
    if "SIGKILL" in completion:
        os.kill(os.getpid(), signal.SIGKILL)
    if "EXIT" in completion:
        os._exit(3)
    if "RAISE" in completion:
        raise ValueError("no")
    if "NAN" in completion:
        return float("nan")
    if "TEXT" in completion:
        return "good"
    if "EAT" in completion:
        return float(len(b"x" * (10 << 30)))
    return float(len(completion))


@reward("siblings", scope="group")
def siblings(completions):
    return [float(len(completions))] * len(completions)


@reward("too_few", scope="group")
def too_few(completions):
    return [1.0] * (len(completions) - ("SHORT" in "".join(completions)))


@reward("odd_info")
def odd_info(completion):
    from rlgym_llm import Score

    return Score(
        name="odd_info",
        value=1.0,
        info={
            "nan": float("nan"),
            "set": {"b", "a"},
            "half": "\ud800",
            "object": object(),
            3: (1,),
        },
    )
