"""Whether text leads back to the ids it came from. Training never depends on it: ids are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlgym_llm.types import Completion

__all__ = ["extends", "has_drift"]


def has_drift(encode: Callable[[str], Sequence[int]], completion: Completion) -> bool:
    """Whether encoding the completion's text gives other ids than were sampled.

    ``encode`` adds no special tokens; the closing end-of-text token is not in the text. A policy
    that sampled "he" + "llo" where its tokenizer writes "hello" as one token has drift:

    >>> sampled = Completion(text="hello ", token_ids=(1, 2, 4))
    >>> has_drift({"hello ": (3, 4)}.__getitem__, sampled)
    True
    """
    text = completion.raw_text if completion.raw_text is not None else completion.text
    encoded = tuple(encode(text))
    return encoded not in (completion.token_ids, completion.token_ids[:-1])


def extends(previous: Sequence[object], rendered: Sequence[object]) -> bool:
    """Whether ``rendered`` begins with all of ``previous``: whether a turn only adds to the last.

    False where a template leaves out the thinking of earlier turns:

    >>> extends(["U1", "<t>", "why", "</t>", "A1"], ["U1", "A1", "U2"])
    False
    >>> extends(["U1", "A1"], ["U1", "A1", "U2"])
    True
    """
    return list(rendered[: len(previous)]) == list(previous)
