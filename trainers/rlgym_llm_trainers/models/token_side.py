"""The side of a model that needs no weights: its tokenizer, and the ids that end its turns."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rlgym_llm.errors import UserError, one_line
from rlgym_llm.quiet_hub import quiet_hub

__all__ = [
    "ModelText",
    "TokenSide",
    "eos_ids",
    "load_failure",
    "load_token_side",
    "read_model_config",
]


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

    @property
    def num_ids(self) -> int | None:
        """How many token ids the model has, where that is known."""
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
    num_ids: int | None = None
    """How many token ids the model has, some of which its tokenizer may not know."""


def load_token_side(path: str | Path, *, trust_remote_code: bool = False) -> TokenSide:
    """Loads the tokenizer of a Hugging Face folder or hub id.

    Raises UserError, in one line that names ``--model``, where it does not load.
    """
    from transformers import AutoTokenizer, GenerationConfig

    path = os.path.expanduser(path)
    try:
        with quiet_hub():
            tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=trust_remote_code)
            config = read_model_config(path, trust_remote_code=trust_remote_code)
            try:
                ends: Any = GenerationConfig.from_pretrained(path).eos_token_id
            except OSError:  # it has none of its own
                ends = config.get("eos_token_id")
    except UserError:
        raise
    except Exception as error:  # the loaders raise anything
        raise load_failure(path, error, "its tokenizer does not load") from error
    return TokenSide(
        tokenizer=tokenizer,
        path=path,
        eos_token_ids=eos_ids(tokenizer.eos_token_id, ends),
        max_positions=config.get("max_position_embeddings"),
        num_ids=config.get("vocab_size"),
    )


def read_model_config(path: str | Path, *, trust_remote_code: bool = False) -> Mapping[str, Any]:
    """The model's own configuration (``config.json``); that of its text part where it has more.

    Raises UserError where there is none.
    """
    from transformers import AutoConfig

    path = os.path.expanduser(path)
    try:
        with quiet_hub():
            config: Any = AutoConfig.from_pretrained(path, trust_remote_code=trust_remote_code)
    except Exception as error:  # the loaders raise anything
        raise load_failure(path, error, "its config does not load") from error
    found: Mapping[str, Any] = config.get_text_config().to_dict()
    return found


def load_failure(
    path: str | Path, error: BaseException, what: str, *, flag: str = "--model"
) -> UserError:
    """Why ``what`` of the model at ``path``, in one line that names the ``flag`` it came by."""
    from huggingface_hub.errors import LocalEntryNotFoundError

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, LocalEntryNotFoundError):
            return UserError(
                f"{flag} {path}: is no folder here, and the Hugging Face hub cannot be asked for "
                "it (no network, or HF_HUB_OFFLINE is set); give a folder, or starter for the "
                "model that ships with the package"
            )
        cause = cause.__cause__
    if "`trust_remote_code=True`" in str(error):
        return UserError(
            f"{flag} {path}: brings code of its own; read it, and let it run by "
            "--model.trust_remote_code true"
        )
    return UserError(f"{flag} {path}: {what}: {one_line(error, 300)}")


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
