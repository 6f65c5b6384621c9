"""Gymnasium spaces for text: any Unicode, membership without reading the characters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

import numpy as np
from gymnasium.spaces import Space
from gymnasium.vector.utils import (
    batch_space,
    concatenate,
    create_empty_array,
    create_shared_memory,
)

from rlgym_llm.errors import UserError
from rlgym_llm.types import Message, Role

__all__ = ["DEFAULT_ALPHABET", "Conversation", "UnicodeText", "unseeded"]

_S = TypeVar("_S", bound=Space[Any])

DEFAULT_ALPHABET = "abcXYZ 0123456789+-*/=#.,\n\t\"'\\{}<>éßπ≤√中文あя😀"
"""What `sample` draws from: digits, markers, and scripts beyond ASCII."""

_MAX_SAMPLE_CHARS = 32
_SAMPLE_ROLES: tuple[Role, ...] = ("user", "assistant", "user")


class UnicodeText(Space[str]):
    r"""Every string of at most ``max_chars`` characters, the empty one included.

    `contains` looks at the type and the length alone. ``alphabet`` says what `sample` draws from
    and does not limit membership; each element is one character, or ValueError.

    >>> space = UnicodeText(max_chars=10)
    >>> "naïve\nπ≤4" in space, "" in space, "x" * 11 in space
    (True, True, False)
    """

    def __init__(
        self,
        *,
        max_chars: int = 1_000_000,
        alphabet: Sequence[str] = DEFAULT_ALPHABET,
        seed: int | np.random.Generator | None = None,
    ) -> None:
        if max_chars < 0:
            raise ValueError(f"max_chars must be 0 or more, got {max_chars}")
        is_checked = alphabet is DEFAULT_ALPHABET  # as for every environment that is made
        if not is_checked and (not alphabet or any(len(char) != 1 for char in alphabet)):
            raise ValueError(f"alphabet must hold single characters, got {alphabet!r}")
        self.max_chars = max_chars
        self.alphabet = "".join(alphabet)
        super().__init__(dtype=str, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """False: text has no fixed shape."""
        return False

    def sample(self, mask: None = None, probability: None = None) -> str:
        """A seeded random string of at most 32 characters; masks are not supported."""
        _refuse_masks(mask, probability)
        num_chars = self.np_random.integers(min(self.max_chars, _MAX_SAMPLE_CHARS) + 1)
        picks = self.np_random.integers(len(self.alphabet), size=num_chars)
        return "".join(self.alphabet[i] for i in picks)

    def contains(self, x: Any) -> bool:
        """Whether ``x`` is a string that is not too long."""
        return isinstance(x, str) and len(x) <= self.max_chars

    def __repr__(self) -> str:
        return f"UnicodeText(max_chars={self.max_chars})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, UnicodeText)
            and self.max_chars == other.max_chars
            and self.alphabet == other.alphabet
        )

    __hash__ = None  # type: ignore[assignment]  # seeding changes a space, as in Gymnasium's own


class Conversation(Space[tuple[Message, ...]]):
    """Every conversation that is not empty: a tuple of `Message`.

    >>> (Message(role="user", content="2 + 3 = ?"),) in Conversation(), () in Conversation()
    (True, False)
    """

    def __init__(self, *, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """False: a conversation has no fixed shape."""
        return False

    def sample(self, mask: None = None, probability: None = None) -> tuple[Message, ...]:
        """A seeded random conversation of one to three messages; masks are not supported."""
        _refuse_masks(mask, probability)
        text = UnicodeText(seed=self.np_random)  # one stream, so that one seed fixes it all
        num_messages = self.np_random.integers(len(_SAMPLE_ROLES)) + 1
        return tuple(
            Message(role=role, content=text.sample()) for role in _SAMPLE_ROLES[:num_messages]
        )

    def contains(self, x: Any) -> bool:
        """Whether ``x`` is a tuple of messages; their text is not read."""
        return isinstance(x, tuple) and bool(x) and all(isinstance(m, Message) for m in x)

    def to_jsonable(self, sample_n: Any) -> list[Any]:
        """Each conversation as a list of dictionaries."""
        return [[message.to_dict() for message in sample] for sample in sample_n]

    def from_jsonable(self, sample_n: list[Any]) -> list[Any]:
        """The inverse of `to_jsonable`."""
        return [tuple(map(Message.from_dict, sample)) for sample in sample_n]

    def __repr__(self) -> str:
        return "Conversation()"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Conversation)

    __hash__ = None  # type: ignore[assignment]  # as above


def unseeded(space: _S) -> _S:
    """A copy of one of our spaces that draws by itself; a space of another kind as it is.

    >>> space = UnicodeText(max_chars=10, seed=3)
    >>> unseeded(space) == space, unseeded(space) is space
    (True, False)
    """
    if not isinstance(space, UnicodeText | Conversation):
        return space
    other = object.__new__(type(space))
    other.__dict__.update(space.__dict__)
    other._np_random = None  # type: ignore[assignment]  # as Gymnasium's own constructor leaves it
    return other


def _refuse_masks(mask: object, probability: object) -> None:
    if mask is not None or probability is not None:
        raise ValueError("text spaces take neither a mask nor a probability")


# A batch of texts is a tuple of them. Gymnasium's own functions for custom spaces batch and
# concatenate so already; they are named here so that the behaviour is ours by contract. `iterate`
# is left alone on purpose: registered, it would make Gymnasium walk the characters of each text.
for _kind in (UnicodeText, Conversation):
    batch_space.register(_kind, batch_space.dispatch(Space))
    concatenate.register(_kind, concatenate.dispatch(Space))


@create_empty_array.register(UnicodeText)
def _empty_texts(
    space: UnicodeText, n: int = 1, fn: Callable[..., Any] = np.zeros
) -> tuple[str, ...]:
    return ("",) * n


@create_empty_array.register(Conversation)
def _empty_conversations(
    space: Conversation, n: int = 1, fn: Callable[..., Any] = np.zeros
) -> tuple[tuple[Message, ...], ...]:
    return ((Message(role="user", content=""),),) * n


@create_shared_memory.register(UnicodeText)
@create_shared_memory.register(Conversation)
def _refuse_shared_memory(space: Space[Any], n: int = 1, ctx: Any = None) -> NoReturn:
    # Gymnasium's default; its own words for it speak of custom spaces, three errors deep.
    raise UserError(
        f"{space} has no fixed size, so it cannot lie in shared memory: "
        "AsyncVectorEnv(..., shared_memory=False)"
    )
