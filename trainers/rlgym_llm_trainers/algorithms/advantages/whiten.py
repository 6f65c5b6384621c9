"""Whitening: values moved to mean 0 and variance 1 over all that count."""

from __future__ import annotations

import math

import numpy as np

from rlgym_llm_trainers.algorithms.advantages.inputs import Bools, Floats

__all__ = ["whiten"]

_EPS = 1e-8
"""verl's, added to the variance."""


def whiten(values: Floats, mask: Bools) -> Floats:
    """``(x - mean) / sqrt(var + 1e-8)`` over the mask, unbiased variance; 0 off the mask.

    Fewer than two values have no variance: they come back as they are. Equal values give exactly
    0. What stands off the mask never enters; it may be NaN.

    >>> whiten(np.array([[1.0, 9.0, 3.0]]), np.array([[True, False, True]])).round(4).tolist()
    [[-0.7071, 0.0, 0.7071]]
    """
    kept = values[mask]
    if len(kept) >= 2:
        if kept.max() == kept.min():
            kept = np.zeros_like(kept)
        else:
            kept = (kept - kept.mean()) / math.sqrt(float(kept.var(ddof=1)) + _EPS)
    whitened = np.zeros(values.shape, dtype=np.float64)
    whitened[mask] = kept
    return whitened
