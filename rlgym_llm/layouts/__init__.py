"""Layouts: which column of a foreign row means what, and rows of one layout as those of another."""
