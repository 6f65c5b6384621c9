"""Kept sets between records and logits: seen where tokens are sampled, applied where they train.

Under top-k or top-p a token is sampled from its kept set K alone, with the log-prob
``z_t - logsumexp(z_j for j in K)`` of the tempered logits z. The learner's is the same only over
the same set, which cannot be found again from its own logits: they have moved since.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from rlgym_llm.kept_sets import KeptSets

__all__ = ["KeptRows", "KeptSetsRecorder", "fault_of", "padded_kept_sets"]


@dataclass(frozen=True, slots=True, eq=False)
class KeptRows:
    """The kept sets of N rows of logits, as tensors."""

    counts: Tensor  # [N], int64, 0 where nothing was cut
    ids: Tensor  # [sum of counts], int32, the sets of all rows one after the other

    def chunks(self, size: int) -> list[KeptRows]:
        """Those of ``size`` rows each, the last of fewer; at least one."""
        counts = torch.split(self.counts, size)
        ids = torch.split(self.ids, [int(part.sum()) for part in counts])
        return [KeptRows(*part) for part in zip(counts, ids, strict=True)]

    def cut(self, logits: Tensor) -> Tensor:
        """Logits [N, V] with -inf outside each row's set; rows of which nothing was cut stay.

        The set {0, 1}: [2, 1, 0] becomes [2, 1, -inf].
        """
        outside = (self.counts > 0)[:, None].repeat(1, logits.shape[-1])
        rows = torch.arange(len(logits), device=logits.device).repeat_interleave(self.counts)
        outside[rows, self.ids.long()] = False
        return logits.masked_fill(outside, -torch.inf)


class KeptSetsRecorder:
    """Collects the kept sets of a batch of requests while it is sampled."""

    def __init__(self, num_requests: int) -> None:
        self._counts: list[list[int]] = [[] for _ in range(num_requests)]
        self._ids: list[list[bytes]] = [[] for _ in range(num_requests)]

    def add(self, requests: np.ndarray, logits: Tensor) -> None:
        """One more token of each of ``requests`` [B], sampled from ``logits`` [B, V]: -inf is cut.

        A row of which nothing is cut takes no room.
        """
        is_kept = logits > -torch.inf
        is_kept &= ~is_kept.all(-1, keepdim=True)
        counts = is_kept.sum(-1).tolist()
        ids = is_kept.nonzero()[:, 1].to(torch.int32).cpu().numpy()
        ends = np.cumsum([0, *counts]).tolist()
        spans = pairwise(ends)
        for request, count, (start, end) in zip(requests.tolist(), counts, spans, strict=True):
            self._counts[request].append(count)
            self._ids[request].append(ids[start:end].tobytes())

    def of(self, request: int) -> KeptSets:
        """The kept sets of all tokens of one request."""
        return KeptSets(tuple(self._counts[request]), b"".join(self._ids[request]))


def fault_of(
    kept_sets: KeptSets, token_ids: Sequence[int], loss_mask: Sequence[bool]
) -> str | None:
    """What is wrong with the kept sets of a sequence of T tokens, None where nothing is.

    They belong to the tokens that were sampled, each of which is in its own.

    >>> fault_of(KeptSets.of([None, (3, 7)]), [1, 5], [False, True])
    'token 1 has the id 5, which is not in its own kept set'
    """
    counts, ids = np.array(kept_sets.counts), np.frombuffer(kept_sets.ids, dtype=np.int32)
    is_stray = (counts > 0) & ~np.array(loss_mask, dtype=bool)
    if is_stray.any():
        return f"token {is_stray.argmax()} has a kept set but was not sampled"
    places = np.arange(len(counts)).repeat(counts)
    is_outside = counts > 0
    is_outside[places[ids == np.array(token_ids)[places]]] = False
    if is_outside.any():
        place = int(is_outside.argmax())
        return f"token {place} has the id {token_ids[place]}, which is not in its own kept set"
    return None


def padded_kept_sets(
    kept_sets: Sequence[KeptSets | None], lengths: Sequence[int]
) -> tuple[Tensor, Tensor] | tuple[None, None]:
    """Counts [B, T], padded with 0, and ids [M] of the kept sets of B samples.

    A sample without any was sampled from all ids, each token of it. Where no sample has any the
    tensors are None, and nothing is ever cut.
    """
    if all(kept is None for kept in kept_sets):
        return None, None
    present = [
        KeptSets.uncut(length) if kept is None else kept
        for kept, length in zip(kept_sets, lengths, strict=True)
    ]
    counts = [torch.tensor(kept.counts, dtype=torch.int64) for kept in present]
    ids = np.frombuffer(b"".join(kept.ids for kept in present), dtype=np.int32)
    return torch.nn.utils.rnn.pad_sequence(counts, batch_first=True), torch.from_numpy(ids.copy())
