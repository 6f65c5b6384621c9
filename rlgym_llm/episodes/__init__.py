"""Episodes side by side: one task of an event loop each, environments in threads."""
