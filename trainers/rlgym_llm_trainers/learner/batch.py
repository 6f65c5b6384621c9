"""Rollouts to training samples, samples to right-padded tensors, batches to micro-batches.

One alignment everywhere: streams span the whole sequence, prompt included, and what stands at t
speaks of token t. Masks come from lengths and from who wrote a token, never from token values: a
pad id may equal an end-of-text id.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import torch
from torch import Tensor

from rlgym_llm.errors import GeneratorError, UserError
from rlgym_llm.kept_sets import KeptSets
from rlgym_llm.types import Rollout
from rlgym_llm_trainers.algorithms.kept_sets import KeptRows, fault_of, padded_kept_sets

__all__ = [
    "CONTEXT_VERSION",
    "Batch",
    "Stream",
    "TrainingSample",
    "collate",
    "sample_from_rollout",
    "split_micro_batches",
]

CONTEXT_VERSION = -1
"""Policy version of tokens that no policy sampled: prompts and the environment's replies."""

Stream = Literal["advantages", "returns", "values", "old_logprobs", "ref_logprobs", "is_weights"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSample:
    """One sequence to learn from, as plain data: equal-length streams over its T tokens.

    Prompt [1, 2] and reply [4, 5] sampled under version 3: ``token_ids`` (1, 2, 4, 5),
    ``loss_mask`` (False, False, True, True), ``rollout_logprobs`` (0, 0, -0.1, -0.2),
    ``policy_versions`` (-1, -1, 3, 3).

    Raises ValueError where lengths differ, the first token is trained (nothing predicts it), a
    trained token has no finite log-prob or no version, or a kept set is not of a trained token or
    lacks it.
    """

    token_ids: tuple[int, ...]
    loss_mask: tuple[bool, ...]
    """True on the tokens the policy sampled, a closing end-of-text token included."""
    rollout_logprobs: tuple[float, ...]
    """Of the policy and temperature that sampled; 0 on context."""
    policy_versions: tuple[int, ...]
    """Of the policy that sampled each token; `CONTEXT_VERSION` on context."""
    rollout_id: str
    group_id: str
    sample_index: int
    advantages: tuple[float, ...] | None = None
    returns: tuple[float, ...] | None = None
    """What a critic is trained towards."""
    values: tuple[float, ...] | None = None
    """Of the critic before the update: of the state in which each token was sampled."""
    old_logprobs: tuple[float, ...] | None = None
    """Of the policy before the first update; None where the generator's log-probs are those."""
    ref_logprobs: tuple[float, ...] | None = None
    """Of the reference policy."""
    is_weights: tuple[float, ...] | None = None
    """How many times each token's loss counts; 0 on what was rejected. None where all count 1."""
    multiplicity: int = 1
    """How many times the sample counts, as so many equal ones would; 0 keeps its place in a
    mini-batch alone."""
    kept_sets: KeptSets | None = None
    """What each token was sampled from and every log-prob of it is over; None where it was all
    ids. Nothing is cut on context."""

    def __post_init__(self) -> None:
        length = len(self.token_ids)
        if length == 0:
            raise ValueError(f"sample of rollout {self.rollout_id} has no tokens")
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, tuple | KeptSets) and len(value) != length:
                raise ValueError(
                    f"sample of rollout {self.rollout_id}: {length} token_ids but "
                    f"{len(value)} {field.name}"
                )
        if self.loss_mask[0] or self.rollout_logprobs[0] != 0:
            raise ValueError(
                f"sample of rollout {self.rollout_id}: nothing predicts its first token, which "
                "must stand under mask 0 with log-prob 0"
            )
        for t, is_trained in enumerate(self.loss_mask):
            if is_trained and not math.isfinite(self.rollout_logprobs[t]):
                raise ValueError(
                    f"sample of rollout {self.rollout_id}: token {t} was sampled with log-prob "
                    f"{self.rollout_logprobs[t]}"
                )
            if is_trained and self.policy_versions[t] < 0:
                raise ValueError(
                    f"sample of rollout {self.rollout_id}: no version for trained token {t}"
                )
        fault = self.kept_sets and fault_of(self.kept_sets, self.token_ids, self.loss_mask)
        if fault:
            raise ValueError(f"sample of rollout {self.rollout_id}: {fault}")

    @property
    def num_tokens(self) -> int:
        """Length T of the whole sequence."""
        return len(self.token_ids)

    @property
    def num_trained_tokens(self) -> int:
        """Number of tokens under mask 1, those that were rejected included."""
        return sum(self.loss_mask)


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


