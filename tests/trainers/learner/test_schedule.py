import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlgym_llm_trainers.learner.schedule import lr_at


def test_constant_with_and_without_warmup():
    assert lr_at(0, base_lr=1e-6, total_steps=10) == 1e-6
    # Four warm-up updates: 1/4, 2/4, 3/4, 4/4 of 8.
    found = [lr_at(s, base_lr=8.0, warmup_steps=4, total_steps=10) for s in range(6)]
    assert found == [2.0, 4.0, 6.0, 8.0, 8.0, 8.0]


def test_linear_falls_to_zero_one_update_after_the_last():
    found = [lr_at(s, base_lr=4.0, kind="linear", total_steps=4) for s in range(6)]
    assert found == [4.0, 3.0, 2.0, 1.0, 0.0, 0.0]


def test_cosine_is_half_at_the_middle():
    found = [lr_at(s, base_lr=2.0, kind="cosine", warmup_steps=1, total_steps=5) for s in range(6)]
    # After the warm-up: 1 + cos(pi * [0, 1/4, 1/2, 3/4, 1]).
    root = math.sqrt(0.5)
    assert found == pytest.approx([2.0, 2.0, 1 + root, 1.0, 1 - root, 0.0])


@given(st.sampled_from(["constant", "linear", "cosine"]), st.integers(0, 20), st.integers(1, 20))
def test_every_update_of_the_run_learns_and_none_exceeds_the_base(kind, warmup, extra):
    total = warmup + extra
    found = [
        lr_at(s, base_lr=1.0, kind=kind, warmup_steps=warmup, total_steps=total)
        for s in range(total)
    ]
    assert all(0 < lr <= 1 for lr in found)
    assert max(found) == 1.0
    assert found[warmup:] == sorted(found[warmup:], reverse=True)


def test_bad_arguments_say_what_is_wrong():
    with pytest.raises(ValueError, match="step must be 0 or more"):
        lr_at(-1, base_lr=1.0, total_steps=3)
    with pytest.raises(ValueError, match=r"warmup_steps must be in \[0, 3\], got 4"):
        lr_at(0, base_lr=1.0, warmup_steps=4, total_steps=3)
    with pytest.raises(ValueError, match="unknown schedule 'step'"):
        lr_at(0, base_lr=1.0, kind="step", total_steps=3)
