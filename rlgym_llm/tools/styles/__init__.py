"""Ways of writing a tool call, one a file: each reads its calls in a text and writes them."""

__all__: list[str] = []
