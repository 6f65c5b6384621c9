"""Exact forms of values, and their values in numbers."""
