"""One side of the verifier benchmark, as a process: rows come in as JSON lines, verdicts go out.

    python verifier_sides.py math-verify    # inside an environment that has it

Imports nothing but its side, so that it runs in the environments of the peers. The first line out
tells the side's version. A request ``{"rows": [[completion, gold], ...], "bare": true}`` is
answered with ``{"seconds": ..., "statuses": [...]}``; ``bare`` says that completions may be an
answer and nothing else, as those of the corpus are.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from types import SimpleNamespace
from typing import Any

Judge = Callable[[str, str, bool], str]
"""Completion, gold and whether the completion may be bare, to a status such as ``correct``."""
WARM_UP = [
    ["\\boxed{\\sin^2 x + \\cos^2 x}", "1"],
    ["so 1 + 1 = 2\n\\boxed{2}", "2"],
    ["The answer is $x + 1$.", "1 + x"],
    ["(1, 2)", "(1,2)"],
]


def ours() -> Judge:
    """`verify` with the default policy and every cache off: each gold is parsed anew."""
    verify = importlib.import_module("rlgym_llm_rewards.math").verify
    for completion, gold in WARM_UP:  # what is loaded on first use is loaded now
        verify(completion, gold)
    caches_off("rlgym_llm_rewards")
    module = sys.modules[verify.__module__]
    return lambda completion, gold, _: str(vars(module)[verify.__name__](completion, gold).status)


def caches_off(package: str) -> None:
    """Puts the bare function in the place of each one of the package that remembers results.

    Functions without parameters are left: those only load something once.
    """
    modules = [module for name, module in sys.modules.items() if name.startswith(package)]
    for module in modules:
        for name, value in list(vars(module).items()):
            if hasattr(value, "cache_clear") and inspect.signature(value).parameters:
                value.cache_clear()
                setattr(module, name, value.__wrapped__)


def math_verify() -> Judge:
    """Best practice: gold boxed, boxes first, a bare answer between dollars, default timeouts."""
    library = importlib.import_module("math_verify")
    config = [library.LatexExtractionConfig(boxed_match_priority=0), library.ExprExtractionConfig()]

    def judge(completion: str, gold: str, bare: bool) -> str:
        if "\\boxed" not in gold:
            gold = f"\\boxed{{{gold}}}"
        if bare and "$" not in completion and "\\boxed" not in completion:
            completion = f"${completion}$"
        gold_parsed = library.parse(gold, config)
        return _status(library.verify(gold_parsed, library.parse(completion, config)))

    return judge


def nemo_skills() -> Judge:
    """Its own extraction: a box, else "The final answer is"; else the last line's last word."""
    grader = importlib.import_module("nemo_skills.evaluation.math_grader")

    def judge(completion: str, gold: str, bare: bool) -> str:
        answer = grader.extract_answer(completion, relaxed=True)
        if answer is None:  # it asks for a prompt that makes the model box: meet it half-way
            answer = completion if bare else completion.split()[-1].rstrip(".")
        return _status(grader.math_equal(gold, answer))

    return judge


def inspect_ai() -> Callable[[str, str, bool], Awaitable[str]]:
    """The scorer ``math()`` with its default timeout; an unreadable gold raises in it."""
    scorer = importlib.import_module("inspect_ai.scorer")
    score = scorer.math()

    async def judge(completion: str, gold: str, _: bool) -> str:
        state = SimpleNamespace(output=SimpleNamespace(completion=completion))
        return _status((await score(state, scorer.Target([gold]))).value == "C")

    return judge


def _status(correct: bool) -> str:
    return "correct" if correct else "wrong"


SIDES: dict[str, tuple[Callable[[], Callable[..., Any]], str]] = {
    "ours": (ours, "rlgym-llm"),
    "math-verify": (math_verify, "math-verify"),
    "inspect-ai": (inspect_ai, "inspect-ai"),
    "nemo-skills": (nemo_skills, "nemo_skills"),
}


async def grade(judge: Callable[..., Any], rows: Iterable[list[str]], bare: bool) -> dict[str, Any]:
    """The statuses of the rows and the seconds; what a grader raises is its verdict on a row."""
    is_async = inspect.iscoroutinefunction(judge)
    statuses = []
    started = time.perf_counter()
    for completion, gold in rows:
        try:
            status = judge(completion, gold, bare)
            statuses.append(await status if is_async else status)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # math-verify's timeout is no Exception
            statuses.append(f"error: {type(error).__name__}")
    return {"seconds": time.perf_counter() - started, "statuses": statuses}


def main() -> None:
    """Serves requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a grader prints must not land among the answers
    logging.disable(logging.CRITICAL)
    make, package = SIDES[sys.argv[1]]
    judge = make()
    asyncio.run(grade(judge, WARM_UP, True))
    try:
        release = version(package)
    except PackageNotFoundError:
        release = "unknown"
    print(json.dumps({"version": release}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        reply = asyncio.run(grade(judge, request["rows"], request["bare"]))
        print(json.dumps(reply), file=answers, flush=True)


if __name__ == "__main__":
    main()
