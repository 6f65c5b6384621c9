"""Score steps with a transformers model in this process: a token head, or two words of a causal."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlgym_llm.errors import UserError
from rlgym_llm_rewards.pretrained import Pretrained
from rlgym_llm_rewards.prm.scorer import Outcome, SteppedRollout

if TYPE_CHECKING:
    import torch

__all__ = ["CausalScorer", "ModelScorer", "TokenScorer", "marked_tokens"]

_MARK = "\ue000\ue001"
"""Stands in the rendered text where a step ends, until its place is known: characters for private
use, which are broken up wherever else they stand together."""


def marked_tokens(
    loaded: Pretrained, item: SteppedRollout, separator: str
) -> tuple[list[int], list[int]]:
    """The ids that the model reads, and for each step the token at which it is judged.

    That is the token which holds the separator's last character; white space at the separator's
    end does not count. Raises ValueError where the text is too long or the template drops a step.
    """
    core = separator.rstrip() or separator
    markers = {*loaded.markers, _MARK, *([core] if core.strip() else [])}
    contents = item.contents(separator=separator, mark=_MARK, markers=markers)
    *judged, rest = loaded.render(item.rollout, contents).split(_MARK)
    if len(judged) != len(item.steps):
        raise ValueError(
            f"the chat template of {loaded.who} kept {len(judged)} of {len(item.steps)} steps; "
            "give a template of your own"
        )
    encoded = loaded.encode("".join([*judged, rest]))
    loaded.check_length(len(encoded.token_ids))
    places = []
    num_chars = 0
    for piece in judged:
        num_chars += len(piece)
        places.append(encoded.token_at(num_chars - 1))
    return encoded.token_ids, places


class ModelScorer:
    """Scores rollouts in batches of like lengths; a subclass says what a step's token is worth."""

    def __init__(self, loaded: Pretrained, *, separator: str, batch_size: int) -> None:
        self._loaded: Pretrained | None = loaded
        self._separator = separator
        self._batch_size = batch_size

    def __call__(self, items: Sequence[SteppedRollout], /) -> list[Outcome]:
        """One outcome per rollout, in order."""
        import torch

        loaded = self._loaded
        assert loaded is not None, "scored after it was closed"
        outcomes: list[Outcome] = [ValueError("it was not scored")] * len(items)
        rows: list[list[int]] = []
        wanted: list[tuple[int, list[int]]] = []  # which item, and its steps' tokens
        for index, item in enumerate(items):
            try:
                token_ids, places = marked_tokens(loaded, item, self._separator)
            except ValueError as failure:
                outcomes[index] = failure
                continue
            rows.append(token_ids)
            wanted.append((index, places))
        with torch.inference_mode():
            for members, ids, mask in loaded.batches(rows, self._batch_size):
                places_of = [wanted[member][1] for member in members]
                scores = self._score(loaded.model, ids, mask, places_of)
                for member, row in zip(members, scores, strict=True):
                    outcomes[wanted[member][0]] = row
        return outcomes

    def close(self) -> None:
        """Lets the model go."""
        self._loaded = None

    def _score(
        self, model: Any, ids: torch.Tensor, mask: torch.Tensor, places: Sequence[Sequence[int]]
    ) -> list[list[float]]:
        raise NotImplementedError


class TokenScorer(ModelScorer):
    """The probability of class ``label`` at each step's token (Qwen2.5-Math-PRM; TRL's trainer).

    With one class instead of several the score is the sigmoid of its logit.
    """

    def __init__(self, loaded: Pretrained, *, separator: str, batch_size: int, label: int) -> None:
        super().__init__(loaded, separator=separator, batch_size=batch_size)
        num_labels = int(loaded.model.config.num_labels)
        if num_labels > 1 and not 0 <= label < num_labels:
            raise UserError(f"{loaded.who} has {num_labels} classes and none numbered {label}")
        self._label = label

    def _score(
        self, model: Any, ids: torch.Tensor, mask: torch.Tensor, places: Sequence[Sequence[int]]
    ) -> list[list[float]]:
        logits: torch.Tensor = model(input_ids=ids, attention_mask=mask)[0]  # [B, T, C]
        scores = []
        for row, tokens in zip(logits, places, strict=True):
            at_steps = row[tokens].float()  # [S, C]
            several = at_steps.shape[-1] > 1
            worth = at_steps.softmax(-1)[:, self._label] if several else at_steps[:, 0].sigmoid()
            scores.append([float(value) for value in worth.cpu()])
        return scores


class CausalScorer(ModelScorer):
    """``p(good) / (p(good) + p(bad))`` of the next word at each step's token (Math-Shepherd)."""

    def __init__(
        self, loaded: Pretrained, *, separator: str, batch_size: int, good: str, bad: str
    ) -> None:
        super().__init__(loaded, separator=separator, batch_size=batch_size)
        self._words = [_word_id(loaded, word) for word in (good, bad)]
        if self._words[0] == self._words[1]:
            raise UserError(f"{loaded.who} reads {good!r} and {bad!r} as the same token")
        forward = inspect.signature(loaded.model.forward).parameters
        self._keeps_some = "logits_to_keep" in forward

    def _score(
        self, model: Any, ids: torch.Tensor, mask: torch.Tensor, places: Sequence[Sequence[int]]
    ) -> list[list[float]]:
        import torch

        # Logits of whole vocabularies are large: only those of tokens that end a step are made.
        kept = sorted({token for tokens in places for token in tokens})
        options = {}
        if self._keeps_some:
            options["logits_to_keep"] = torch.tensor(kept, device=ids.device)
        logits: torch.Tensor = model(input_ids=ids, attention_mask=mask, **options).logits
        if not self._keeps_some:
            logits = logits[:, kept]
        place_of = {token: index for index, token in enumerate(kept)}
        scores = []
        for row, tokens in zip(logits, places, strict=True):
            at_steps = row[[place_of[token] for token in tokens]][:, self._words].float()  # [S, 2]
            scores.append([float(value) for value in at_steps.softmax(-1)[:, 0].cpu()])
        return scores


def _word_id(loaded: Pretrained, word: str) -> int:
    ids = loaded.tokenizer(word, add_special_tokens=False)["input_ids"]
    if len(ids) != 1:
        raise UserError(f"{loaded.who} reads {word!r} as {len(ids)} tokens; good and bad are one")
    return int(ids[0])