def sample_from_rollout(rollout: Rollout, *, is_cut: bool = False) -> TrainingSample:
    """The rollout's own token ids in order, mask 1 on what was sampled and 0 on what was read.

    Raises ValueError where a turn's completion has no log-probs, or its version spans do not
    cover each token exactly once: what sampled a token is known, or it is not trained on. For the
    same reason GeneratorError where top-k or top-p was to cut (``is_cut``) and there are no kept
    sets.
    """
    token_ids: list[int] = []
    loss_mask: list[bool] = []
    logprobs: list[float] = []
    versions: list[int] = []
    kept_sets: list[KeptSets] = []
    has_kept_sets = any(turn.completion.kept_token_ids is not None for turn in rollout.turns)
    for index, turn in enumerate(rollout.turns):
        completion = turn.completion
        if completion.logprobs is None:
            raise ValueError(f"rollout {rollout.id}, turn {index}: its generator gave no log-probs")
        kept = completion.kept_token_ids
        if is_cut and kept is None:
            raise GeneratorError(
                f"rollout {rollout.id}, turn {index}: its generator did not say which tokens top-k "
                "and top-p left, so its log-probs cannot be compared; train with "
                "--rollout.top_p 1 --rollout.top_k -1, or with --rollout.name hf"
            )
        num_context = len(turn.new_prompt_token_ids)
        token_ids += [*turn.new_prompt_token_ids, *completion.token_ids]
        loss_mask += [False] * num_context + [True] * completion.num_tokens
        logprobs += [0.0] * num_context + list(completion.logprobs)
        spans = sorted(completion.version_spans)
        sampled = [version for start, end, version in spans for _ in range(start, end)]
        ends = [0, *(end for _, end, _ in spans)]
        if [start for start, _, _ in spans] != ends[:-1] or ends[-1] != completion.num_tokens:
            raise ValueError(
                f"rollout {rollout.id}, turn {index}: version spans {spans} do not cover its "
                f"{completion.num_tokens} tokens"
            )
        versions += [CONTEXT_VERSION] * num_context + sampled
        if has_kept_sets:
            kept = KeptSets.uncut(completion.num_tokens) if kept is None else kept
            kept_sets += [KeptSets.uncut(num_context), kept]
    return TrainingSample(
        token_ids=tuple(token_ids),
        loss_mask=tuple(loss_mask),
        rollout_logprobs=tuple(logprobs),
        policy_versions=tuple(versions),
        kept_sets=KeptSets.join(kept_sets) if has_kept_sets else None,
        rollout_id=rollout.id,
        group_id=rollout.group_id,
        sample_index=rollout.sample_index,
    )


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


def split_micro_batches(
    samples: Sequence[TrainingSample], micro_size: int, *, max_tokens: int | None = None
) -> list[list[TrainingSample]]:
    """Parts of at most ``micro_size`` sequences each; every sample is in exactly one.

    Sorted by length (longest first, so that the peak of memory comes first; ties stay in order),
    a part pads little. Lengths 5, 2, 4, 3 by twos: [5, 4], [3, 2]. With ``max_tokens`` a part has
    no more tokens than that, its padding included; UserError where one sample has. By 6: [5],
    [4], [3, 2].
    """
    if micro_size < 1:
        raise ValueError(f"micro_size must be at least 1, got {micro_size}")
    ordered = sorted(samples, key=lambda sample: sample.num_tokens, reverse=True)
    parts: list[list[TrainingSample]] = []
    while ordered:
        longest, size = ordered[0], micro_size
        if max_tokens is not None:
            if longest.num_tokens > max_tokens:
                raise UserError(
                    f"sample of rollout {longest.rollout_id} has {longest.num_tokens} tokens, more "
                    f"than the {max_tokens} that one micro-batch may have; raise "
                    "--actor.ppo_max_token_len_per_gpu, or what it stands for elsewhere"
                )
            size = min(size, max_tokens // longest.num_tokens)
        parts.append(ordered[:size])
        ordered = ordered[size:]
    return parts
