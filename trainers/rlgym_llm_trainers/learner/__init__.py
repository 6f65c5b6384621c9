"""Rollouts and score cards to one optimizer step."""
