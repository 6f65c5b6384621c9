"""Tools: typed Python functions that a policy may call, and the ways in which models call them."""

__all__: list[str] = []
