"""Whether generator and learner are the same policy, seen on the tokens that were sampled."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from rlgym_llm.errors import GeneratorError
from rlgym_llm_trainers.algorithms.metrics import Metric
from rlgym_llm_trainers.learner.batch import Batch

__all__ = ["check_agreement", "generator_agreement", "sampled_entropy"]

_LARGEST_PROBS_DIFF = 0.05
"""Mean difference of probabilities; rounding makes 1e-6 in float32, 0.01 in bfloat16."""


def sampled_entropy(batch: Batch) -> Metric:
    """The entropy of the policy that sampled, as the mean of ``-logprob`` of what it sampled."""
    logprobs = batch.rollout_logprobs[batch.loss_mask].double()
    return Metric.mean(-float(logprobs.sum()), logprobs.numel())


def generator_agreement(logprobs: Tensor, batch: Batch, version: int | None) -> dict[str, Metric]:
    """How far the learner's probabilities of the sampled tokens are from the generator's.

    Of tokens that were sampled under ``version`` alone, or of all for None. Rounding apart it is 0
    on the first mini-batch of a step: more means stale weights, another temperature, or ids that
    were encoded again. How far *known* older policies are apart stands in ``rollout_corr/*``.
    """
    mask = batch.loss_mask
    if version is not None:
        mask = mask & (batch.policy_versions == version)
    learner = logprobs[mask].double()
    generator = batch.rollout_logprobs[mask].double()
    if learner.numel() == 0:
        return {}
    probs_diff = (learner.exp() - generator.exp()).abs()
    ratio_diff = ((learner - generator).clamp(-20, 20).exp() - 1).abs()
    return {
        "training/rollout_probs_diff_max": Metric.max([float(probs_diff.max())]),
        "training/rollout_probs_diff_mean": Metric.mean(float(probs_diff.sum()), learner.numel()),
        "training/rollout_ratio_diff_max": Metric.max([float(ratio_diff.max())]),
    }


def check_agreement(metrics: Mapping[str, float]) -> None:
    """Raises GeneratorError where the generator samples from another policy than is trained."""
    apart = metrics.get("training/rollout_probs_diff_mean", 0.0)
    if apart > _LARGEST_PROBS_DIFF:
        raise GeneratorError(
            f"generator and learner disagree on the probability of sampled tokens by {apart:.2g} "
            "on average; their weights, temperature, kept sets or token ids differ"
        )
