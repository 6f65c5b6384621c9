"""The strings that stand under the attributes of a class, read off its source."""

from __future__ import annotations

import ast
from itertools import pairwise

__all__ = ["attribute_docs"]


def attribute_docs(owner: ast.ClassDef) -> dict[str, str]:
    r"""The string under each attribute, by the attribute's name and on one line.

    >>> tree = ast.parse('class Limits:\n    size: int = 3\n    "Most tokens,\\n    all told."')
    >>> attribute_docs(tree.body[0])
    {'size': 'Most tokens, all told.'}
    """
    found = {}
    for attribute, below in pairwise(owner.body):
        match attribute, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = " ".join(text.split())
    return found
