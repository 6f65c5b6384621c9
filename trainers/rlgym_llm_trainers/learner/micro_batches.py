"""Mini-batches cut into micro-batches, and over ranks, by the tokens that are computed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from rlgym_llm.errors import UserError
from rlgym_llm_trainers.learner.batch import TrainingSample

__all__ = ["num_computed_tokens", "split_over_ranks", "split_samples"]


def num_computed_tokens(samples: Sequence[TrainingSample], *, share_prompts: bool = True) -> int:
    """Positions that the model computes for the samples as one pack.

    Up to the token before the last trained one; what precedes the first trained token counts once
    for all samples in which it is equal. Prompt [7, 8] with replies [4, 5] and [6, 9]: 2 + 1 + 1.
    """
    prompts = {prompt for sample in samples if (prompt := _prompt(sample))}
    if not share_prompts:
        return sum(_num_alone(sample) for sample in samples)
    return sum(_num_own(sample) for sample in samples) + sum(map(len, prompts))


def split_samples(
    samples: Sequence[TrainingSample],
    *,
    max_tokens: int | None = None,
    max_sequences: int | None = None,
    num_parts: int = 1,
    share_prompts: bool = True,
) -> list[list[TrainingSample]]:
    """Micro-batches within the bounds, as few and as equal as they can be; each sample in one.

    Siblings stand side by side, the groups with most tokens first, and that line is cut: a cut
    parts the siblings of one prompt at most, which is then computed in both parts.

    Args:
        samples: in any order, which changes no more than the order of equals.
        max_tokens: computed tokens of a part at most. UserError where one sample has more.
        max_sequences: samples of a part at most.
        num_parts: parts at least; empty ones where more would make none smaller.
        share_prompts: whether the packs will share prompts.

    Replies of 1 token each to prompts of 3 tokens, a a b a b by two sequences: [a a], [a b], [b].
    """
    line = _line(samples, share_prompts)
    costs = [_num_alone(sample) for sample in line]
    if max_tokens is not None:
        for sample, cost in zip(line, costs, strict=True):
            if cost > max_tokens:
                raise UserError(
                    f"sample of rollout {sample.rollout_id} needs {cost} tokens computed, more "
                    f"than the {max_tokens} that one micro-batch may have; raise "
                    "--actor.ppo_max_token_len_per_gpu, or what it stands for elsewhere"
                )
    most = sum(costs) if max_tokens is None else max_tokens
    count = max(num_parts, len(_cut(line, most, max_sequences, share_prompts)))
    least = max(costs, default=0)
    while least < most:  # the smallest bound under which the line still makes so few parts
        middle = (least + most) // 2
        if len(_cut(line, middle, max_sequences, share_prompts)) <= count:
            most = middle
        else:
            least = middle + 1
    parts = _cut(line, most, max_sequences, share_prompts)
    return parts + [[] for _ in range(num_parts - len(parts))]


def split_over_ranks(
    samples: Sequence[TrainingSample],
    world_size: int,
    *,
    max_tokens: int | None = None,
    max_sequences: int | None = None,
) -> list[list[list[TrainingSample]]]:
    """Micro-batches of each rank: about as many tokens on all, and equally many micro-batches.

    The same on every rank that asks, so nobody has to be told. A rank may have empty ones, which
    it runs like any other: collective operations wait for all.
    """
    shares = split_samples(samples, num_parts=world_size)

    def split(share: list[TrainingSample], num_parts: int) -> list[list[TrainingSample]]:
        return split_samples(
            share,
            max_tokens=max_tokens,
            max_sequences=max_sequences,
            num_parts=num_parts,
        )

    count = max(len(split(share, 1)) for share in shares)
    return [split(share, count) for share in shares]


def _line(samples: Sequence[TrainingSample], share_prompts: bool) -> list[TrainingSample]:
    """The samples, those of one prompt together: most tokens first, and long ones first in each."""
    groups: dict[tuple[int, ...], list[TrainingSample]] = {}
    for sample in samples:
        groups.setdefault(_prompt(sample), []).append(sample)
    for group in groups.values():
        group.sort(key=_num_own, reverse=True)
    ordered = sorted(
        groups.values(),
        key=lambda group: num_computed_tokens(group, share_prompts=share_prompts),
        reverse=True,
    )
    return list(chain.from_iterable(ordered))


def _cut(
    line: Sequence[TrainingSample],
    max_tokens: int,
    max_sequences: int | None,
    share_prompts: bool,
) -> list[list[TrainingSample]]:
    """The line in parts that are each filled as far as the bounds allow."""
    parts: list[list[TrainingSample]] = []
    num_tokens = 0
    for sample in line:
        is_sibling = bool(parts) and share_prompts and _prompt(parts[-1][-1]) == _prompt(sample)
        added = _num_own(sample) if is_sibling else _num_alone(sample)
        is_full = bool(parts) and len(parts[-1]) == max_sequences
        if not parts or is_full or num_tokens + added > max_tokens:
            parts.append([])
            num_tokens, added = 0, _num_alone(sample)
        parts[-1].append(sample)
        num_tokens += added
    return parts or [[]]


def _prompt(sample: TrainingSample) -> tuple[int, ...]:
    """What siblings can share: all before the first trained token; nothing where none is."""
    return sample.token_ids[: sample.loss_mask.index(True)] if any(sample.loss_mask) else ()


def _num_alone(sample: TrainingSample) -> int:
    """Positions before the last trained token, the prompt's included."""
    return max((t for t, is_on in enumerate(sample.loss_mask) if is_on), default=0)


def _num_own(sample: TrainingSample) -> int:
    return _num_alone(sample) - len(_prompt(sample))
