"""A transformers model that judges: loaded whole, fed in batches, the same alone as in company."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rlgym_llm.errors import UserError, one_line
from rlgym_llm.types import Rollout
from rlgym_llm_rewards.transcript import conversation, defuse, fill, placeholders, prompt_values

if TYPE_CHECKING:
    import torch

__all__ = ["DType", "Encoded", "Head", "Pretrained", "check_template", "load_pretrained"]

DType = Literal["auto", "float32", "bfloat16", "float16"]
Head = Literal["sequence", "token", "causal"]

_CLASSES: Mapping[Head, str] = {
    "sequence": "AutoModelForSequenceClassification",
    "token": "AutoModelForTokenClassification",
    "causal": "AutoModelForCausalLM",
}
_HUB_ID = re.compile(r"\w[\w.-]*(?:/\w[\w.-]*)?", re.ASCII)
_NO_LIMIT = 10**9
"""Tokenizers write "no limit" as a number of about 10**30."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """One text as ids, with the characters that each token covers."""

    token_ids: list[int]  # [T]
    char_ends: list[int]  # [T], 0 for tokens that stand for no text

    def token_at(self, char: int) -> int:
        """The token that holds character ``char``: the first that ends behind it."""
        for index, end in enumerate(self.char_ends):
            if end > char:
                return index
        raise ValueError(f"no token holds character {char}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pretrained:
    """A model in evaluation mode, with its tokenizer and how its input is written."""

    model: Any
    tokenizer: Any
    device: torch.device
    who: str
    """What errors call it: the reward and its model."""
    template: str | None
    """None for the tokenizer's chat template."""
    max_length: int | None
    """Most tokens the model takes, where anything tells."""
    markers: frozenset[str]
    """Control tokens, which no prompt or completion may bring along."""

    def render(self, rollout: Rollout, contents: Sequence[str]) -> str:
        """The text that the model reads, ``contents[t]`` standing for what turn ``t`` said."""
        if self.template is not None:
            values = prompt_values(rollout, markers=self.markers)
            return fill(self.template, {**values, "completion": "\n".join(contents)})
        messages = conversation(rollout, contents, markers=self.markers)
        text: str = self.tokenizer.apply_chat_template(messages, tokenize=False)
        return text

    def defuse(self, text: str) -> str:
        """What a policy wrote, without control tokens of this tokenizer."""
        return defuse(text, self.markers)

    def encode(self, text: str) -> Encoded:
        """The ids of a rendered text. A chat template writes its own opening token."""
        encoded = self.tokenizer(
            text,
            add_special_tokens=self.template is not None,
            return_offsets_mapping=True,
            truncation=False,
        )
        ends = [end for _, end in encoded["offset_mapping"]]
        return Encoded(token_ids=list(encoded["input_ids"]), char_ends=ends)

    def check_length(self, num_tokens: int) -> None:
        """Raises ValueError for more tokens than the model takes."""
        if self.max_length is not None and num_tokens > self.max_length:
            raise ValueError(
                f"its {num_tokens} tokens are more than the {self.max_length} that {self.who} takes"
            )

    def batches(
        self, rows: Sequence[Sequence[int]], batch_size: int
    ) -> Iterator[tuple[list[int], torch.Tensor, torch.Tensor]]:
        """Batches of like lengths: places in ``rows``, ids and mask, both [B, T], right-padded.

        The padding id is one that no row of the batch holds, and the model's configuration is told:
        sequence classifiers look for the last id that is not padding, and where padding and
        end-of-text share an id (or none is set) they would find another token than alone.
        """
        import torch

        order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
        for start in range(0, len(order), batch_size):
            places = order[start : start + batch_size]
            longest = max(len(rows[place]) for place in places)
            pad = self._pad_id({token for place in places for token in rows[place]})
            ids = torch.full((len(places), longest), pad, dtype=torch.long)
            mask = torch.zeros_like(ids)
            for row, place in enumerate(places):
                length = len(rows[place])
                ids[row, :length] = torch.tensor(rows[place], dtype=torch.long)
                mask[row, :length] = 1
            yield places, ids.to(self.device), mask.to(self.device)

    def _pad_id(self, used: Collection[int]) -> int:
        pad = self.tokenizer.pad_token_id
        if pad is None or pad in used:
            size = int(self.model.get_input_embeddings().num_embeddings)
            pad = next(token for token in range(size - 1, -1, -1) if token not in used)
        self.model.config.get_text_config().pad_token_id = int(pad)
        return int(pad)


