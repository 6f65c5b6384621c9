"""The words of `rlgym eval` and `rlgym rollout`."""
