"""Sampled ids to the texts of a completion, one way for every generator."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

__all__ = ["Detokenizer", "special_ids"]


def special_ids(tokenizer: Any) -> frozenset[int]:
    """All ids that ``skip_special_tokens`` leaves out, those without a role of their own too."""
    added = tokenizer.added_tokens_decoder
    return frozenset(tokenizer.all_special_ids) | {id_ for id_ in added if added[id_].special}


class Detokenizer:
    """Decodes what a model sampled, as `Completion.text` and `Completion.raw_text` want it."""

    def __init__(self, tokenizer: Any, eos_token_ids: Collection[int]) -> None:
        self._tokenizer = tokenizer
        self._eos_token_ids = frozenset(eos_token_ids)
        self._special_ids = special_ids(tokenizer)

    def __call__(self, rows: Sequence[Sequence[int]]) -> list[tuple[str, str | None]]:
        """For each row of ids its text without special tokens, and the raw text.

        The raw text has the special tokens, but for a closing end-of-text token; it is None where
        that is the same.
        """
        if not rows:  # a tokenizer takes an empty batch for an empty text
            return []
        texts = self._tokenizer.batch_decode([list(row) for row in rows], skip_special_tokens=True)
        return [
            (text, self._raw_text(list(row), text)) for row, text in zip(rows, texts, strict=True)
        ]

    def _raw_text(self, ids: list[int], text: str) -> str | None:
        if ids and ids[-1] in self._eos_token_ids:
            ids = ids[:-1]
        if self._special_ids.isdisjoint(ids):
            return None
        raw: str = self._tokenizer.decode(ids, skip_special_tokens=False)
        return raw if raw != text else None