def check_template(reward: str, template: str | None) -> None:
    """Raises UserError for a template that leaves the completion out."""
    if template is not None and "completion" not in placeholders(template):
        raise UserError(
            f"reward {reward!r}: the template {template!r} does not say where {{completion}} "
            "stands; write it like '{prompt} {completion}'"
        )


def load_pretrained(
    reward: str,
    path: str,
    head: Head,
    *,
    template: str | None = None,
    max_length: int | None = None,
    dtype: DType = "auto",
    device: str = "auto",
    trust_remote_code: bool = False,
    markers: Collection[str] = (),
) -> Pretrained:
    """Loads a Hugging Face folder or hub id with the head it was trained with, dropout off.

    A path that is no hub id (which is ``name`` or ``owner/name``) is a folder; ``~`` is one's home.
    Raises UserError in one line where it does not load, where weights of the head are missing (the
    library would draw them at random), or where there is neither a chat template nor a template.
    """
    import torch
    import transformers

    who = f"reward {reward!r}, model {path}"
    path = _checked_path(who, path)
    chosen = _pick_device(who, device)
    options: dict[str, Any] = {"trust_remote_code": trust_remote_code}
    try:
        with _quiet():
            tokenizer: Any = transformers.AutoTokenizer.from_pretrained(path, **options)
            auto = getattr(transformers, _class_name(path, head, options))
            model, loading = auto.from_pretrained(
                path,
                dtype=dtype if dtype == "auto" else getattr(torch, dtype),
                output_loading_info=True,
                **options,
            )
    except Exception as failure:  # the loaders raise anything from KeyError to safetensors' own
        reason = one_line(failure, 300)
        raise UserError(f"{who} does not load: {reason}") from failure
    if missing := sorted(loading["missing_keys"]):
        raise UserError(
            f"{who} is not trained for this: it lacks {len(missing)} weights, such as {missing[0]}"
        )
    if template is None and not tokenizer.chat_template:
        raise UserError(
            f"{who} has no chat template; give one: template: '{{prompt}}{{completion}}'"
        )
    added = (token.content for token in tokenizer.added_tokens_decoder.values() if token.special)
    return Pretrained(
        model=model.to(chosen).eval(),
        tokenizer=tokenizer,
        device=chosen,
        who=who,
        template=template,
        max_length=max_length or _longest(model, tokenizer),
        markers=frozenset([*added, *tokenizer.all_special_tokens, *markers]),
    )


def _checked_path(who: str, path: str) -> str:
    """The folder or hub id to load; raises UserError where it can be neither."""
    folder = Path(path).expanduser()
    if folder.is_dir():
        return str(folder)
    if folder.is_file():
        raise UserError(f"{who} does not load: that is a file; name the folder that holds it")
    if not _HUB_ID.fullmatch(path):
        raise UserError(f"{who} does not load: there is no such folder")
    return path


def _class_name(path: str, head: Head, options: Mapping[str, Any]) -> str:
    """The auto class; process reward models with code of their own come as plain ``AutoModel``."""
    import transformers

    config = transformers.AutoConfig.from_pretrained(path, **options)
    own = getattr(config, "auto_map", None) or {}
    wanted = _CLASSES[head]
    return "AutoModel" if "AutoModel" in own and wanted not in own else wanted


def _longest(model: Any, tokenizer: Any) -> int | None:
    told = (
        getattr(model.config.get_text_config(), "max_position_embeddings", None),
        tokenizer.model_max_length,
    )
    known = [int(value) for value in told if isinstance(value, int) and 0 < value < _NO_LIMIT]
    return min(known, default=None)


def _pick_device(who: str, name: str) -> torch.device:
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device).item()
    except (RuntimeError, AssertionError) as failure:
        reason = str(failure).splitlines()[0][:200]
        raise UserError(f"{who}: device {name} is not on this machine ({reason})") from failure
    return device


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Loading without the library's bars and notices; its settings are put back."""
    from transformers.utils import logging

    library: Any = logging
    verbosity, bars = library.get_verbosity(), library.is_progress_bar_enabled()
    library.set_verbosity_error()
    library.disable_progress_bar()
    try:
        yield
    finally:
        library.set_verbosity(verbosity)
        if bars:
            library.enable_progress_bar()
