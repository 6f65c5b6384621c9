"""Reward ``reward_model``: the score of a sequence-classification head."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from rlgym_llm.errors import UserError
from rlgym_llm.rewards import RawScore, Reward, RewardContext
from rlgym_llm.scores import Score, ScoreStatus
from rlgym_llm.types import Rollout
from rlgym_llm_rewards.pretrained import DType, Pretrained, check_template, load_pretrained

if TYPE_CHECKING:
    import torch

__all__ = ["RewardModel", "normalized"]

Activation = Literal["none", "sigmoid"]


@dataclass(frozen=True, kw_only=True)
class RewardModel(Reward):
    """``f((logit - mean) / std)`` of a model trained to score whole conversations.

    The model is any ``AutoModelForSequenceClassification`` with one label, as Bradley-Terry
    training on pairs gives it (Ouyang et al. 2022, arXiv 2203.02155), or with more of which
    ``label`` names the one that counts. It reads the whole episode under its own chat template,
    replies of the environment included. ``mean`` and ``std`` bring logits of a calibration set to
    zero mean and unit spread; ``f`` is nothing or the sigmoid. Logit 3.0 with mean 1.0, std 2.0:

    >>> normalized(3.0, mean=1.0, std=2.0, activation="none")
    1.0
    >>> round(normalized(3.0, mean=1.0, std=2.0, activation="sigmoid"), 4)
    0.7311

    Deterministic: evaluation mode, no dropout. A rollout scores the same alone as in a batch, up to
    the rounding of batched products (about 1e-6 in float32).

    Errors: UserError where the model does not load, lacks its head, or has several labels and
    ``label`` is not given; a text too long for the model is cut on ``truncation_side``.
    """

    name = "reward_model"
    needs = ("prompt",)
    range = (-math.inf, math.inf)

    model: str
    """Folder or hub id."""
    label: int | None = None
    """Which logit is the score; only for models with more than one."""
    activation: Activation = "none"
    """``sigmoid`` for a value between 0 and 1."""
    mean: float = 0.0
    """Taken from the logit."""
    std: float = 1.0
    """Divides what is left."""
    template: str | None = None
    """Text with ``{prompt}`` and ``{completion}`` (and ``{answer}``, where wanted) in place of the
    chat template."""
    max_length: int | None = None
    """Most tokens; by default what the model and its tokenizer say."""
    truncation_side: Literal["left", "right"] = "left"
    """Which end of a text that is too long goes. Left keeps the answer, and the prompt goes."""
    batch_size: int = 8
    """Rollouts in one pass, of like lengths."""
    dtype: DType = "auto"
    """``auto`` is the checkpoint's."""
    device: str = "auto"
    """``auto`` is CUDA where there is one."""
    trust_remote_code: bool = False
    """Let the model's folder bring Python code that runs here."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.mean) and math.isfinite(self.std)) or self.std <= 0:
            raise UserError(
                f"reward 'reward_model' normalises by mean {self.mean} and std {self.std}; they "
                "are finite, and std is above 0 (a negative weight turns a score around)"
            )
        if self.label is not None and self.label < 0:
            raise UserError(
                f"reward 'reward_model': label is a logit's number from 0, not {self.label}"
            )
        if self.batch_size < 1 or (self.max_length is not None and self.max_length < 1):
            raise UserError("reward 'reward_model': batch_size and max_length are at least 1")
        check_template(self.name, self.template)
        if self.activation == "sigmoid":
            object.__setattr__(self, "range", (0.0, 1.0))

    def __getstate__(self) -> Mapping[str, Any]:
        # Options only: a copy loads its own model when it is set up.
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**own, "range": self.range}

    def setup(self, ctx: RewardContext) -> None:
        """Loads the model."""
        loaded = load_pretrained(
            self.name,
            self.model,
            "sequence",
            template=self.template,
            max_length=self.max_length,
            dtype=self.dtype,
            device=self.device,
            trust_remote_code=self.trust_remote_code,
        )
        num_labels = int(loaded.model.config.num_labels)
        if self.label is None and num_labels != 1:
            raise UserError(f"{loaded.who} has {num_labels} labels; say which counts with `label`")
        if self.label is not None and not 0 <= self.label < num_labels:
            raise UserError(f"{loaded.who} has {num_labels} labels and none numbered {self.label}")
        object.__setattr__(self, "_loaded", loaded)

    def close(self) -> None:
        """Lets the model go."""
        object.__setattr__(self, "_loaded", None)

    def score(self, rollout: Rollout, ctx: RewardContext) -> RawScore:
        """The normalised logit."""
        return self.score_batch([rollout], ctx)[0]

    def score_batch(self, rollouts: Sequence[Rollout], ctx: RewardContext) -> list[RawScore]:
        """The normalised logits, computed in batches of like lengths."""
        import torch

        loaded = self._model()
        rows = [self._token_ids(loaded, rollout) for rollout in rollouts]
        filled = [place for place, row in enumerate(rows) if row]
        logits = [math.nan] * len(rows)
        with torch.inference_mode():
            batches = loaded.batches([rows[place] for place in filled], self.batch_size)
            for places, ids, mask in batches:
                outputs: torch.Tensor = loaded.model(input_ids=ids, attention_mask=mask).logits
                column = outputs[:, self.label or 0].float().cpu().tolist()
                for place, logit in zip(places, column, strict=True):
                    logits[filled[place]] = logit
        return [self._score(logit, row) for logit, row in zip(logits, rows, strict=True)]

    def _score(self, logit: float, row: Sequence[int]) -> Score:
        if not math.isfinite(logit):
            error = f"the model gave {logit} for {len(row)} tokens"
            return Score(name=self.name, value=None, status=ScoreStatus.ERROR, error=error)
        value = normalized(logit, mean=self.mean, std=self.std, activation=self.activation)
        return Score(name=self.name, value=value, info={"logit": logit, "num_tokens": len(row)})

    def _token_ids(self, loaded: Pretrained, rollout: Rollout) -> list[int]:
        contents = [loaded.defuse(turn.completion.text) for turn in rollout.turns]
        ids = loaded.encode(loaded.render(rollout, contents)).token_ids
        limit = loaded.max_length
        if limit is None or len(ids) <= limit:
            return ids
        return ids[-limit:] if self.truncation_side == "left" else ids[:limit]

    def _model(self) -> Pretrained:
        loaded: Pretrained | None = getattr(self, "_loaded", None)
        if loaded is None:
            raise RuntimeError("reward 'reward_model' is not set up; call setup before it scores")
        return loaded


def normalized(logit: float, *, mean: float, std: float, activation: Activation) -> float:
    """``(logit - mean) / std``, under the sigmoid where asked for."""
    value = (logit - mean) / std
    if activation == "none":
        return value
    # Of the two forms the one whose exponential cannot overflow.
    if value >= 0:
        return 1 / (1 + math.exp(-value))
    return math.exp(value) / (1 + math.exp(value))
