"""The two clips of a policy loss: what they may be, and how often they hold."""

from __future__ import annotations

from torch import Tensor

__all__ = ["check_clips", "clip_shares"]


def check_clips(clip_low: float, clip_high: float) -> None:
    """Raises ValueError where one of the clips is below 0, or no number."""
    if not (clip_low >= 0 and clip_high >= 0):
        raise ValueError(f"clip_low {clip_low} and clip_high {clip_high} must be at least 0")


def clip_shares(is_high: Tensor, is_low: Tensor) -> dict[str, Tensor]:
    """The metrics of which tokens [B, T] the upper and the lower clip hold, by their names."""
    return {
        "actor/pg_clipfrac": is_high | is_low,
        "actor/clip_ratio/high_mean": is_high,
        "actor/clip_ratio/low_mean": is_low,
    }
