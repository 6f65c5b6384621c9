"""Stop strings: told at the first token after which the text contains one."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlgym_llm_trainers.generators.stop_strings import StopStrings
from tokenizers import AddedToken, Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

# GPT-2's characters for bytes, by which byte-level vocabularies write what is no text.
_PLAIN = [*range(33, 127), *range(161, 173), *range(174, 256)]
_REST = [byte for byte in range(256) if byte not in _PLAIN]
SPELLED = {**{b: chr(b) for b in _PLAIN}, **{b: chr(256 + i) for i, b in enumerate(_REST)}}


def byte_level(*pieces: bytes):
    """A tokenizer whose token i is the i-th piece, and then ``<end>``."""
    vocabulary = {"".join(SPELLED[b] for b in piece): i for i, piece in enumerate(pieces)}
    assert len(vocabulary) == len(pieces)
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.decoder = decoders.ByteLevel()
    return with_end(tokenizer)


def byte_fallback(*pieces: str):
    """As sentencepiece has it: ``▁`` for a blank, bytes as ``<0x0A>``."""
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, []))
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return with_end(tokenizer)


def with_end(tokenizer):
    tokenizer.add_special_tokens([AddedToken("<end>", special=True)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def first_met(tokenizer, ids, *stop):
    """How many ids have been sampled when a stop string is told; None for never."""
    stop_strings = StopStrings(tokenizer)
    sampled = range(1, len(ids) + 1)
    return next((k for k in sampled if stop_strings.are_met(ids[:k], stop)), None)


def first_contained(tokenizer, ids, *stop):
    """The same, by the text of all ids."""
    texts = (tokenizer.decode(ids[:k], skip_special_tokens=False) for k in range(len(ids) + 1))
    return next((k for k, text in enumerate(texts) if any(one in text for one in stop)), None)


def test_a_string_over_several_tokens_ends_with_the_one_that_completes_it():
    tokenizer = byte_level(b"So ", b"</ans", b"wer", b"> ok", b" 5")
    assert first_met(tokenizer, [0, 4, 1, 2, 3, 4], "</answer>") == 5
    assert first_met(tokenizer, [0, 4, 1, 2, 4, 3], "</answer>") is None


def test_any_of_several_strings_and_one_within_a_token():
    tokenizer = byte_level(b"a long token with a # in it", b"b", b"c")
    assert first_met(tokenizer, [1, 2, 0, 1], "bb", "#") == 3
    assert first_met(tokenizer, [1, 1, 0], "bb", "#") == 2
    assert first_met(tokenizer, [1, 2, 1], "bb", "#") is None


def test_a_character_that_tokens_split():
    tokenizer = byte_level(b"\xe6", b"\x97", b"\xa5", b"x")  # 日 is e6 97 a5
    assert first_met(tokenizer, [3, 0, 1, 2, 3], "日") == 4
    assert first_met(tokenizer, [0, 1, 2, 0, 1, 2], "日日") == 6
    assert first_met(tokenizer, [0, 1, 0, 1, 2], "日") == 5  # a broken one before it
    assert first_met(tokenizer, [0, 1, 3, 2], "日") is None


def test_a_string_of_bytes_in_a_run_of_bytes():
    """A run of byte tokens is text as a whole or not at all: 日é, of which é is the string."""
    tokenizer = byte_fallback("<0xE6>", "<0x97>", "<0xA5>", "<0xC3>", "<0xA9>", "▁x")
    assert first_met(tokenizer, [5, 0, 1, 2, 0, 1, 2, 3, 4], "é") == 9
    assert first_met(tokenizer, [5, 0, 1, 3, 4], "é") is None


def test_what_only_the_tail_of_a_broken_run_would_say():
    tokenizer = byte_fallback("<0xE6>", "<0x61>", "<0xC3>", "<0xA9>")
    ids = [0, 1, 1, 1, 1, 2, 3]
    assert tokenizer.decode(ids[1:]) == "aaaaé"
    assert tokenizer.decode(ids) == "\N{REPLACEMENT CHARACTER}" * 7
    assert first_met(tokenizer, ids, "é") is None
    assert first_met(tokenizer, ids[1:], "é") == 6


def test_blanks_at_the_beginning_of_the_text_and_within():
    tokenizer = byte_fallback("▁x", "▁y", "▁", "x")
    assert first_met(tokenizer, [0, 1, 0, 0], " x") == 3  # the first one's is not in the text
    assert first_met(tokenizer, [1] * 50 + [0], " x") == 51
    assert first_met(tokenizer, [1] * 50 + [2, 3], " x") == 52


def test_special_tokens_are_text():
    tokenizer = byte_level(b"ab", b"c")
    assert first_met(tokenizer, [0, 1, 2], "c<end>") == 3
    assert first_met(tokenizer, [0, 2, 1], "bc") is None


def test_ids_that_are_no_tokens_say_nothing():
    tokenizer = byte_level(b"</ans", b"wer>")
    assert first_met(tokenizer, [0, *[99] * 40, 1], "</answer>") == 42


def test_without_strings_nothing_is_decoded():
    assert not StopStrings(tokenizer=None).are_met([1, 2], ())


ALPHABET = "ab </>é日🙂"


@st.composite
def cut_texts(draw):
    """A text's bytes in random pieces, with bytes of broken characters between some."""
    data = draw(st.text(ALPHABET, max_size=40)).encode()
    cuts = sorted(draw(st.sets(st.integers(0, len(data)), max_size=30)) | {0, len(data)})
    pieces = [data[start:end] for start, end in itertools.pairwise(cuts)]
    for place in draw(st.lists(st.integers(0, len(pieces)), max_size=3)):
        pieces.insert(place, draw(st.sampled_from([b"\xe6", b"\x97", b"\xf0\x9f"])))
    return pieces


