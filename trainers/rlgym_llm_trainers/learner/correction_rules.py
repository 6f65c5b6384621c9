"""What a configuration says of samples of another policy, every default resolved; no torch here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rlgym_llm.config_schema import RolloutCorrectionConfig
from rlgym_llm.errors import ConfigError

if TYPE_CHECKING:
    from rlgym_llm_trainers.algorithms.correction import RatioLevel

__all__ = ["CorrectionRules", "correction_rules"]

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


def correction_rules(
    config: RolloutCorrectionConfig, *, max_staleness: int, is_exact: bool = True
) -> CorrectionRules:
    """What the configuration comes to in a run whose samples may be ``max_staleness`` updates old.

    Where the generator's log-probs are not the learner's up to float32's rounding (``is_exact``),
    the learner scores all samples, for the clipped ratio to start at 1; else it need not.

    ``rollout_is: auto`` is token where samples may be stale, else none, and none in bypass mode.
    Raises ConfigError where the difference of the policies would count twice (bypass mode with
    weights), for bounds of rejection that do not enclose 1, the ratio of equal policies, and for
    what has no effect: such bounds without rejection, and a bound or a mean of weights without any.

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
    default = RolloutCorrectionConfig.model_fields["rollout_is_threshold"].default
    if config.rollout_is_threshold != default and weigh_by is None and reject_by is None:
        raise ConfigError(
            f"{_KEY}.rollout_is_threshold {config.rollout_is_threshold:g}: has no effect, since "
            f"samples have no weights here; give {_KEY}.rollout_is token or sequence, or leave it "
            "out"
        )
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
        scores=weigh_by is not None
        or reject_by is not None
        or ((is_stale or not is_exact) and not bypass),
        ratio_from_generator=bypass,
    )
