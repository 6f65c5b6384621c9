"""Policy filtration of a step's samples: how many times each counts, by what it scored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rlgym_llm.config_samples import PfPpoConfig
from rlgym_llm_trainers.algorithms.pf_ppo import resample
from rlgym_llm_trainers.learner.sample import TrainingSample

__all__ = ["filtrate"]


def filtrate(
    samples: Sequence[TrainingSample],
    scores: Mapping[str, float],
    config: PfPpoConfig,
    *,
    seed: int,
) -> tuple[list[TrainingSample], dict[str, float]]:
    """The samples, each with how many times it was drawn, and metrics.

    As many as there are are drawn with replacement by `pf_ppo.filtration_weights` of their
    ``scores``, by rollout id. A sample drawn twice is computed once and counts twice, in the loss
    and in what it is divided by; one that was not drawn keeps its place among its siblings and
    trains nothing, so that mini-batches are those of the prompts as they were.

    Metric: ``training/pf_ppo/drawn_ratio``, the share of samples that was drawn at all.
    """
    if not samples:
        return [], {}
    drawn = Counter(
        resample(
            [scores[sample.rollout_id] for sample in samples],
            config.reweight_method,
            power=config.weight_pow,
            seed=seed,
        )
    )
    counted = [replace(sample, multiplicity=drawn[i]) for i, sample in enumerate(samples)]
    return counted, {"training/pf_ppo/drawn_ratio": len(drawn) / len(samples)}
