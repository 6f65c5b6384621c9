"""The policy's objective: the loss of one micro-batch, all its terms, and its metrics."""

from __future__ import annotations

from rlgym_llm.config_schema import ActorConfig
from rlgym_llm.errors import RlgymError
from rlgym_llm_trainers.algorithms.aggregate import Reduce
from rlgym_llm_trainers.algorithms.losses import (
    PolicyLossInputs,
    WeightedReduce,
    entropy_loss,
    kl_loss,
)
from rlgym_llm_trainers.algorithms.losses.binding import PolicyLoss
from rlgym_llm_trainers.algorithms.metrics import Metric
from rlgym_llm_trainers.learner.accumulate import Share
from rlgym_llm_trainers.learner.agreement import generator_agreement, sampled_entropy
from rlgym_llm_trainers.learner.batch import Batch
from rlgym_llm_trainers.learner.token_scorer import TokenScorer

__all__ = ["policy_objective"]


def policy_objective(
    scorer: TokenScorer,
    batch: Batch,
    reduce: Reduce,
    *,
    config: ActorConfig,
    policy_loss: PolicyLoss,
    version: int | None,
) -> Share:
    """The micro-batch's share of ``pg_loss + entropy_coeff * entropy_loss + kl_coef * kl_loss``.

    Of a policy loss that raises RlgymError the error, and 0 in place of the loss: its backward pass
    reaches every parameter all the same, as that of the other ranks does.

    Args:
        scorer: the policy that learns.
        batch: with advantages; where it has no old log-probs, the generator's stand for them.
        reduce: token losses and mask to a scalar, the same for every term.
        config: the terms and their coefficients.
        policy_loss: with its options bound.
        version: of the weights that learn; as in `generator_agreement`.
    """
    assert batch.advantages is not None, "samples come with advantages"
    logprobs, entropy = scorer(batch, with_entropy=config.entropy_coeff != 0)
    mask, policy_reduce = batch.accepted_mask, reduce
    if batch.is_weights is not None:
        policy_reduce = WeightedReduce(reduce, batch.loss_mask, batch.is_weights)
        reduce = WeightedReduce(reduce, batch.loss_mask)
    old = batch.rollout_logprobs if batch.old_logprobs is None else batch.old_logprobs
    inputs = PolicyLossInputs(
        logprobs=logprobs, old_logprobs=old, advantages=batch.advantages, mask=mask
    )
    try:
        output = policy_loss(inputs, reduce=policy_reduce)
    except RlgymError as error:
        return Share(loss=0 * logprobs.sum(), error=error)
    loss, metrics = output.loss, dict(output.metrics)
    if entropy is not None:
        entropy_term = entropy_loss(entropy, mask, reduce=reduce)
        metrics |= entropy_term.metrics
        loss = loss + config.entropy_coeff * entropy_term.loss
    else:
        metrics["actor/entropy"] = sampled_entropy(batch)
    if config.use_kl_loss and batch.ref_logprobs is not None:
        kl_term = kl_loss(
            logprobs,
            batch.ref_logprobs,
            mask,
            reduce=reduce,
            kind=config.kl_loss_type,
            old_logprobs=old if config.kl_loss_unbiased else None,
        )
        metrics |= kl_term.metrics
        metrics["actor/kl_coef"] = Metric.mean(config.kl_loss_coef, 1)
        loss = loss + config.kl_loss_coef * kl_term.loss
    metrics["actor/loss"] = Metric.sum(float(loss.detach()))
    metrics |= generator_agreement(logprobs.detach(), batch, version)
    return Share(loss=loss, metrics=metrics)
