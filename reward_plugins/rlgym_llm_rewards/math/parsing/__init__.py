"""Reads LaTeX and plain mathematics into a tree."""