STOPS = st.lists(st.text(ALPHABET, min_size=1, max_size=5), min_size=1, max_size=3)


@given(cut_texts(), STOPS, st.sets(st.integers(0, 40), max_size=3))
def test_it_is_told_at_the_first_token_after_which_the_text_contains_it(pieces, stop, ends):
    vocabulary = list(dict.fromkeys(pieces))
    tokenizer = byte_level(*vocabulary)
    ids = [vocabulary.index(piece) for piece in pieces]
    for place in ends & set(range(len(ids))):
        ids[place] = tokenizer.convert_tokens_to_ids("<end>")
    assert first_met(tokenizer, ids, *stop) == first_contained(tokenizer, ids, *stop)


@given(st.lists(st.sampled_from([*"ab<>", "▁", "▁a", "<0x61>", "<0xE6>", *"é日🙂"]), max_size=40))
def test_with_characters_in_bytes_too(characters):
    pieces = [
        piece
        for character in characters
        for piece in (
            [f"<0x{byte:02X}>" for byte in character.encode()]
            if character in "é日🙂"
            else [character]
        )
    ]
    vocabulary = list(dict.fromkeys(pieces))
    tokenizer = byte_fallback(*vocabulary)
    ids = [vocabulary.index(piece) for piece in pieces]
    for stop in ("é", "日é", " a", "a日", "🙂🙂", "<a"):
        assert first_met(tokenizer, ids, stop) == first_contained(tokenizer, ids, stop)


@pytest.mark.parametrize("size", [50, 200, 800])
def test_what_is_decoded_does_not_grow_with_the_completion(size):
    class Counting:
        longest = 0

        def decode(self, ids, **options):
            self.longest = max(self.longest, len(ids))
            return "x" * len(ids)

    tokenizer = Counting()
    assert not StopStrings(tokenizer).are_met([7] * size, ("</answer>",))
    assert tokenizer.longest == len("</answer>") + 1
