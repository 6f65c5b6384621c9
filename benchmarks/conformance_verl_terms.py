"""Aggregation, the critic's loss, log-probs and entropy beside verl's, in value and gradient."""

from __future__ import annotations

from functools import partial

import torch
from conformance_cases import NUM_SEEDS, PROMPT, Rollouts, draw, whole
from conformance_gradients import LENGTH, MODES, our_reduce, value_and_gradient, whole_mask
from conformance_ledger import Ledger
from rlgym_llm_trainers.algorithms.aggregate import count_tokens
from rlgym_llm_trainers.algorithms.logprobs import hidden_to_logprobs, token_logprobs
from rlgym_llm_trainers.algorithms.losses import entropy_loss
from rlgym_llm_trainers.algorithms.losses.value import value_loss
from torch import Tensor
from verl.trainer.ppo.core_algos import agg_loss, compute_entropy_loss, compute_value_loss
from verl.utils.torch_functional import logprobs_from_logits

__all__ = ["compare_terms"]


def compare_terms(ledger: Ledger) -> None:
    """All of them; none deviates."""
    for seed in range(NUM_SEEDS):
        for drawn in (draw(seed), draw(seed, empty_rows=2)):
            compare_aggregation(ledger, drawn)
            compare_value_loss(ledger, drawn)
        compare_entropy(ledger, draw(seed))


def compare_aggregation(ledger: Ledger, drawn: Rollouts) -> None:
    """Every mode: of a whole batch, and of one rank's part of a step of two ranks."""
    mask = whole_mask(drawn)
    num_tokens, num_sequences = count_tokens(mask)
    for mode in MODES:
        for ranks, rows in ((1, slice(None)), (2, slice(0, 7))):
            tokens, sequences = num_tokens * ranks + 5, num_sequences * ranks + 1
            theirs = agg_loss(
                drawn.advantages[rows],
                drawn.mask[rows],
                mode,
                dp_size=ranks,
                batch_num_tokens=tokens,
                global_batch_size=sequences,
                loss_scale_factor=LENGTH,
            )
            reduce = our_reduce(mask, mode, num_tokens=tokens, num_sequences=sequences)
            values = whole(drawn.advantages, drawn.mask)
            # Our ranks add up their gradients; verl's take the mean, which its loss undoes.
            found = ranks * reduce(values[rows], mask[rows])
            ledger.same(f"aggregation {mode}", found, theirs)
        theirs = agg_loss(drawn.advantages, drawn.mask, mode)
        found = our_reduce(mask, mode)(whole(drawn.advantages, drawn.mask), mask)
        ledger.same(f"aggregation {mode}", found, theirs)


def compare_value_loss(ledger: Ledger, drawn: Rollouts) -> None:
    """The critic's loss in value, gradient and metric."""
    values = drawn.values + 0.6 * drawn.advantages
    for mode in MODES:
        for clip in (0.2, 0.5, 50.0):
            shares: dict[str, float] = {}
            found = value_and_gradient(
                partial(our_value_loss, drawn=drawn, mode=mode, clip=clip, shares=shares),
                whole(values, drawn.mask),
            )
            wanted = value_and_gradient(
                partial(verl_value_loss, drawn=drawn, mode=mode, clip=clip, shares=shares), values
            )
            ledger.same("value loss", found[0], wanted[0])
            ledger.same("value loss, gradient", found[1][:, PROMPT:], wanted[1])
            ledger.same("value loss, vf_clipfrac", shares["ours"], shares["verl"])


def our_value_loss(
    values: Tensor, *, drawn: Rollouts, mode: str, clip: float, shares: dict[str, float]
) -> Tensor:
    """Ours of whole sequences, NaN off the mask; the clipped share goes into ``shares``."""
    mask = whole_mask(drawn)
    output = value_loss(
        values,
        whole(drawn.values, drawn.mask),
        whole(drawn.token_rewards, drawn.mask),
        mask,
        reduce=our_reduce(mask, mode),
        clip=clip,
    )
    shares["ours"] = output.metrics["critic/vf_clipfrac"].result()
    return output.loss


def verl_value_loss(
    values: Tensor, *, drawn: Rollouts, mode: str, clip: float, shares: dict[str, float]
) -> Tensor:
    """Verl's of the same."""
    loss, share = compute_value_loss(
        values,
        drawn.token_rewards,
        drawn.values,
        drawn.mask,
        clip,
        mode,
        loss_scale_factor=LENGTH,
    )
    shares["verl"] = float(share)
    found: Tensor = loss
    return found


def compare_entropy(ledger: Ledger, drawn: Rollouts) -> None:
    """Log-probs and entropies from logits, and the entropy bonus, by their gradient too."""
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(*drawn.mask.shape, 11, dtype=torch.float64, generator=generator)
    tokens = torch.randint(0, 11, drawn.mask.shape, generator=generator)
    for mode in MODES[:2]:

        def theirs(at: Tensor, mode: str = mode) -> Tensor:
            loss: Tensor = compute_entropy_loss(at, drawn.mask, mode)
            return loss

        def ours(at: Tensor, mode: str = mode) -> Tensor:
            reduce = our_reduce(drawn.mask, mode)
            rows = at.flatten(0, 1)
            entropy = hidden_to_logprobs(rows, None, tokens.flatten(), with_entropy=True)[1]
            assert entropy is not None
            return -entropy_loss(entropy.view(tokens.shape), drawn.mask, reduce=reduce).loss

        for what, a, b in zip(
            ("entropy", "entropy, gradient"),
            value_and_gradient(ours, logits),
            value_and_gradient(theirs, logits),
            strict=True,
        ):
            ledger.same(what, a, b)
    wanted = value_and_gradient(lambda at: logprobs_from_logits(at, tokens).sum(), logits)
    first = torch.zeros_like(tokens[:, :1])
    shifted = torch.cat([logits, torch.zeros_like(logits[:, :1])], dim=1)
    found = value_and_gradient(
        lambda at: token_logprobs(at, torch.cat([first, tokens], dim=1)).sum(), shifted
    )
    ledger.same("log-probs", found[0], wanted[0])
    ledger.same("log-probs, gradient", found[1][:, :-1], wanted[1])
