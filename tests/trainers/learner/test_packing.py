"""Packs by hand and at random: every token that is needed once, and every state in its place."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rlgym_llm_trainers.learner.packing import Run, layout_of


def rectangle(rows, fill=0):
    width = max(map(len, rows))
    return torch.tensor([list(row) + [fill] * (width - len(row)) for row in rows])


def reads(prompt_lengths, lengths):
    """The states before every token after the prompt."""
    out = torch.zeros(len(lengths), max(lengths), dtype=torch.bool)
    for row, (prompt, length) in enumerate(zip(prompt_lengths, lengths, strict=True)):
        out[row, prompt - 1 : length - 1] = True
    return out


def history(layout, place):
    """The tokens that a position sees, itself last, read off the runs."""
    starts = [0]
    for run in layout.runs:
        starts.append(starts[-1] + run.num_tokens)
    number = max(n for n in range(len(layout.runs)) if starts[n] <= place)
    run = layout.runs[number]
    row, t = divmod(place - starts[number], run.length)
    seen = []
    if run.prompt_run is not None:
        first = starts[run.prompt_run] + run.prompt_rows[row] * run.prompt_length
        seen += range(first, first + run.prompt_length)
    own = starts[number] + row * run.length
    seen += range(own, own + t + 1)
    return layout.input_ids[seen].tolist()


def test_siblings_share_their_prompt_and_others_stand_alone():
    rows = [[7, 8, 1, 2, 3], [5, 6, 7, 4], [7, 8, 9, 4], [7, 8, 2, 2, 5]]
    layout = layout_of(rectangle(rows), reads([2, 3, 2, 2], [5, 4, 4, 5]))
    # The last token of a row predicts nothing. Alone: prompt [7, 8] and row [5, 6, 7]; then the
    # replies [9], [1, 2] and [2, 2] to the prompt, by length.
    assert layout.input_ids.tolist() == [7, 8, 5, 6, 7, 9, 1, 2, 2, 2]
    assert layout.position_ids.tolist() == [0, 1, 0, 1, 2, 2, 2, 3, 2, 3]
    continues = {"prompt_run": 0, "prompt_length": 2}
    assert layout.runs == (
        Run(count=1, length=2),
        Run(count=1, length=3),
        Run(count=1, length=1, prompt_rows=(0,), **continues),
        Run(count=2, length=2, prompt_rows=(0, 0), **continues),
    )
    assert layout.places.tolist() == [1, 6, 7, 4, 1, 5, 1, 8, 9]


def test_equal_prompts_are_shared_only_up_to_the_first_state_read():
    # The same ids, but the second row is read from its first token on: nothing is in common.
    rows = [[7, 8, 1, 2], [7, 8, 1, 2]]
    layout = layout_of(rectangle(rows), reads([2, 1], [4, 4]))
    assert layout.input_ids.tolist() == [7, 8, 1, 7, 8, 1]
    assert layout.runs == (Run(count=2, length=3),)


def test_a_reply_of_one_token_needs_its_prompt_alone():
    layout = layout_of(rectangle([[7, 8, 1], [7, 8, 2]]), reads([2, 2], [3, 3]))
    assert layout.input_ids.tolist() == [7, 8]
    assert layout.places.tolist() == [1, 1]


def test_rows_without_anything_to_read_are_left_out():
    nothing = torch.zeros(2, 3, dtype=torch.bool)
    layout = layout_of(rectangle([[7, 8, 1], [7, 8, 2]]), nothing)
    assert layout.num_tokens == 1  # the model of a rank without tokens still runs
    assert layout.places.tolist() == []
    one = nothing.clone()
    one[1, 1] = True
    assert layout_of(rectangle([[7, 8, 1], [7, 8, 2]]), one).input_ids.tolist() == [7, 8]


@pytest.mark.data
def test_packing_boundary(bug_report):
    case = bug_report("logprob-packing_boundary")
    packed, prompts = case["input"]["packed"], case["input"]["prompt_lens"]
    ids, is_read = rectangle(packed), reads(prompts, [len(row) for row in packed])
    layout = layout_of(ids, is_read)
    targets = ids[:, 1:][is_read[:, :-1]].tolist()
    assert targets == case["right"]["values"]["trained_targets"]
    # What predicts a target has seen the target's own sequence up to it and nothing else.
    seen = [history(layout, place) for place in layout.places.tolist()]
    assert seen == [[1], [1, 2], [4]]


@st.composite
def batches(draw):
    """Rows of few ids after few prompts, so that many are equal."""
    rows, prompts = [], []
    for _ in range(draw(st.integers(1, 7))):
        prompt = draw(st.lists(st.integers(1, 2), min_size=1, max_size=3))
        reply = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
        rows.append(prompt + reply)
        prompts.append(len(prompt))
    return rows, prompts


@settings(deadline=None)
@given(batches(), st.booleans(), st.integers(0, 9))
def test_every_state_has_seen_its_own_sequence_whatever_the_padding(batch, share_prompts, fill):
    rows, prompts = batch
    is_read = reads(prompts, [len(row) for row in rows])
    layout = layout_of(rectangle(rows, fill), is_read, share_prompts=share_prompts)
    expected = [rows[b][: t + 1] for b, t in is_read.nonzero().tolist()]
    places = layout.places.tolist()
    assert [history(layout, place) for place in places] == expected
    assert [int(layout.position_ids[place]) + 1 for place in places] == list(map(len, expected))
    assert sum(run.num_tokens for run in layout.runs) == layout.num_tokens
    heads = [tuple(row[:prompt]) for row, prompt in zip(rows, prompts, strict=True)]
    replies = sum(len(row) - prompt - 1 for row, prompt in zip(rows, prompts, strict=True))
    computed = sum(map(len, set(heads) if share_prompts else heads))
    assert layout.num_tokens == computed + replies
