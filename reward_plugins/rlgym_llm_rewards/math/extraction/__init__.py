"""Finds the final answer in a completion."""
