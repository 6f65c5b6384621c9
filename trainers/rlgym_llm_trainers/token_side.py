"""The side of a model that needs no weights: its tokenizer, and the ids that end its turns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rlgym_llm.errors import UserError

__all__ = ["ModelText", "TokenSide", "eos_ids", "load_token_side", "read_model_config"]


class ModelText(Protocol):
    """What text needs of a model; a `TokenSide` and a `Policy` have it."""

    @property
    def tokenizer(self) -> Any:
        """Its tokenizer."""
        ...

    @property
    def path(self) -> str:
        """Where that was loaded from."""
        ...

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Every id that ends a turn."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSide:
    """What turns text into ids and back, for whoever holds the weights elsewhere."""

    tokenizer: Any
    path: str
    """Where it was loaded from."""
    eos_token_ids: frozenset[int]
    """Every id that ends a turn: the tokenizer's and all of the generation config's."""
    max_positions: int | None = None
    """Longest sequence the model was made for, where its config tells."""


def load_token_side(path: str | Path, *, trust_remote_code: bool = False) -> TokenSide:
    """Loads the tokenizer of a Hugging Face folder or hub id.

    Raises UserError, in one line that names ``--model``, where it does not load.
    """
    from transformers import AutoTokenizer, GenerationConfig

    try:
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=trust_remote_code)
        config = read_model_config(path)
        try:
            ends: Any = GenerationConfig.from_pretrained(path).eos_token_id
        except OSError:  # it has none of its own
            ends = config.get("eos_token_id")
    except UserError:
        raise
    except Exception as error:  # the loaders raise anything
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise UserError(f"--model {path}: its tokenizer does not load: {reason}") from error
    return TokenSide(
        tokenizer=tokenizer,
        path=str(path),
        eos_token_ids=eos_ids(tokenizer.eos_token_id, ends),
        max_positions=config.get("max_position_embeddings"),
    )


def read_model_config(path: str | Path) -> Mapping[str, Any]:
    """The model's own configuration (``config.json``); that of its text part where it has more.

    Raises UserError where there is none.
    """
    from transformers import AutoConfig

    try:
        config: Any = AutoConfig.from_pretrained(path)
    except Exception as error:  # the loaders raise anything
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise UserError(f"--model {path}: its config does not load: {reason}") from error
    found: Mapping[str, Any] = config.get_text_config().to_dict()
    return found


def eos_ids(*given: Any) -> frozenset[int]:
    """All ids among numbers, lists of numbers and None.

    >>> sorted(eos_ids(2, [2, 7], None))
    [2, 7]
    """
    found: set[int] = set()
    for value in given:
        if isinstance(value, int):
            found.add(value)
        elif value is not None:
            found.update(int(item) for item in value)
    return frozenset(found)
