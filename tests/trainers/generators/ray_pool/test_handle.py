"""What failures mean to the pool."""

from __future__ import annotations

import asyncio

import pytest
from rlgym_llm_trainers.generators.ray_pool.handle import (
    ActorGoneError,
    DeadlineError,
    cause_of_death,
    in_words,
    is_final,
    within,
)

from rlgym_llm.errors import ConfigError, GeneratorError


def test_a_bad_request_and_a_bad_setting_are_final_and_a_death_is_not():
    marked = GeneratorError("the context is full")
    marked.is_final = True
    assert all(map(is_final, (ValueError("x"), ConfigError("x"), marked)))
    others = (ActorGoneError("x"), DeadlineError("x"), GeneratorError("x"), RuntimeError("x"))
    assert not any(map(is_final, others))


def test_an_error_is_told_in_one_line_with_a_strangers_kind():
    assert in_words(GeneratorError("a\n  b")) == "a b"
    assert in_words(KeyError("x")) == "KeyError: 'x'"
    assert in_words(RuntimeError()) == "RuntimeError"


DIED = (
    "The actor died unexpectedly before finishing this task.\n\tclass_name: A\n\tpid: 7\n"
    "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker "
    "exit detail: {} Some common causes include: (1) the process was killed by the OOM killer"
)


@pytest.mark.parametrize(
    ("told", "cause"),
    [
        (
            DIED.format("Worker unexpectedly exits with a connection error code 2. End of file."),
            "its process was killed or crashed; the system's log tells whether memory ran out",
        ),
        (DIED.format("The node ran low on memory."), "The node ran low on memory."),
        ("The actor died.", "The actor died."),
        ("", ""),
        ("word " * 60, "word " * 39 + "..."),
    ],
)
def test_of_what_ray_tells_of_a_death_the_cause_is_left(told, cause):
    assert cause_of_death(told) == cause


def test_a_deadline_is_told_apart_from_a_timeout_inside():
    async def hang():
        await asyncio.sleep(60)

    async def time_out():
        raise TimeoutError("of its own")

    with pytest.raises(DeadlineError, match=r"actor-0 did not answer within 0.01 s"):
        asyncio.run(within(0.01, hang(), "actor-0 did not answer"))
    with pytest.raises(TimeoutError, match="of its own"):
        asyncio.run(within(60, time_out(), "actor-0 did not answer"))
    assert asyncio.run(within(None, asyncio.sleep(0, "done"), "it")) == "done"
