"""Draw one token a row from logits, with noise that each row owns."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

__all__ = ["draw_tokens", "keep_top", "row_noise"]


def row_noise(seed: int, length: int) -> np.ndarray:
    """``length`` uniform numbers in [0, 1) that depend on the seed alone, as float64 [length].

    A row's noise does not depend on the batch around it, so a request samples the same tokens
    alone and among others (up to the rounding of the batched matrix products).
    """
    return np.random.Generator(np.random.Philox(key=seed % 2**64)).random(length)


def draw_tokens(logits: Tensor, noise: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor]:
    """Samples by inverse cumulative distribution; a temperature of 0 takes the most likely token.

    Shapes: logits [B, V], noise [B] in [0, 1), temperature [B]. Returns ids [B] (int64) and their
    log-probs [B] (float32) under ``softmax(logits / temperature)``; a greedy row reports its
    log-prob at temperature 1. With p = [.2, .5, .3] the noise .69 draws token 1, .71 token 2.
    """
    is_greedy = temperature == 0
    scale = torch.where(is_greedy, torch.ones_like(temperature), temperature)
    logprobs = torch.log_softmax(logits.float() / scale[:, None], dim=-1)
    cumulative = logprobs.double().exp().cumsum(-1)
    # Scaled by the total, so that rounding leaves no gap above the last token.
    threshold = noise.double() * cumulative[:, -1]
    drawn = torch.searchsorted(cumulative, threshold[:, None], right=True).squeeze(-1)
    drawn = drawn.clamp(max=logits.shape[-1] - 1)
    token_ids = torch.where(is_greedy, logits.argmax(-1), drawn)
    return token_ids, logprobs.gather(-1, token_ids[:, None]).squeeze(-1)


def keep_top(logits: Tensor, *, top_k: int = -1, top_p: float = 1.0) -> Tensor:
    """Logits [B, V] with all but the top-k and the top-p nucleus set to -inf.

    The nucleus is the smallest set of likeliest tokens whose mass reaches ``top_p``; apply the
    temperature first. p = [.5, .3, .15, .05] at top_p = .8 keeps the first two.
    """
    if top_k != -1 and top_k < logits.shape[-1]:
        threshold = logits.topk(top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < threshold, -torch.inf)
    if top_p < 1:
        ordered, order = logits.sort(dim=-1, descending=True)
        probs = ordered.softmax(-1)
        # float64, and a token stays while the mass before it falls short of top_p.
        mass_before = probs.double().cumsum(-1) - probs.double()
        is_outside = mass_before >= top_p - 1e-7
        cut = is_outside.scatter(-1, order, is_outside)
        logits = logits.masked_fill(cut, -torch.inf)
    return logits
