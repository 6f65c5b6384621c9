"""Text spaces: membership, sampling, equality, pickling and batching."""

import pickle

import pytest
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from hypothesis import given
from hypothesis import strategies as st

from rlgym_llm.spaces import Conversation, UnicodeText, unseeded
from rlgym_llm.types import Message

SPACES = [UnicodeText(max_chars=50), Conversation()]
ANY_TEXT = st.text(st.characters(exclude_categories=()))


@pytest.mark.data
def test_observations_that_gymnasiums_text_space_refuses(bug_report):
    case = bug_report("env-text_space_charset")
    space = UnicodeText(max_chars=20)
    assert [obs in space for obs in case["input"]["obs"]] == case["right"]["values"]["contains"]


@pytest.mark.data
def test_alphabet_of_words_is_refused(bug_report):
    case = bug_report("env-text_space_multichar_charset")["input"]
    with pytest.raises(ValueError, match="single characters"):
        UnicodeText(max_chars=case["max_length"], alphabet=case["charset"])


@given(ANY_TEXT)
def test_any_text_is_in_unless_too_long(text):
    assert text in UnicodeText(max_chars=len(text))
    if text:
        assert text not in UnicodeText(max_chars=len(text) - 1)


@pytest.mark.parametrize("value", [5, None, b"bytes", ["a"], ()])
def test_other_types_are_out(value):
    assert value not in UnicodeText()
    assert value not in Conversation()


def test_a_conversation_holds_messages_only():
    message = Message(role="user", content="hi")
    assert (message,) in Conversation()
    assert [message] not in Conversation()
    assert (message, "hi") not in Conversation()


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_a_copy_draws_by_itself(space):
    space.seed(3)
    first = [space.sample() for _ in range(5)]
    space.seed(3)
    other = unseeded(space)
    assert other == space
    other.seed(4)
    assert [other.sample() for _ in range(5)] != first
    assert [space.sample() for _ in range(5)] == first


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_samples_are_seeded_and_inside(space):
    space.seed(3)
    first = [space.sample() for _ in range(50)]
    space.seed(3)
    assert [space.sample() for _ in range(50)] == first
    assert all(sample in space for sample in first)
    assert len(set(first)) > 25
    with pytest.raises(ValueError, match="mask"):
        space.sample(mask=object())


def test_a_sample_is_never_longer_than_the_space_allows():
    space = UnicodeText(max_chars=2, seed=0)
    assert {len(space.sample()) for _ in range(50)} == {0, 1, 2}


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_pickle_keeps_equality_and_the_stream(space):
    space.seed(5)
    data = pickle.dumps(space)
    copied = pickle.loads(data)
    assert len(data) < 2000
    assert copied == space
    assert copied.sample() == space.sample()


def test_equality_tells_spaces_apart():
    assert UnicodeText(max_chars=5) == UnicodeText(max_chars=5, seed=1)
    assert UnicodeText(max_chars=5) != UnicodeText(max_chars=6)
    assert UnicodeText(alphabet="ab") != UnicodeText(alphabet="abc")
    assert UnicodeText() != Conversation()


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_a_batch_is_a_tuple_of_single_items(space):
    batch = batch_space(space, 3)
    items = [space.sample() for _ in range(3)]
    empty = create_empty_array(space, n=3)
    assert tuple(items) in batch
    assert empty in batch
    assert concatenate(space, items, empty) == tuple(items)
    assert list(iterate(batch, tuple(items))) == items
    # Every sub-space draws from a stream of its own.
    assert len({str(part.sample()) for part in batch}) == 3


def test_conversations_survive_json():
    space = Conversation(seed=1)
    samples = [space.sample() for _ in range(4)]
    assert space.from_jsonable(space.to_jsonable(samples)) == samples
