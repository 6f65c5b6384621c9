"""Generators in processes of their own: Ray actors, and the pool that keeps them busy and alive."""
