"""Training on samples of another policy: what the configuration asks for, done to one step.

Three policies stand behind a sample: the generator's, that sampled it; the learner's as the step
begins, whose log-probs are the old ones; and the learner's as it moves through the mini-batches.
The clipped ratio spans the last two, the correction the first two (decoupled PPO, arXiv
2505.24298). In bypass mode the ratio spans all three and nothing is left to weigh.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlgym_llm.config_schema import RolloutCorrectionConfig
from rlgym_llm_trainers.algorithms.correction import rollout_correction
from rlgym_llm_trainers.learner.correction_rules import correction_rules
from rlgym_llm_trainers.learner.learner import Learner
from rlgym_llm_trainers.learner.sample import TrainingSample
from rlgym_llm_trainers.learner.streams import padded, with_stream

__all__ = ["correct"]


def correct(
    learner: Learner,
    samples: Sequence[TrainingSample],
    config: RolloutCorrectionConfig,
    *,
    max_staleness: int,
) -> tuple[list[TrainingSample], dict[str, float]]:
    """The samples with old log-probs and weights as the configuration wants, and the metrics.

    Called once for all samples of a step, before its first update: the figures and the mean of
    `rollout_is_batch_normalize` are of the whole step, whatever its mini-batches. In float32,
    without staleness and without a correction asked for, the samples come back as they are, at no
    cost. Rejection in bypass mode costs the forward pass that bypass mode else saves: it compares
    with the learner.
    """
    rules = correction_rules(config, max_staleness=max_staleness, is_exact=learner.is_exact)
    if not rules.scores or not samples:
        return list(samples), {}
    scored = learner.add_old_logprobs(samples)
    # From the samples themselves: a batch for the model would round them to float32.
    found = rollout_correction(
        padded([sample.old_logprobs or () for sample in scored]),
        padded([sample.rollout_logprobs for sample in scored]),
        padded([sample.loss_mask for sample in scored]).bool(),
        weigh_by=rules.weigh_by,
        threshold=rules.threshold,
        normalize=rules.normalize,
        reject_by=rules.reject_by,
        bounds=rules.bounds,
    )
    corrected = list(samples) if rules.ratio_from_generator else scored
    if rules.weigh_by is not None or rules.reject_by is not None:
        corrected = with_stream(corrected, "is_weights", found.weights)
    return corrected, found.metrics
