"""Sequences laid end to end without padding, a prompt that several share only once.

Four sequences of lengths 4, 3, 6, 3, padded, take 4 x 6 positions and packed 16. Where the first
two share a prompt of two tokens they take 14. `attention.py` lets each segment see its own past
and its prompt's, so log-probs and gradients are those of the padded batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby

import torch
from torch import Tensor

from rlgym_llm_trainers.learner.needed_tokens import needed_tokens

__all__ = ["Layout", "Run", "layout_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """``count`` segments of ``length`` tokens each, one after another: one call of attention."""

    count: int
    length: int
    prompt_run: int | None = None
    """The run that holds the prompts these segments continue; None where they stand alone."""
    prompt_rows: tuple[int, ...] = ()
    """Which segment of that run each of these continues."""
    prompt_length: int = 0

    @property
    def num_tokens(self) -> int:
        """Positions of the pack that the run takes."""
        return self.count * self.length

    @property
    def key_length(self) -> int:
        """Tokens that the last token of a segment sees, itself included."""
        return self.prompt_length + self.length


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layout:
    """A pack of N positions, and where the M states that are read lie in it."""

    input_ids: Tensor  # [N], int64
    position_ids: Tensor  # [N], int64, each token's place in its own sequence
    runs: tuple[Run, ...]
    """In the order of the pack; a run of prompts stands before those that continue it."""
    places: Tensor  # [M], int64, in row-major order of the states asked for
    notes: dict[object, Tensor] = field(default_factory=dict)
    """What the first layer's attention made of the layout and the others read: masks, indices."""

    @property
    def num_tokens(self) -> int:
        """Positions N that the model computes."""
        return len(self.input_ids)


@dataclass(frozen=True, slots=True)
class _Segment:
    ids: tuple[int, ...]
    prompt: tuple[int, ...] = ()
    """The shared prompt that it continues."""

    @property
    def shape(self) -> tuple[int, int]:
        """Sorts what stands alone before what continues a prompt, and equal shapes together."""
        return len(self.prompt), len(self.ids)


def layout_of(input_ids: Tensor, is_read: Tensor, *, share_prompts: bool = True) -> Layout:
    """The pack of all tokens on which a state that is read depends; no others are computed.

    A prompt is shared by the sequences in which all ids up to the first state read are equal,
    whatever their group. Padding, and what follows the last state read, is left out.

    Args:
        input_ids: [B, T] padded on the right.
        is_read: bool [B, T], the positions whose hidden states are wanted: for log-probs each
            one *before* a trained token.
        share_prompts: off, every sequence is a segment of its own.

    Prompt [7, 8] with replies [4, 5] and [6, 9], states read at 1 and 2:

    >>> ids = torch.tensor([[7, 8, 4, 5], [7, 8, 6, 9]])
    >>> is_read = torch.tensor([[False, True, True, False]] * 2)
    >>> layout = layout_of(ids, is_read)
    >>> layout.input_ids.tolist(), layout.position_ids.tolist(), layout.places.tolist()
    ([7, 8, 4, 6], [0, 1, 2, 2], [1, 2, 1, 3])
    """
    rows, masks = input_ids.tolist(), is_read.tolist()
    needed = [needed_tokens(row, mask) for row, mask in zip(rows, masks, strict=True)]
    num_sharing = Counter(each.prompt for each in needed)
    segments: list[_Segment] = []  # each shared prompt once, and what each row adds
    of_prompt: dict[tuple[int, ...], int] = {}
    found: list[tuple[int, int]] = []  # of each state read: its segment and its place there
    for row, mask, each in zip(rows, masks, needed, strict=True):
        prompt = each.prompt if share_prompts and num_sharing[each.prompt] > 1 else ()
        if prompt and prompt not in of_prompt:
            of_prompt[prompt] = len(segments)
            segments.append(_Segment(prompt))
        found += [
            (of_prompt[prompt], t) if t < len(prompt) else (len(segments), t - len(prompt))
            for t, is_on in enumerate(mask)
            if is_on
        ]
        if own := tuple(row[len(prompt) : each.count]):
            segments.append(_Segment(own, prompt))
    if not segments:  # a rank without trained tokens still runs the model
        segments.append(_Segment((rows[0][0],)))

    # Siblings of equal length side by side: a run reads each prompt in one piece.
    order = sorted(
        range(len(segments)),
        key=lambda i: (segments[i].shape, of_prompt.get(segments[i].prompt, -1)),
    )
    packed = [segments[i] for i in order]
    ends = accumulate(len(segment.ids) for segment in packed)
    start_of = {i: end - len(segments[i].ids) for i, end in zip(order, ends, strict=True)}
    device = input_ids.device
    positions = [len(s.prompt) + t for s in packed for t in range(len(s.ids))]
    return Layout(
        input_ids=torch.tensor([token for s in packed for token in s.ids], device=device),
        position_ids=torch.tensor(positions, device=device),
        runs=_runs(packed),
        places=torch.tensor([start_of[i] + t for i, t in found], dtype=torch.int64, device=device),
    )


def _runs(packed: Sequence[_Segment]) -> tuple[Run, ...]:
    """Neighbours of equal shape as one run each."""
    runs: list[Run] = []
    row_of: dict[tuple[int, ...], tuple[int, int]] = {}  # a prompt -> its run and its row there
    for (prompt_length, length), found in groupby(packed, key=lambda segment: segment.shape):
        segments = list(found)
        if not prompt_length:
            row_of |= {s.ids: (len(runs), row) for row, s in enumerate(segments)}
            runs.append(Run(count=len(segments), length=length))
            continue
        prompts = [row_of[segment.prompt] for segment in segments]
        runs.append(
            Run(
                count=len(segments),
                length=length,
                prompt_run=prompts[0][0],
                prompt_rows=tuple(row for _, row in prompts),
                prompt_length=prompt_length,
            )
        )
    return tuple(runs)
