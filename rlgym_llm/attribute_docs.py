"""The strings that stand under the attributes of a class, read off its source."""

from __future__ import annotations

import ast
import inspect
import textwrap
from itertools import pairwise

__all__ = ["attribute_docs", "class_docs"]


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


def class_docs(owner: type) -> dict[str, str]:
    """The string under each attribute of a class and its bases; empty without their source.

    >>> from rlgym_llm.rewards import Reward
    >>> class_docs(Reward)["version"]
    'Bumped when the same rollout would get another score.'
    """
    found: dict[str, str] = {}
    for cls in reversed(owner.__mro__):
        try:
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
        except (OSError, TypeError, SyntaxError, ValueError):  # built in, or made on the fly
            continue
        if isinstance(tree, ast.ClassDef):
            found |= attribute_docs(tree)
    return found
