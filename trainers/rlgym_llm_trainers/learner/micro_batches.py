"""Samples cut into micro-batches, and over ranks, by the tokens that are computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TypeVar

from rlgym_llm.errors import UserError
from rlgym_llm_trainers.learner.needed_tokens import needed_tokens
from rlgym_llm_trainers.learner.sample import TrainingSample

__all__ = ["num_computed_tokens", "split_micro_batches", "split_over_ranks", "split_samples"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Cost:
    """What a sample's tokens come to, counted once: they are many, and a split asks often."""

    sample: TrainingSample
    alone: int
    """Tokens computed for it, its prompt's included."""
    own: int
    """Those that it adds where a sibling has brought the prompt."""
    prompt: int
    """A number for its prompt; equal ones have the same."""


def num_computed_tokens(samples: Sequence[TrainingSample], *, share_prompts: bool = True) -> int:
    """Positions that the model computes for the samples as one pack.

    Up to the token before the last trained one; what precedes the first trained token counts once
    for all samples in which it is equal. Prompt [7, 8] with replies [4, 5] and [6, 9]: 2 + 1 + 1.
    """
    return _total(_costs(samples), share_prompts)


def split_samples(
    samples: Sequence[TrainingSample],
    *,
    max_tokens: int | None = None,
    max_sequences: int | None = None,
    num_parts: int = 1,
    share_prompts: bool = True,
) -> list[list[TrainingSample]]:
    """Packed micro-batches within the bounds, as few and as equal as they can be.

    Every sample is in exactly one. Siblings stand side by side, the groups with most tokens first,
    and that line is cut: a cut parts the siblings of one prompt at most, which is then computed in
    both parts.

    Args:
        samples: in any order, which changes no more than the order of equals.
        max_tokens: computed tokens of a part at most. UserError where one sample has more.
        max_sequences: samples of a part at most.
        num_parts: parts at least; empty ones where more would make none smaller.
        share_prompts: whether the packs will share prompts.

    Replies of 1 token each to prompts of 3 tokens, a a b a b by two sequences: [a a], [a b], [b].
    """
    parts = _split(_costs(samples), max_tokens, max_sequences, num_parts, share_prompts)
    return _samples(parts)


