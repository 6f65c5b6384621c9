"""Training on samples of another policy: what the configuration asks for, done to one step.

Three policies stand behind a sample: the generator's, that sampled it; the learner's as the step
begins, whose log-probs are the old ones; and the learner's as it moves through the mini-batches.
The clipped ratio spans the last two, the correction the first two (decoupled PPO, arXiv
2505.24298). In bypass mode the ratio spans all three and nothing is left to weigh.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rlgym_llm.config_schema import RolloutCorrectionConfig
from rlgym_llm.errors import ConfigError
from rlgym_llm_trainers.algorithms.correction import RatioLevel, rollout_correction
from rlgym_llm_trainers.learner.batch import TrainingSample, with_stream
from rlgym_llm_trainers.learner.learner import Learner

__all__ = ["CorrectionRules", "correct", "correction_rules"]

_KEY = "--algorithm.rollout_correction"


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectionRules:
    """What is done about samples of another policy, every default resolved."""

    weigh_by: Literal["token", "sequence"] | None
    threshold: float
    normalize: bool
    reject_by: RatioLevel | None
    bounds: tuple[float, float]
    scores: bool
    """Whether the learner scores the samples before the update: one forward pass more."""
    ratio_from_generator: bool
    """Bypass: the old log-probs stay the generator's, whether or not the learner scores."""


def correction_rules(config: RolloutCorrectionConfig, *, max_staleness: int) -> CorrectionRules:
    """What the configuration comes to in a run whose samples may be ``max_staleness`` updates old.

    ``rollout_is: auto`` is token where samples may be stale, else none, and none in bypass mode.
    Raises ConfigError where the difference of the policies would count twice (bypass mode with
    weights), for bounds of rejection that do not enclose 1, the ratio of equal policies, and for
    what has no effect: such bounds without rejection, and a mean of weights without weights.

    >>> correction_rules(RolloutCorrectionConfig(), max_staleness=1).weigh_by
    'token'
    """
    bypass, is_stale = config.bypass_mode, max_staleness > 0
    weigh_by = config.rollout_is
    if weigh_by == "auto":
        weigh_by = "token" if is_stale and not bypass else None
    elif weigh_by is not None and bypass:
        raise ConfigError(
            f"{_KEY}.bypass_mode true: the clipped ratio then starts at the generator, and "
            f"{_KEY}.rollout_is {weigh_by} would count the same difference twice; leave out one"
        )
    if config.rollout_is_batch_normalize and weigh_by is None:
        raise ConfigError(
            f"{_KEY}.rollout_is_batch_normalize true: has no effect, since samples have no weights "
            f"here; give {_KEY}.rollout_is token or sequence, or leave it out"
        )
    reject_by = config.rollout_rs
    for name in ("rollout_rs_threshold", "rollout_rs_threshold_lower"):
        bound = getattr(config, name)
        if bound is not None and reject_by is None:
            raise ConfigError(
                f"{_KEY}.{name} {bound:g}: has no effect without {_KEY}.rollout_rs, which says "
                "what is rejected; give it, or leave the bound out"
            )
    upper = config.rollout_rs_threshold or config.rollout_is_threshold
    lower = config.rollout_rs_threshold_lower or 1 / upper
    if reject_by is not None and not lower < 1 < upper:
        raise ConfigError(
            f"{_KEY}.rollout_rs {reject_by}: the bounds {lower:g} and {upper:g} do not enclose 1, "
            f"the ratio of equal policies; give {_KEY}.rollout_rs_threshold above 1 and "
            "rollout_rs_threshold_lower below it"
        )
    return CorrectionRules(
        weigh_by=weigh_by,
        threshold=config.rollout_is_threshold,
        normalize=config.rollout_is_batch_normalize,
        reject_by=reject_by,
        bounds=(lower, upper),
        scores=weigh_by is not None or reject_by is not None or (is_stale and not bypass),
        ratio_from_generator=bypass,
    )


def correct(
    learner: Learner,
    samples: Sequence[TrainingSample],
    config: RolloutCorrectionConfig,
    *,
    max_staleness: int,
) -> tuple[list[TrainingSample], dict[str, float]]:
    """The samples with old log-probs and weights as the configuration wants, and the metrics.

    Called once for all samples of a step, before its first update: the figures and the mean of
    `rollout_is_batch_normalize` are of the whole step, whatever its mini-batches. Without staleness
    and without a correction asked for, the samples come back as they are, at no cost. Rejection in
    bypass mode costs the forward pass that bypass mode else saves: it compares with the learner.
    """
    rules = correction_rules(config, max_staleness=max_staleness)
    if not rules.scores or not samples:
        return list(samples), {}
    scored = learner.add_old_logprobs(samples)
    # From the samples themselves: a batch for the model would round them to float32.
    found = rollout_correction(
        _padded([sample.old_logprobs or () for sample in scored]),
        _padded([sample.rollout_logprobs for sample in scored]),
        _padded([sample.loss_mask for sample in scored]).bool(),
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


def _padded(rows: Sequence[Sequence[float]]) -> Tensor:
    tensors = [torch.tensor(row, dtype=torch.float64) for row in rows]
    return pad_sequence(tensors, batch_first=True)
