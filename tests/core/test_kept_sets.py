"""Kept sets as plain data: flat, frozen, and stored nowhere."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlgym_llm.kept_sets import KeptSets
from rlgym_llm.types import Completion

SETS = st.lists(
    st.none() | st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5).map(tuple), max_size=6
)


def test_what_goes_in_comes_out_token_by_token() -> None:
    kept = KeptSets.of([(3, 7), None, [5]])
    assert kept.counts == (2, 0, 1)
    assert len(kept.ids) == 3 * 4
    assert [kept[place] for place in (0, 1, 2, -1)] == [(3, 7), None, (5,), (5,)]
    assert list(kept) == [(3, 7), None, (5,)]
    with pytest.raises(IndexError):
        kept[3]


@given(SETS, SETS)
def test_joined_they_are_those_of_the_parts(first: list, second: list) -> None:
    parts = KeptSets.of(first), KeptSets.of(second)
    joined = KeptSets.join(parts)
    assert list(joined) == first + second
    assert len(joined) == len(first) + len(second)
    assert joined == KeptSets.of(first + second)
    assert hash(joined) == hash(KeptSets.of(first + second))
    assert pickle.loads(pickle.dumps(joined)) == joined


def test_they_say_no_at_construction() -> None:
    with pytest.raises(ValueError, match="of 3 ids come with 8 bytes, not 4 for each"):
        KeptSets((2, 1), KeptSets.of([(1, 2)]).ids)
    with pytest.raises(ValueError, match="4 bytes"):
        KeptSets((2, -1), KeptSets.of([(1,)]).ids)
    with pytest.raises(ValueError, match="nothing could have been sampled"):
        KeptSets.of([(1,), ()])
    assert KeptSets.uncut(2) == KeptSets.of([None, None])
    assert len(KeptSets.of([])) == 0


def test_a_completion_has_one_set_a_token() -> None:
    kept = KeptSets.of([(3, 7), (5,)])
    done = Completion(text="x", token_ids=(7, 5), kept_token_ids=kept)
    assert hash(done) == hash(Completion(text="x", token_ids=(7, 5), kept_token_ids=kept))
    assert done != Completion(text="x", token_ids=(7, 5))
    with pytest.raises(ValueError, match="completion has 1 tokens but 2 kept_token_ids"):
        Completion(text="x", token_ids=(7,), kept_token_ids=kept)


def test_ten_thousand_ids_pickle_to_little_more_than_their_bytes() -> None:
    kept = KeptSets.of([range(100_000, 100_100)] * 100)
    assert 40_000 < len(pickle.dumps(kept)) < 41_000


def test_the_records_are_read_without_numpy() -> None:
    program = "import rlgym_llm.types, sys; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
