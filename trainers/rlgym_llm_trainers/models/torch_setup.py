"""Sets torch up for one process: how its threads wait, how many there are, and its seed."""

from __future__ import annotations

import os

__all__ = ["set_up_torch"]


def set_up_torch(*, num_threads: int | None, seed: int) -> None:
    """Imports torch, with ``num_threads`` threads a matrix product where that is given."""
    # Before torch loads OpenMP: threads that wait by spinning make training many times slower on a
    # machine that does anything else (docs/performance.md).
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Read as it loads: its C++ side, and what vLLM adds to that, tell the terminal of each start.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    import torch

    if num_threads is not None:
        torch.set_num_threads(num_threads)
    torch.manual_seed(seed)
