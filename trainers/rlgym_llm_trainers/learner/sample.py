"""Training samples: one sequence to learn from as plain data, and how a rollout becomes one.

Streams span the whole sequence, prompt included, and what stands at t speaks of token t.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal

from rlgym_llm.errors import GeneratorError
from rlgym_llm.kept_sets import KeptSets
from rlgym_llm.types import Rollout
from rlgym_llm_trainers.algorithms.kept_sets import fault_of

__all__ = ["CONTEXT_VERSION", "Stream", "TrainingSample", "sample_from_rollout"]

CONTEXT_VERSION = -1
"""Policy version of tokens that no policy sampled: prompts and the environment's replies."""

Stream = Literal["advantages", "returns", "values", "old_logprobs", "ref_logprobs", "is_weights"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSample:
    """One sequence to learn from, as plain data: equal-length streams over its T tokens.

    Prompt [1, 2] and reply [4, 5] sampled under version 3: ``token_ids`` (1, 2, 4, 5),
    ``loss_mask`` (False, False, True, True), ``rollout_logprobs`` (0, 0, -0.1, -0.2),
    ``policy_versions`` (-1, -1, 3, 3).

    Raises ValueError where lengths differ, the first token is trained (nothing predicts it), a
    trained token has no finite log-prob or no version, or a kept set is not of a trained token or
    lacks it.
    """

    token_ids: tuple[int, ...]
    loss_mask: tuple[bool, ...]
    """True on the tokens the policy sampled, a closing end-of-text token included."""
    rollout_logprobs: tuple[float, ...]
    """Of the policy and temperature that sampled; 0 on context."""
    policy_versions: tuple[int, ...]
    """Of the policy that sampled each token; `CONTEXT_VERSION` on context."""
    rollout_id: str
    group_id: str
    sample_index: int
    advantages: tuple[float, ...] | None = None
    returns: tuple[float, ...] | None = None
    """What a critic is trained towards."""
    values: tuple[float, ...] | None = None
    """Of the critic before the update: of the state in which each token was sampled."""
    old_logprobs: tuple[float, ...] | None = None
    """Of the policy before the first update; None where the generator's log-probs are those."""
    ref_logprobs: tuple[float, ...] | None = None
    """Of the reference policy."""
    is_weights: tuple[float, ...] | None = None
    """How many times each token's loss counts; 0 on what was rejected. None where all count 1."""
    multiplicity: int = 1
    """How many times the sample counts, as so many equal ones would; 0 keeps its place in a
    mini-batch alone."""
    kept_sets: KeptSets | None = None
    """What each token was sampled from and every log-prob of it is over; None where it was all
    ids. Nothing is cut on context."""

    def __post_init__(self) -> None:
        length = len(self.token_ids)
        if length == 0:
            raise ValueError(f"sample of rollout {self.rollout_id} has no tokens")
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, tuple | KeptSets) and len(value) != length:
                raise ValueError(
                    f"sample of rollout {self.rollout_id}: {length} token_ids but "
                    f"{len(value)} {field.name}"
                )
        if self.loss_mask[0] or self.rollout_logprobs[0] != 0:
            raise ValueError(
                f"sample of rollout {self.rollout_id}: nothing predicts its first token, which "
                "must stand under mask 0 with log-prob 0"
            )
        for t, is_trained in enumerate(self.loss_mask):
            if is_trained and not math.isfinite(self.rollout_logprobs[t]):
                raise ValueError(
                    f"sample of rollout {self.rollout_id}: token {t} was sampled with log-prob "
                    f"{self.rollout_logprobs[t]}"
                )
            if is_trained and self.policy_versions[t] < 0:
                raise ValueError(
                    f"sample of rollout {self.rollout_id}: no version for trained token {t}"
                )
        fault = self.kept_sets and fault_of(self.kept_sets, self.token_ids, self.loss_mask)
        if fault:
            raise ValueError(f"sample of rollout {self.rollout_id}: {fault}")

    @property
    def num_tokens(self) -> int:
        """Length T of the whole sequence."""
        return len(self.token_ids)

    @property
    def num_trained_tokens(self) -> int:
        """Number of tokens under mask 1, those that were rejected included."""
        return sum(self.loss_mask)


def sample_from_rollout(rollout: Rollout, *, is_cut: bool = False) -> TrainingSample:
    """The rollout's own token ids in order, mask 1 on what was sampled and 0 on what was read.

    Raises ValueError where a turn's completion has no log-probs, or its version spans do not
    cover each token exactly once: what sampled a token is known, or it is not trained on. For the
    same reason GeneratorError where top-k or top-p was to cut (``is_cut``) and there are no kept
    sets.
    """
    token_ids: list[int] = []
    loss_mask: list[bool] = []
    logprobs: list[float] = []
    versions: list[int] = []
    kept_sets: list[KeptSets] = []
    has_kept_sets = any(turn.completion.kept_token_ids is not None for turn in rollout.turns)
    for index, turn in enumerate(rollout.turns):
        completion = turn.completion
        if completion.logprobs is None:
            raise ValueError(f"rollout {rollout.id}, turn {index}: its generator gave no log-probs")
        kept = completion.kept_token_ids
        if is_cut and kept is None:
            raise GeneratorError(
                f"rollout {rollout.id}, turn {index}: its generator did not say which tokens top-k "
                "and top-p left, so its log-probs cannot be compared; train with "
                "--rollout.top_p 1 --rollout.top_k -1, or with --rollout.name hf"
            )
        num_context = len(turn.new_prompt_token_ids)
        token_ids += [*turn.new_prompt_token_ids, *completion.token_ids]
        loss_mask += [False] * num_context + [True] * completion.num_tokens
        logprobs += [0.0] * num_context + list(completion.logprobs)
        spans = sorted(completion.version_spans)
        sampled = [version for start, end, version in spans for _ in range(start, end)]
        ends = [0, *(end for _, end, _ in spans)]
        if [start for start, _, _ in spans] != ends[:-1] or ends[-1] != completion.num_tokens:
            raise ValueError(
                f"rollout {rollout.id}, turn {index}: version spans {spans} do not cover its "
                f"{completion.num_tokens} tokens"
            )
        versions += [CONTEXT_VERSION] * num_context + sampled
        if has_kept_sets:
            kept = KeptSets.uncut(completion.num_tokens) if kept is None else kept
            kept_sets += [KeptSets.uncut(num_context), kept]
    return TrainingSample(
        token_ids=tuple(token_ids),
        loss_mask=tuple(loss_mask),
        rollout_logprobs=tuple(logprobs),
        policy_versions=tuple(versions),
        kept_sets=KeptSets.join(kept_sets) if has_kept_sets else None,
        rollout_id=rollout.id,
        group_id=rollout.group_id,
        sample_index=rollout.sample_index,
    )
