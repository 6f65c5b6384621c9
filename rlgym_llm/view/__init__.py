"""Browsing rows: a page on this machine that shows what was scored, and why."""
