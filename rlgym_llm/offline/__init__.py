"""Offline scoring: rows of files in, the same rows with their scores out, by the one composer."""
