"""A model on disk, in memory, and its text."""
