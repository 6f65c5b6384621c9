"""A causal model as the learner sees it: a module that gives the log-probs of a batch's tokens."""

from __future__ import annotations

from torch import Tensor, nn

from rlgym_llm_trainers.learner.batch import Batch
from rlgym_llm_trainers.learner.batch_logprobs import batch_logprobs, is_plain_head
from rlgym_llm_trainers.learner.forward import can_pack, enable_packing

__all__ = ["TokenScorer"]


class TokenScorer(nn.Module):
    """`batch_logprobs` of a model, at the temperature that its tokens were sampled at.

    One module around body and head, so that whoever shards its parameters has all of them whole
    inside one forward pass.
    """

    def __init__(self, model: nn.Module, *, temperature: float) -> None:
        super().__init__()
        self.model = model
        self._temperature = temperature
        self._has_plain_head = is_plain_head(model)
        enable_packing(model)

    @property
    def is_packed(self) -> bool:
        """Whether it computes no padding, and a prompt that siblings share only once."""
        return self._has_plain_head and can_pack(self.model)

    def forward(self, batch: Batch, *, with_entropy: bool = False) -> tuple[Tensor, Tensor | None]:
        """Log-probs [B, T] of the trained tokens, and their entropies [B, T] or None."""
        return batch_logprobs(
            self.model,
            batch,
            temperature=self._temperature,
            with_entropy=with_entropy,
            has_plain_head=self._has_plain_head,
        )
