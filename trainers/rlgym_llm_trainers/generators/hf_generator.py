"""Sample from a transformers model in this process: batched, with a key-value cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.errors import GeneratorError
from rlgym_llm.generate import GenerateRequest
from rlgym_llm.types import Completion, FinishReason
from rlgym_llm_trainers.algorithms.kept_sets import KeptSetsRecorder
from rlgym_llm_trainers.generators.sampling import draw_tokens, keep_top, row_noise
from rlgym_llm_trainers.generators.stop_strings import StopStrings
from rlgym_llm_trainers.models.chat import ChatEncoder
from rlgym_llm_trainers.models.detokenize import Detokenizer
from rlgym_llm_trainers.models.policy import Policy

__all__ = ["HFGenerator"]

_COMPACT_BELOW = 0.8
"""Finished rows leave the batch once the share of live rows falls below this."""


class HFGenerator(ChatEncoder):
    """A `Generator` over the very model that is being trained, so its weights are never stale.

    Log-probs are the sampling distribution's own: ``log_softmax(logits / temperature)`` of the
    model that sampled, over the kept set where top-k or top-p cuts. Requests with the same prompt
    share one prefill. At most ``max_num_seqs`` sequences are sampled at once.
    """

    def __init__(self, policy: Policy, *, max_num_seqs: int = 256, policy_version: int = 0) -> None:
        super().__init__(policy)
        self._policy = policy
        self._max_num_seqs = max_num_seqs
        self._policy_version = policy_version
        self._detokenize = Detokenizer(policy.tokenizer, policy.eos_token_ids)
        self._stop_strings = StopStrings(policy.tokenizer)

    has_own_weights: bool = False

    @classmethod
    def from_config(cls, policy: Policy, config: TrainConfig) -> HFGenerator:
        """The generator that a run asks for."""
        return cls(policy, max_num_seqs=config.rollout.max_num_seqs)

    @property
    def policy_version(self) -> int:
        """Number of training steps that the weights have seen."""
        return self._policy_version

    def sync(self, version: int) -> dict[str, float]:
        """Takes note that the weights, which are the learner's own, are now ``version``."""
        self._policy_version = version
        return {}

    @torch.inference_mode()
    def generate(self, requests: Sequence[GenerateRequest]) -> list[Completion]:
        """One completion per request, in order; prompts may be of any length."""
        completions: list[Completion] = []
        self._policy.model.train(False)  # in training mode checkpointed layers drop their cache
        for start in range(0, len(requests), self._max_num_seqs):
            completions += self._generate_batch(requests[start : start + self._max_num_seqs])
        return completions

    def close(self) -> None:
        """Nothing of its own to give back: the weights belong to the learner."""

    def _generate_batch(self, requests: Sequence[GenerateRequest]) -> list[Completion]:
        device = self._policy.device
        budgets = np.array([request.params.max_new_tokens for request in requests])
        longest = int(budgets.max())
        noise = torch.from_numpy(np.stack([row_noise(r.seed, longest) for r in requests]))
        noise = noise.to(device)
        temperature = torch.tensor([r.params.temperature for r in requests], device=device)
        sampled = np.zeros((len(requests), longest), dtype=np.int64)
        logprobs = np.zeros((len(requests), longest), dtype=np.float64)
        lengths = np.zeros(len(requests), dtype=np.int64)
        has_stopped = np.zeros(len(requests), dtype=bool)
        kept = KeptSetsRecorder(len(requests)) if _are_cut(requests) else None

        state, logits = self._prefill(requests)
        rows = np.arange(len(requests))  # which request each row of the batch belongs to
        for position in range(longest):
            on = torch.from_numpy(rows).to(device)
            logits = _cut_tails(logits, [requests[row] for row in rows.tolist()])
            drawn, drawn_logprobs = draw_tokens(logits, noise[on, position], temperature[on])
            if not bool(torch.isfinite(drawn_logprobs).all()):
                raise GeneratorError("the model gave a log-prob that is not finite")
            ids = drawn.cpu().numpy()
            is_live = ~has_stopped[rows] & (lengths[rows] < budgets[rows])
            live = rows[is_live]
            sampled[live, position] = ids[is_live]
            logprobs[live, position] = drawn_logprobs.cpu().numpy()[is_live]
            lengths[live] += 1
            if kept is not None:
                kept.add(live, logits[torch.from_numpy(is_live).to(device)])
            has_stopped[live] = self._is_end(
                sampled[live, : position + 1], [requests[row] for row in live.tolist()]
            )
            is_live = ~has_stopped[rows] & (lengths[rows] < budgets[rows])
            if not is_live.any():
                break
            if is_live.mean() < _COMPACT_BELOW:
                keep = torch.from_numpy(np.flatnonzero(is_live)).to(device)
                state.select(keep)
                drawn, rows = drawn[keep], rows[is_live]
            logits = self._decode(state, drawn)

        rows_of_ids = [sampled[i, : lengths[i]].tolist() for i in range(len(requests))]
        texts = self._detokenize(rows_of_ids)
        return [
            Completion(
                text=texts[i][0],
                raw_text=texts[i][1],
                token_ids=tuple(rows_of_ids[i]),
                logprobs=tuple(logprobs[i, : lengths[i]].tolist()),
                version_spans=((0, int(lengths[i]), self._policy_version),),
                finish_reason=FinishReason.STOP if has_stopped[i] else FinishReason.LENGTH,
                kept_token_ids=None if kept is None else kept.of(i),
            )
            for i in range(len(requests))
        ]

    def _prefill(self, requests: Sequence[GenerateRequest]) -> tuple[_DecodeState, Tensor]:
        """Runs each different prompt once, then spreads its cache over its requests."""
        unique = list(dict.fromkeys(request.prompt_token_ids for request in requests))
        place = {prompt: i for i, prompt in enumerate(unique)}
        width = max(len(prompt) for prompt in unique)
        device = self._policy.device
        input_ids = torch.full((len(unique), width), self._policy.pad_token_id)
        mask = torch.zeros((len(unique), width), dtype=torch.long)
        for i, prompt in enumerate(unique):
            # Left-padded, so that every row's next token stands in the same column.
            input_ids[i, width - len(prompt) :] = torch.tensor(prompt)
            mask[i, width - len(prompt) :] = 1
        mask = mask.to(device)
        cache = DynamicCache(config=self._policy.model.config)
        output = self._policy.model(
            input_ids=input_ids.to(device),
            attention_mask=mask,
            position_ids=(mask.cumsum(-1) - 1).clamp(min=0),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        spread = torch.tensor([place[r.prompt_token_ids] for r in requests], device=device)
        budgets = torch.tensor([r.params.max_new_tokens for r in requests], device=device)
        cache.batch_select_indices(spread)
        mask = mask[spread]
        position = mask.sum(-1)
        state = _DecodeState(
            cache=cache, mask=mask, next_position=position, last_position=position + budgets - 1
        )
        return state, output.logits[:, -1][spread]

    def _decode(self, state: _DecodeState, token_ids: Tensor) -> Tensor:
        """Feeds one token [B] a row and returns the next logits [B, V]."""
        state.mask = torch.cat([state.mask, torch.ones_like(state.mask[:, :1])], dim=-1)
        output = self._policy.model(
            input_ids=token_ids[:, None],
            attention_mask=state.mask,
            position_ids=state.next_position[:, None],
            past_key_values=state.cache,
            use_cache=True,
        )
        state.next_position = torch.minimum(state.next_position + 1, state.last_position)
        logits: Tensor = output.logits[:, -1]
        return logits

    def _is_end(self, ids: np.ndarray, requests: Sequence[GenerateRequest]) -> np.ndarray:
        """Whether the last of each row's ids [B, T] ends it."""
        ends = self._policy.eos_token_ids
        return np.array(
            [
                row[-1] in ends
                or row[-1] in request.params.stop_token_ids
                or self._stop_strings.are_met(row, request.params.stop)
                for row, request in zip(ids, requests, strict=True)
            ],
            dtype=bool,
        )


@dataclass(slots=True)
class _DecodeState:
    """The batch that is being decoded: its cache, its mask [B, T], its next positions [B].

    Rows that are done are decoded until they leave. They stay at their last position, since a model
    that learned its positions has none after those of the longest prompt and response.
    """

    cache: Any
    mask: Tensor
    next_position: Tensor
    last_position: Tensor

    def select(self, rows: Tensor) -> None:
        self.cache.batch_select_indices(rows)
        self.mask = self.mask[rows]
        self.next_position = self.next_position[rows]
        self.last_position = self.last_position[rows]


def _are_cut(requests: Sequence[GenerateRequest]) -> bool:
    """Whether any asks for top-k or top-p."""
    return any(request.params.top_k != -1 or request.params.top_p < 1 for request in requests)


def _cut_tails(logits: Tensor, requests: Sequence[GenerateRequest]) -> Tensor:
    """Applies each row's top-k and top-p, at its temperature; most batches have none."""
    if not _are_cut(requests):
        return logits
    cuts = {(r.params.top_k, r.params.top_p, r.params.temperature or 1.0) for r in requests}
    if len(cuts) > 1:
        raise GeneratorError("one batch asks for several settings of top_k, top_p or temperature")
    top_k, top_p, temperature = cuts.pop()
    return keep_top(logits.float() / temperature, top_k=top_k, top_p=top_p) * temperature