def split_micro_batches(
    samples: Sequence[TrainingSample], micro_size: int, *, max_tokens: int | None = None
) -> list[list[TrainingSample]]:
    """Padded micro-batches of at most ``micro_size`` sequences; every sample is in exactly one.

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
                raise _does_not_fit(longest, f"has {longest.num_tokens} tokens", max_tokens)
            size = min(size, max_tokens // longest.num_tokens)
        parts.append(ordered[:size])
        ordered = ordered[size:]
    return parts


def split_over_ranks(
    samples: Sequence[TrainingSample],
    world_size: int,
    *,
    max_tokens: int | None = None,
    max_sequences: int | None = None,
    is_packed: bool = True,
    balances: bool = True,
) -> list[list[list[TrainingSample]]]:
    """Micro-batches of each rank, equally many on all: collective operations wait for all.

    The same on every rank that asks, so nobody has to be told. A rank may have empty ones, which
    it runs like any other.

    Args:
        samples: those of all ranks.
        world_size: number of ranks.
        max_tokens: as for `split_samples` where packed, else as for `split_micro_batches`.
        max_sequences: samples of a micro-batch at most.
        is_packed: whether no padding is computed, and a prompt that siblings share only once.
        balances: gives each rank about as many tokens, and siblings to one; off, as many samples,
            in the order given.
    """
    balances = balances and world_size > 1
    costs = _costs(samples)
    if balances:
        shares = _split(costs, num_parts=world_size, share_prompts=is_packed)
    else:
        ends = [len(costs) * rank // world_size for rank in range(world_size + 1)]
        shares = [costs[start:end] for start, end in pairwise(ends)]

    def split(share: list[_Cost], num_parts: int = 1) -> list[list[TrainingSample]]:
        if is_packed:
            return _samples(_split(share, max_tokens, max_sequences, num_parts))
        size = max_sequences or max(1, len(share))
        return split_micro_batches([cost.sample for cost in share], size, max_tokens=max_tokens)

    found = [split(share) for share in shares]
    count = max(map(len, found))
    if balances and is_packed:  # smaller parts rather than empty ones
        found = [split(share, count) for share in shares]
    return [_filled_up(parts, count) for parts in found]


def _costs(samples: Sequence[TrainingSample]) -> list[_Cost]:
    numbers: dict[tuple[int, ...], int] = {}
    costs = []
    for sample in samples:
        needed = needed_tokens(sample.token_ids, sample.loss_mask[1:])  # what predicts the trained
        costs.append(
            _Cost(
                sample,
                alone=needed.count,
                own=needed.count - len(needed.prompt),
                prompt=numbers.setdefault(needed.prompt, len(numbers)),
            )
        )
    return costs


def _total(costs: Sequence[_Cost], share_prompts: bool) -> int:
    """Tokens computed for all as one pack."""
    if not share_prompts:
        return sum(cost.alone for cost in costs)
    num_shared = {cost.prompt: cost.alone - cost.own for cost in costs}
    return sum(cost.own for cost in costs) + sum(num_shared.values())


def _split(
    costs: Sequence[_Cost],
    max_tokens: int | None = None,
    max_sequences: int | None = None,
    num_parts: int = 1,
    share_prompts: bool = True,
) -> list[list[_Cost]]:
    """See `split_samples`."""
    line = _line(costs, share_prompts)
    alone = [cost.alone for cost in line]
    if max_tokens is not None:
        for cost in line:
            if cost.alone > max_tokens:
                says = f"needs {cost.alone} tokens computed"
                raise _does_not_fit(cost.sample, says, max_tokens)
    added = alone[:1]  # by each to the part that the sample before it is in
    for before, cost in pairwise(line):
        is_sibling = share_prompts and cost.prompt == before.prompt
        added.append(cost.own if is_sibling else cost.alone)

    def starts(bound: int) -> list[int]:
        return _starts(alone, added, bound, max_sequences)

    most = sum(alone) if max_tokens is None else max_tokens
    count = max(num_parts, len(starts(most)))
    least = max(alone, default=0)
    while least < most:  # the smallest bound under which the line still makes so few parts
        middle = (least + most) // 2
        if len(starts(middle)) <= count:
            most = middle
        else:
            least = middle + 1
    parts = [line[start:end] for start, end in pairwise([*starts(most), len(line)])]
    return _filled_up(parts, num_parts)


def _line(costs: Sequence[_Cost], share_prompts: bool) -> list[_Cost]:
    """Those of one prompt together: most tokens first, and long ones first in each."""
    groups: dict[int, list[_Cost]] = {}
    for cost in costs:
        groups.setdefault(cost.prompt, []).append(cost)
    for group in groups.values():
        group.sort(key=lambda cost: cost.own, reverse=True)
    ordered = sorted(groups.values(), key=lambda group: _total(group, share_prompts), reverse=True)
    return list(chain.from_iterable(ordered))


def _starts(
    alone: Sequence[int], added: Sequence[int], max_tokens: int, max_sequences: int | None
) -> list[int]:
    """Where the parts of a line begin that are each filled as far as the bounds allow."""
    starts: list[int] = []
    num_tokens = num_sequences = 0
    for place, (whole, more) in enumerate(zip(alone, added, strict=True)):
        is_full = num_sequences == max_sequences or num_tokens + more > max_tokens
        if not starts or is_full:
            starts.append(place)
            num_tokens, num_sequences = whole, 1
        else:
            num_tokens, num_sequences = num_tokens + more, num_sequences + 1
    return starts


def _filled_up(parts: list[list[_T]], num_parts: int) -> list[list[_T]]:
    """The parts, and empty ones where they are fewer."""
    return parts + [[] for _ in range(num_parts - len(parts))]


def _samples(parts: Sequence[Sequence[_Cost]]) -> list[list[TrainingSample]]:
    return [[cost.sample for cost in part] for part in parts]


def _does_not_fit(sample: TrainingSample, says: str, max_tokens: int) -> UserError:
    return UserError(
        f"sample of rollout {sample.rollout_id} {says}, more than the {max_tokens} that one "
        "micro-batch may have; raise --actor.ppo_max_token_len_per_gpu, or what it stands for "
        "elsewhere"
    )
