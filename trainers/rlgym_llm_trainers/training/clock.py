"""Wall-clock seconds of the phases of a step."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Clock"]


class Clock:
    """Times named phases; ``with clock("gen"): ...`` becomes ``timing_s/gen``."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Adds the time that the block takes to ``phase``."""
        started = time.perf_counter()
        yield
        elapsed = time.perf_counter() - started
        self._seconds[phase] = self._seconds.get(phase, 0.0) + elapsed

    def metrics(self, *, num_tokens: int, num_ranks: int = 1) -> dict[str, float]:
        """``timing_s/<phase>``, ``timing_s/step`` since construction, and ``perf/*`` of it.

        ``perf/throughput`` is tokens a second and rank, as verl has it.
        """
        total = time.perf_counter() - self._started
        return {
            **{f"timing_s/{phase}": seconds for phase, seconds in self._seconds.items()},
            "timing_s/step": total,
            "perf/time_per_step": total,
            "perf/total_num_tokens": float(num_tokens),
            "perf/throughput": num_tokens / total / num_ranks,
        }
