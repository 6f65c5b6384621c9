"""Rewards for other trainers and from them: verl, TRL and OpenRLHF. None of them is imported.

One module a trainer; each goes both ways, and every direction scores by `RewardComposer`.
"""

from __future__ import annotations

__all__: list[str] = []
