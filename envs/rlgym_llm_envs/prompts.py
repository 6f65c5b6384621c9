"""The words a model is given before the problem itself."""

from typing import Final

__all__ = [
    "ANSWER_TAG_PROMPT",
    "BOXED_PROMPT",
    "SYSTEM_PROMPT",
    "TEXT_PROMPT",
    "THINK_ANSWER_PROMPT",
]

SYSTEM_PROMPT: Final = (
    "Reason step by step. End with a line that holds only #### and the final number."
)
"""System message of the math environments: asks for reasoning and the line strict scoring reads.

The starter model was trained under these words: a change calls for `scripts/build_starter.py`.
Example of a reply that obeys: ``"Tom has 5 + 3 = 8 pens.\\n#### 8"``.
"""

BOXED_PROMPT: Final = "Reason step by step. Put the final answer in one \\boxed{}."
"""For answers that are no plain number. Example of a reply that obeys: ``"So \\boxed{5/6}"``."""

ANSWER_TAG_PROMPT: Final = (
    "Reason step by step. End with the answer between <answer> and </answer> and nothing after it."
)
"""Example of a reply that obeys: ``"5 * 5 is 25.\\n<answer>5 * 5 - 1</answer>"``."""

THINK_ANSWER_PROMPT: Final = (
    "First think between <think> and </think>, then answer between <answer> and </answer>. "
    "Write nothing outside of the two."
)
"""The layout of DeepSeek-R1-Zero. Example: ``"<think>5 + 3</think><answer>8</answer>"``."""

TEXT_PROMPT: Final = "Reply with the answer alone."
"""For answers that are compared as text."""
