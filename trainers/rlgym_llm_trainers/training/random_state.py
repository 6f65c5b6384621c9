"""The states of a process's own random generators, as JSON data.

Everything here draws from generators of its own, seeded by step and task; these are for what a
plugin draws from the common ones.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlgym_llm.errors import DataError, describe

__all__ = ["load_random_state", "random_state"]


def random_state() -> dict[str, Any]:
    """The states of ``random``, numpy and torch, on every CUDA device too."""
    version, words, gauss = random.getstate()
    kind, keys, *rest = np.random.get_state(legacy=True)
    return {
        "python": [version, list(words), gauss],
        "numpy": [kind, np.asarray(keys).tolist(), *rest],
        "torch": _to_hex(torch.get_rng_state()),
        "cuda": [_to_hex(state) for state in _cuda_states()],
    }


def load_random_state(state: Mapping[str, Any], *, path: Path | None = None) -> None:
    """Puts the generators where `random_state` found them; a device that is not there is left.

    Raises DataError, with the file it came from, for what is no such state.
    """
    try:
        version, words, gauss = state["python"]
        random.setstate((version, tuple(words), gauss))
        kind, keys, *rest = state["numpy"]
        np.random.set_state((kind, np.array(keys, dtype=np.uint32), *rest))
        torch.set_rng_state(_from_hex(state["torch"]))
        for device, found in enumerate(state["cuda"][: len(_cuda_states())]):
            torch.cuda.set_rng_state(_from_hex(found), device)
    except (LookupError, TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        raise DataError(f"random: no state of generators: {describe(error)}", path=path) from error


def _cuda_states() -> list[torch.Tensor]:
    if not torch.cuda.is_available():
        return []
    states: list[torch.Tensor] = torch.cuda.get_rng_state_all()
    return states


def _to_hex(state: torch.Tensor) -> str:
    return state.cpu().numpy().tobytes().hex()


def _from_hex(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray.fromhex(text), dtype=torch.uint8)
