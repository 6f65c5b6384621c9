"""A loop of somebody else's, run a turn at a time: it waits for a question before each of them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["Turns"]


class Turns:
    """A thread for ``loop``, which calls `wait` where a turn begins and `tell` where it ends.

    Who calls `ask` and the loop are never at work at the same time.

    >>> def loop(turns):
    ...     while True:
    ...         turns.tell({"double": 2 * turns.wait()["number"]})
    >>> turns = Turns(loop)
    >>> turns.ask({"number": 4}), turns.ask({"number": 5})
    ({'double': 8}, {'double': 10})
    """

    def __init__(self, loop: Callable[[Turns], None]) -> None:
        self._loop = loop
        self._questions: queue.Queue[Mapping[str, Any]] = queue.Queue()
        self._answers: queue.Queue[dict[str, float] | BaseException] = queue.Queue()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def ask(self, question: Mapping[str, Any]) -> dict[str, float]:
        """What the next turn ends with. Raises what the loop died of."""
        if self._thread.ident is None:
            self._thread.start()
        self._questions.put(question)
        answer = self._answers.get()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def wait(self) -> Mapping[str, Any]:
        """The next question; the loop's end of `ask`."""
        return self._questions.get()

    def tell(self, answer: Mapping[str, float]) -> None:
        """Answers the question that was waited for last."""
        self._answers.put(dict(answer))

    def _run(self) -> None:
        try:
            self._loop(self)
            self._answers.put(RuntimeError("the loop ended before this turn"))
        except BaseException as error:  # raised where somebody waits for an answer
            self._answers.put(error)
