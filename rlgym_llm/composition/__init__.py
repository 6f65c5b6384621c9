"""Composition: what the scores of one rollout come to, as one reward."""
