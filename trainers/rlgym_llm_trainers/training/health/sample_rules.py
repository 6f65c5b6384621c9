"""Health of the samples: are they whole, do they train, whose policy sampled them."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.scores import CardStatus
from rlgym_llm.types import Rollout
from rlgym_llm_trainers.learner.sample import TrainingSample
from rlgym_llm_trainers.training.health.finding import Finding
from rlgym_llm_trainers.training.health.history import History

__all__ = [
    "dropped_rows",
    "logprob_mismatch",
    "mask_metrics",
    "mask_sanity",
    "stale_samples",
    "truncation",
]

_TRAINED, _SAMPLED = "training/num_trained_tokens", "training/num_sampled_tokens"
_DROPPED = 0.25
"""Largest share of rollouts that may train nothing."""
_PROBS_APART = 0.02
"""Mean difference of probabilities; rounding makes 1e-6 in float32, 0.01 in bfloat16."""
_STATUSES = tuple(f"scoring/num_{status}" for status in CardStatus)
_DROPPED_BECAUSE = {
    "scoring/num_masked": ("cut responses are masked", "rewards.on_truncated"),
    "scoring/num_failed_reward": ("rewards fail", "rewards.on_error"),
    "scoring/num_failed_rollout": ("episodes fail", "rollout.max_seconds"),
}


def truncation(history: History, config: TrainConfig) -> Finding | None:
    """Too many responses reach the limit and are cut, or episodes the run's budget.

    Where an episode has several turns and no response is as long as the limit, it was turns or time
    that ran out. Beyond what the run allows of those, that is a game lost and no finding.
    """
    keys = ("response_length/clip_ratio", "response_length/max", "num_turns/max")
    windows = history.windows(*keys)
    if not windows:
        return None
    shares, longest, turns = zip(*windows[0], strict=True)
    cut, limit = fmean(shares), config.data.max_response_length
    if cut <= config.trainer.health.max_truncated:
        return None
    if max(turns) <= 1 or max(longest) >= limit:
        return Finding(
            rule="truncation",
            seen=f"{cut:.0%} of the responses are cut, at up to {max(longest):.0f} tokens",
            cause="they are scored without their end, or the policy has learned to go on and on",
            keys=("data.max_response_length", "rewards.on_truncated"),
        )
    if config.rollout.max_turns is None and config.rollout.max_seconds is None:
        return None
    return Finding(
        rule="truncation",
        seen=f"{cut:.0%} of the episodes are ended by their budget",
        cause="turns or seconds run out before the task is done",
        keys=("rollout.max_turns", "rollout.max_seconds"),
    )


def dropped_rows(history: History, config: TrainConfig) -> Finding | None:
    """Too many rollouts leave the loss: masked, unscored, or without a scored sibling."""
    means = history.averages("num_dropped", *_STATUSES)
    if means is None:
        return None
    total = sum(means[key] for key in _STATUSES)
    if not total or means["num_dropped"] <= _DROPPED * total:
        return None
    worst = max(_DROPPED_BECAUSE, key=lambda key: means[key])
    cause, key = _DROPPED_BECAUSE[worst]
    if not means[worst]:
        cause, key = "no reward applies to them, or to their siblings", "reward"
    return Finding(
        rule="dropped_rows",
        seen=f"{means['num_dropped'] / total:.0%} of the rollouts train nothing",
        cause=cause,
        keys=(key,),
    )


def mask_metrics(
    samples: Sequence[TrainingSample], rollouts: Sequence[Rollout]
) -> dict[str, float]:
    """The tokens under the loss mask, and those that were sampled, of the rollouts that train.

    Equal, or the mask is wrong: prompts and environments' replies are trained, or some is not.
    """
    sampled = {rollout.id: rollout.num_tokens for rollout in rollouts}
    return {
        _TRAINED: float(sum(sample.num_trained_tokens for sample in samples)),
        _SAMPLED: float(sum(sampled[sample.rollout_id] for sample in samples)),
    }


def mask_sanity(history: History, config: TrainConfig) -> Finding | None:
    """The loss mask holds other tokens than were sampled; at once."""
    trained, sampled = (history.latest.get(key) for key in (_TRAINED, _SAMPLED))
    if trained is None or sampled is None or trained == sampled:
        return None
    whose = "tokens of prompts or environments are" if trained > sampled else "some are not"
    return Finding(
        rule="mask_sanity",
        severity="error",
        seen=f"{trained:.0f} tokens are trained of {sampled:.0f} that were sampled",
        cause=f"the loss mask is wrong: {whose} trained",
        keys=(),
    )


def logprob_mismatch(history: History, config: TrainConfig) -> Finding | None:
    """Generator and learner give the same tokens of the same policy other probabilities.

    On average by more than 0.02, or suddenly ten times as much as before, and more than 0.001; or
    the mean ratio of learner to generator, over samples of any policy, is out of 0.5 to 2.
    """
    apart = history.recent("training/rollout_probs_diff_mean")
    ratio = history.mean("rollout_corr/rollout_is_raw_mean")
    seen = None
    if apart and sum(apart) / len(apart) > _PROBS_APART:
        seen = f"generator and learner differ by {sum(apart) / len(apart):.2g} in probability"
    elif apart and apart[-1] > max(10 * median(apart[:-1]), 1e-3):
        seen = f"generator and learner differ by {apart[-1]:.2g} in probability, "
        seen += f"before by {median(apart[:-1]):.2g}"
    elif ratio is not None and not 0.5 <= ratio <= 2:
        seen = f"tokens are {ratio:.3g} times as likely to the learner as they were when sampled"
    if seen is None:
        return None
    return Finding(
        rule="logprob_mismatch",
        severity="error",
        seen=seen,
        cause="old log-probs are of another policy: weights, rounding, temperature or token ids",
        keys=("rollout.weight_sync.canary", "algorithm.rollout_correction.rollout_is"),
    )


def stale_samples(history: History, config: TrainConfig) -> Finding | None:
    """The correction for older policies leaves less than half of the samples.

    By the effective sample size of the importance weights, or by the tokens that are rejected.
    """
    size = history.mean("rollout_corr/rollout_is_eff_sample_size")
    rejected = history.mean("rollout_corr/rollout_rs_masked_fraction")
    if rejected is not None and rejected > 0.5:
        seen = f"{rejected:.0%} of the tokens are rejected"
    elif size is not None and size < 0.5:
        seen = f"the weighted samples count as {size:.0%} of their number"
    else:
        return None
    age = history.mean("training/off_policy/trajectory_staleness/mean")
    return Finding(
        rule="stale_samples",
        seen=seen + ("" if age is None else f", {age:.2g} updates old"),
        cause="the policy that sampled them is too far from the one that learns",
        keys=("rollout.max_staleness", "actor.optim.lr"),
    )
