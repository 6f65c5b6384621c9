"""The head in chunks, with a gradient written out: no more than a chunk of logits exists at a time.

With the log-probs l of a row at temperature T, its entropy H and the gradients g of its target's
log-prob and e of its entropy, the gradient of its logits is
``(g * onehot(target) - p * (g + e * (l + H))) / T``, computed in place in the chunk's own logits.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rlgym_llm_trainers.algorithms.kept_sets import KeptRows

__all__ = ["chunked_head", "scale_logits"]


def chunked_head(
    hidden: Tensor,
    weight: Tensor | None,
    targets: Tensor,
    temperature: float,
    *,
    chunk_size: int,
    with_entropy: bool,
    kept: KeptRows | None,
) -> tuple[Tensor, Tensor | None]:
    """`hidden_to_logprobs`, whose arguments these are.

    The last chunk's logits are kept for the backward pass and those of the others computed again:
    of N rows that fit in one chunk nothing is computed twice.
    """
    apply: Any = _Head.apply
    found: tuple[Tensor, Tensor | None] = apply(
        hidden, weight, targets, temperature, chunk_size, with_entropy, kept
    )
    return found


def scale_logits(logits: Tensor, temperature: float) -> Tensor:
    """Logits at the sampling temperature, in float32, or float64 where they are that."""
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0 to have log-probs, got {temperature}")
    logits = logits if logits.dtype == torch.float64 else logits.float()
    return logits if temperature == 1 else logits / temperature


class _Head(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor | None,
        targets: Tensor,
        temperature: float,
        chunk_size: int,
        with_entropy: bool,
        kept: KeptRows | None,
    ) -> tuple[Tensor, Tensor | None]:
        ctx.temperature, ctx.chunk_size = temperature, chunk_size
        ctx.kept_chunks = None if kept is None else kept.chunks(chunk_size)
        ctx.set_materialize_grads(False)
        found: list[tuple[Tensor, Tensor]] = []
        entropies: list[Tensor] = []
        for number, part in enumerate(_parts(hidden, chunk_size)):
            logits = None  # the chunk before goes before this one comes
            logits = _chunk_logits(ctx, hidden[part], weight, number)
            norms = logits.logsumexp(-1)
            chosen = logits.gather(-1, targets[part, None]).squeeze(-1)
            found.append((chosen - norms, norms))
            if with_entropy:
                entropies.append(_entropy(logits - norms[:, None]))
        logprobs, norms = (torch.cat(column) for column in zip(*found, strict=True))
        entropy = torch.cat(entropies) if with_entropy else None
        if any(ctx.needs_input_grad[:2]):
            ctx.save_for_backward(hidden, weight, targets, norms, entropy, logits)
        return logprobs, entropy

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, of_logprobs: Tensor | None, of_entropy: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        hidden, weight, targets, norms, entropy, logits = ctx.saved_tensors
        wants_hidden, wants_weight = ctx.needs_input_grad[:2]
        of_hidden = torch.empty_like(hidden) if wants_hidden else None
        # In float32 at least: rounded after every chunk, the sum would depend on their size.
        precise = torch.promote_types(hidden.dtype, torch.float32)
        of_weight = torch.zeros_like(weight, dtype=precise) if wants_weight else None
        parts = list(enumerate(_parts(hidden, ctx.chunk_size)))
        for number, part in reversed(parts):
            if logits is None:
                logits = _chunk_logits(ctx, hidden[part], weight, number)
            gradient = _logit_gradient(
                logits,
                targets[part],
                norms[part],
                # By rows, where the temperature costs nothing.
                None if of_logprobs is None else of_logprobs[part] / ctx.temperature,
                None if of_entropy is None else (of_entropy[part] / ctx.temperature, entropy[part]),
            ).to(hidden.dtype)
            if of_hidden is not None:
                if weight is None:
                    of_hidden[part] = gradient
                else:
                    torch.mm(gradient, weight, out=of_hidden[part])
            if of_weight is not None:
                if of_weight.dtype == gradient.dtype:
                    of_weight.addmm_(gradient.T, hidden[part])
                else:
                    of_weight += gradient.T @ hidden[part]
            logits = None
        if of_weight is not None:
            of_weight = of_weight.to(weight.dtype)
        return of_hidden, of_weight, None, None, None, None, None


def _parts(hidden: Tensor, chunk_size: int) -> list[slice]:
    """At least one, so that a rank without tokens still has a graph."""
    starts = range(0, max(len(hidden), 1), chunk_size)
    return [slice(start, min(start + chunk_size, len(hidden))) for start in starts]


def _chunk_logits(ctx: Any, hidden: Tensor, weight: Tensor | None, number: int) -> Tensor:
    """Tempered logits of one chunk, -inf outside the kept sets; free to be written over."""
    logits = scale_logits(hidden.clone() if weight is None else hidden @ weight.T, ctx.temperature)
    return logits if ctx.kept_chunks is None else ctx.kept_chunks[number].cut(logits)


def _entropy(logprobs: Tensor) -> Tensor:
    """[n, V] -> [n]; writes over its argument. What was cut, at -inf, adds nothing."""
    p = logprobs.exp()
    return -p.mul_(logprobs.masked_fill_(logprobs == -torch.inf, 0.0)).sum(-1)


def _logit_gradient(
    logits: Tensor,
    targets: Tensor,
    norms: Tensor,
    of_logprobs: Tensor | None,
    entropy: tuple[Tensor, Tensor] | None,
) -> Tensor:
    """Of the logits [n, V], written over the tempered ones; ``entropy``: its gradient and value."""
    logprobs = logits.sub_(norms[:, None])
    if entropy is None:
        assert of_logprobs is not None, "backward is called for a gradient"
        gradient = logprobs.exp_().mul_(-of_logprobs[:, None])
    else:
        of_entropy, value = entropy
        p = logprobs.exp()
        logprobs.masked_fill_(logprobs == -torch.inf, 0.0)
        inner = logprobs.add_(value[:, None]).mul_(of_entropy[:, None])
        if of_logprobs is not None:
            inner.add_(of_logprobs[:, None])
        gradient = p.mul_(inner).neg_()
    if of_logprobs is not None:
        gradient.scatter_add_(1, targets[:, None], of_logprobs[:, None])
    return gradient
