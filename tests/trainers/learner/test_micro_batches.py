"""Micro-batches and shares of ranks: every sample once, within bounds, balanced, deterministic."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rlgym_llm_trainers.algorithms.aggregate import count_tokens
from rlgym_llm_trainers.learner import micro_batches
from rlgym_llm_trainers.learner.batch import collate
from rlgym_llm_trainers.learner.micro_batches import (
    num_computed_tokens,
    split_micro_batches,
    split_over_ranks,
    split_samples,
)
from rlgym_llm_trainers.learner.needed_tokens import NeededTokens, needed_tokens
from rlgym_llm_trainers.learner.packing import layout_of
from rlgym_llm_trainers.learner.sample import TrainingSample


def sample(prompt, num_reply, name="r"):
    length = len(prompt) + num_reply
    mask = (False,) * len(prompt) + (True,) * num_reply
    return TrainingSample(
        token_ids=(*prompt, *range(10, 10 + num_reply)),
        loss_mask=mask,
        rollout_logprobs=(0.0,) * length,
        policy_versions=tuple(0 if on else -1 for on in mask),
        rollout_id=name,
        group_id="g",
        sample_index=0,
    )


def names(parts):
    return [[one.rollout_id for one in part] for part in parts]


@st.composite
def mini_batches(draw):
    prompts = [(1,) * 3, (2,) * 3, (3,) * 7]
    shapes = draw(st.lists(st.tuples(st.sampled_from(prompts), st.integers(0, 9)), max_size=12))
    return [sample(prompt, reply, str(i)) for i, (prompt, reply) in enumerate(shapes)]


def test_siblings_stay_together_where_they_fit():
    a, b = (1, 1, 1), (2, 2, 2)
    made = [sample(p, 2, n) for p, n in ((a, "a0"), (b, "b0"), (a, "a1"), (b, "b1"), (a, "a2"))]
    # Three of a: 3 + 1 + 1 + 1 tokens are computed; two of b: 3 + 1 + 1.
    assert names(split_samples(made, max_tokens=6)) == [["a0", "a1", "a2"], ["b0", "b1"]]
    assert names(split_samples(made, max_sequences=3)) == [["a0", "a1", "a2"], ["b0", "b1"]]
    assert names(split_samples(made, max_tokens=5)) == [["a0", "a1"], ["a2"], ["b0", "b1"]]
    assert names(split_samples(made)) == [["a0", "a1", "a2", "b0", "b1"]]
    assert num_computed_tokens(made) == 11
    assert num_computed_tokens(made, share_prompts=False) == 20


def test_parts_are_as_equal_as_they_can_be():
    made = [sample((i,), n, str(n)) for i, n in enumerate([9, 7, 5, 4, 3, 2])]
    # By eleven tokens a part would be filled as 9 | 7 4 ... in no order; the line is cut 9 | 7 5 |
    # 4 3 2 instead of 9 | 7 | 5 4 2: no part over 12.
    assert names(split_samples(made, num_parts=3)) == [["9"], ["7", "5"], ["4", "3", "2"]]


def test_a_sample_over_the_bound_is_named():
    with pytest.raises(ValueError, match="rollout long needs 8 tokens computed, more than the 7"):
        split_samples([sample((1, 2), 7, "long")], max_tokens=7)


@settings(deadline=None)
@given(mini_batches(), st.booleans(), st.integers(16, 40), st.integers(1, 5), st.integers(1, 4))
def test_every_sample_once_and_no_part_over_a_bound(made, share, max_tokens, size, num_parts):
    parts = split_samples(
        made,
        max_tokens=max_tokens,
        max_sequences=size,
        num_parts=num_parts,
        share_prompts=share,
    )
    assert sorted(chain.from_iterable(names(parts))) == sorted(one.rollout_id for one in made)
    assert len(parts) >= num_parts
    for part in parts:
        assert len(part) <= size
        assert num_computed_tokens(part, share_prompts=share) <= max_tokens


@settings(deadline=None)
@given(mini_batches(), st.integers(1, 4), st.integers(16, 40))
def test_ranks_have_about_equal_tokens_and_equally_many_parts(made, world_size, bound):
    ranks = split_over_ranks(made, world_size, max_tokens=bound)
    assert len(ranks) == world_size
    assert len({len(parts) for parts in ranks}) == 1
    found = [one for parts in ranks for part in parts for one in part]
    assert sorted(one.rollout_id for one in found) == sorted(one.rollout_id for one in made)
    alone = [num_computed_tokens([one]) for one in made] or [0]
    for parts in ranks:
        load = num_computed_tokens(list(chain.from_iterable(parts)))
        assert load <= sum(alone) / world_size + max(alone)


@settings(deadline=None)
@given(
    mini_batches().filter(lambda made: any(one.num_trained_tokens for one in made)), st.booleans()
)
def test_the_count_is_what_a_pack_computes(made, share):
    batch = collate(made, pad_id=0)
    layout = layout_of(batch.input_ids, batch.loss_mask.roll(-1, 1), share_prompts=share)
    assert layout.num_tokens == num_computed_tokens(made, share_prompts=share)


def test_a_sequence_is_needed_up_to_the_last_state_read():
    # Read before token 2 and before token 4; what follows the last trained token is not needed.
    assert needed_tokens((7, 8, 4, 9, 5, 6), (False, True, False, True, False)) == NeededTokens(
        count=4, prompt=(7, 8)
    )
    assert needed_tokens([7, 8], [True, False]) == NeededTokens(count=1, prompt=(7,))
    assert needed_tokens((7, 8), (False,)) == needed_tokens((7,), ()) == NeededTokens(0, ())


def test_the_tokens_of_a_sample_are_gone_through_once(monkeypatch):
    seen = []

    def counting(token_ids, is_read):
        seen.append(token_ids)
        return needed_tokens(token_ids, is_read)

    monkeypatch.setattr(micro_batches, "needed_tokens", counting)
    made = [sample((i % 3 + 1,) * 4, 5 + i, str(i)) for i in range(12)]
    split_over_ranks(made, 3, max_tokens=30)
    assert seen == [one.token_ids for one in made]


def test_padded_micro_batches_by_length():
    made = [sample((1,) * n, 1) for n in (4, 1, 3, 2)]  # lengths 5, 2, 4, 3
    parts = split_micro_batches(made, 2)
    assert [[one.num_tokens for one in part] for part in parts] == [[5, 4], [3, 2]]
    with pytest.raises(ValueError, match="micro_size must be at least 1"):
        split_micro_batches(made, 0)


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=9),
    st.integers(1, 9),
)
def test_the_padded_parts_hold_every_token_once(shapes, micro_size):
    made = [sample((1,) * p, n, str(i)) for i, (p, n) in enumerate(shapes)]
    parts = split_micro_batches(made, micro_size)
    assert sorted(chain.from_iterable(names(parts))) == [str(i) for i in range(len(made))]
    assert all(len(part) <= micro_size for part in parts)
    batches = [collate(part, pad_id=2) for part in parts]
    counts = [count_tokens(batch.loss_mask) for batch in batches]
    assert tuple(map(sum, zip(*counts, strict=True))) == (sum(n for _, n in shapes), len(shapes))
    assert sum(int(b.attention_mask.sum()) for b in batches) == sum(p + n for p, n in shapes)
