"""A step's samples as mini-batches: whole groups, for each optimizer step some."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from rlgym_llm_trainers.learner.sample import TrainingSample

__all__ = ["mini_batches"]


def mini_batches(
    samples: Sequence[TrainingSample],
    *,
    num_prompts: int,
    num_epochs: int = 1,
    shuffle_seed: tuple[int, int] | None = None,
) -> Iterator[list[TrainingSample]]:
    """``num_prompts`` groups at a time, all groups once an epoch; the last one may have fewer.

    Siblings stay together. In the order of their first samples, or, with a ``shuffle_seed`` (of
    the run, of the step), in another order each epoch. Groups a b c by twos: [a b], [c].

    Samples that count 0 times are left out at the end, and mini-batches of nothing else with them.
    """
    groups: dict[str, list[TrainingSample]] = {}
    for sample in samples:
        groups.setdefault(sample.group_id, []).append(sample)
    for epoch in range(num_epochs):
        order = list(groups)
        if shuffle_seed is not None:
            seed, step = shuffle_seed
            rng = np.random.Generator(np.random.Philox(key=[seed, step * 1000 + epoch]))
            order = [order[i] for i in rng.permutation(len(order))]
        for start in range(0, len(order), num_prompts):
            chosen = order[start : start + num_prompts]
            found = [sample for group in chosen for sample in groups[group]]
            if found := [sample for sample in found if sample.multiplicity]:
                yield found
