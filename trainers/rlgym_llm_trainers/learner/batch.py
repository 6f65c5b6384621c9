"""Samples as right-padded tensors.

Masks come from lengths and from who wrote a token, never from token values: a pad id may equal an
end-of-text id. What stands at t speaks of token t, as in the samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from rlgym_llm_trainers.algorithms.kept_sets import KeptRows, padded_kept_sets
from rlgym_llm_trainers.learner.sample import CONTEXT_VERSION, Stream, TrainingSample

__all__ = ["Batch", "collate"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """Samples as tensors, padded on the right to the longest: [B, T]."""

    input_ids: Tensor  # [B, T], int64
    attention_mask: Tensor  # [B, T], int64, 1 on real tokens
    position_ids: Tensor  # [B, T], int64, 0 on padding
    loss_mask: Tensor  # [B, T], bool
    rollout_logprobs: Tensor  # [B, T], float32
    policy_versions: Tensor  # [B, T], int64, `CONTEXT_VERSION` on context and padding
    advantages: Tensor | None = None  # [B, T], float32
    returns: Tensor | None = None  # [B, T], float32
    values: Tensor | None = None  # [B, T], float32
    old_logprobs: Tensor | None = None  # [B, T], float32
    ref_logprobs: Tensor | None = None  # [B, T], float32
    is_weights: Tensor | None = None  # [B, T], float32
    kept_counts: Tensor | None = None  # [B, T], int64, sizes of the kept sets, 0 where uncut
    kept_ids: Tensor | None = None  # [sum of kept_counts], int32, row after row

    @property
    def kept_rows(self) -> KeptRows | None:
        """Kept sets of the N trained tokens, in the order of ``loss_mask``; None without any."""
        if self.kept_counts is None or self.kept_ids is None:
            return None
        return KeptRows(self.kept_counts[self.loss_mask], self.kept_ids)

    @property
    def accepted_mask(self) -> Tensor:
        """The loss mask [B, T] without the tokens that were rejected, whose weight is 0."""
        if self.is_weights is None:
            return self.loss_mask
        return self.loss_mask & (self.is_weights != 0)  # NaN stays, to be seen in the loss

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on ``device``."""
        tensors: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        moved: dict[str, Any] = {
            name: None if tensor is None else tensor.to(device) for name, tensor in tensors.items()
        }
        return Batch(**moved)


def collate(samples: Sequence[TrainingSample], pad_id: int) -> Batch:
    """Pads the samples on the right with ``pad_id``, which may be the id of a real token.

    Streams that no sample has are None in the batch; ValueError where only some have one. Kept sets
    may be of some samples alone: the others were sampled from all ids.
    """
    if not samples:
        raise ValueError("a batch needs at least one sample")
    lengths = torch.tensor([sample.num_tokens for sample in samples])
    positions = torch.arange(int(lengths.max())).expand(len(samples), -1)
    is_real = positions < lengths[:, None]

    def column(name: str, fill: float, dtype: torch.dtype) -> Tensor:
        rows = [torch.tensor(getattr(sample, name), dtype=dtype) for sample in samples]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=fill)

    def optional(name: Stream) -> Tensor | None:
        num_having = sum(getattr(sample, name) is not None for sample in samples)
        if num_having not in (0, len(samples)):
            raise ValueError(f"only {num_having} of {len(samples)} samples have {name}")
        return column(name, 0.0, torch.float32) if num_having else None

    kept_counts, kept_ids = padded_kept_sets([s.kept_sets for s in samples], lengths.tolist())
    return Batch(
        input_ids=column("token_ids", pad_id, torch.int64),
        attention_mask=is_real.long(),
        position_ids=positions * is_real,
        loss_mask=column("loss_mask", False, torch.bool),
        rollout_logprobs=column("rollout_logprobs", 0.0, torch.float32),
        policy_versions=column("policy_versions", CONTEXT_VERSION, torch.int64),
        advantages=optional("advantages"),
        returns=optional("returns"),
        values=optional("values"),
        old_logprobs=optional("old_logprobs"),
        ref_logprobs=optional("ref_logprobs"),
        is_weights=optional("is_weights"),
        kept_counts=kept_counts,
        kept_ids=kept_ids,
    )
