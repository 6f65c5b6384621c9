"""Scorers: one reward under the backend that isolates it as far as it needs."""
