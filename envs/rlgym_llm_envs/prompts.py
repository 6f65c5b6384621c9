"""The words a model is given before the problem itself."""

from typing import Final

__all__ = ["SYSTEM_PROMPT"]

SYSTEM_PROMPT: Final = (
    "Reason step by step. End with a line that holds only #### and the final number."
)
"""System message of the math environments: asks for reasoning and the line strict scoring reads.

The starter model was trained under these words: a change calls for `scripts/build_starter.py`.
Example of a reply that obeys: ``"Tom has 5 + 3 = 8 pens.\\n#### 8"``.
"""
