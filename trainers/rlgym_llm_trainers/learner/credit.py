"""Credit: from score cards to what the advantages are made of, and back onto the samples."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor

from rlgym_llm.composition.component import ComponentConfig
from rlgym_llm.composition.placement import step_ends, token_rewards
from rlgym_llm.errors import RlgymError
from rlgym_llm.scores import ScoreCard
from rlgym_llm.types import Rollout
from rlgym_llm_trainers.algorithms.advantages import AdvantageInputs, Advantages
from rlgym_llm_trainers.algorithms.advantages.inputs import Floats
from rlgym_llm_trainers.learner.reward_kl import penalized
from rlgym_llm_trainers.learner.sample import TrainingSample, sample_from_rollout

__all__ = ["advantage_inputs", "samples_to_train", "with_advantages"]


def samples_to_train(
    rollouts: Sequence[Rollout], cards: Sequence[ScoreCard], *, is_cut: bool = False
) -> list[TrainingSample]:
    """Samples of the rollouts that have a reward and at least one sampled token.

    ``is_cut`` and errors as in `sample_from_rollout`.
    """
    return [
        sample_from_rollout(rollout, is_cut=is_cut)
        for rollout, card in zip(rollouts, cards, strict=True)
        if card.reward is not None and rollout.num_tokens
    ]


def advantage_inputs(
    rollouts: Sequence[Rollout],
    cards: Sequence[ScoreCard],
    samples: Sequence[TrainingSample],
    components: Mapping[str, ComponentConfig],
    *,
    kl: Tensor | None = None,
    kl_coef: float = 0.0,
    bootstrap_values: Mapping[str, float] | None = None,
    baselines: Mapping[str, float] | None = None,
) -> AdvantageInputs:
    """What an estimator is told of a step: a row for each rollout, in their order.

    Rewards lie where the components' placements put them (`composition.placement`), less
    ``kl_coef`` times the KL. A rollout without a sample keeps an empty row: it is unscored, or has
    no tokens and still counts among its siblings.

    Args:
        rollouts: all of the step.
        cards: the score card of each.
        samples: those of `samples_to_train`, in any order.
        components: the configuration of the reward components, by name.
        kl: of the samples, [B, T] as by `reward_kl`; None where the reward has no KL penalty.
        kl_coef: its coefficient.
        bootstrap_values: the critic's value after a truncation, by rollout id; None where there
            is no critic, whose values the samples would have.
        baselines: the reward of the greedy sibling, by group id.

    Raises RlgymError where a reward cannot be placed on its tokens, and where a value or the KL is
    not finite.
    """
    row_of = {rollout.id: row for row, rollout in enumerate(rollouts)}
    shape = (len(rollouts), max((sample.num_tokens for sample in samples), default=0))
    placed, ends = np.zeros(shape, dtype=np.float64), np.zeros(shape, dtype=bool)
    mask, values = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=np.float64)
    kl_rows = np.zeros(shape, dtype=np.float64)
    rewards = np.array([card.reward or 0.0 for card in cards], dtype=np.float64)
    for place, sample in enumerate(samples):
        row = row_of[sample.rollout_id]
        rollout, card = rollouts[row], cards[row]
        mask[row, : sample.num_tokens] = sample.loss_mask
        is_sampled = mask[row]
        try:
            earned = token_rewards(rollout, card, components)
            is_end = step_ends(rollout, card, components)
        except ValueError as error:
            raise RlgymError(str(error)) from None
        placed[row, is_sampled] = list(itertools.chain.from_iterable(earned))
        ends[row, is_sampled] = list(itertools.chain.from_iterable(is_end))
        if kl is not None:
            kl_rows[row, : sample.num_tokens] = kl[place, : sample.num_tokens].numpy()
        if sample.values is not None:
            values[row, : sample.num_tokens] = sample.values
    component_rewards, component_weights = _components(cards)
    bootstraps = _looked_up(bootstrap_values, [rollout.id for rollout in rollouts], 0.0)
    try:
        return AdvantageInputs(
            token_rewards=penalized(placed, kl_rows, mask, kl_coef=kl_coef),
            mask=mask,
            group_ids=tuple(rollout.group_id for rollout in rollouts),
            is_scored=np.array([card.reward is not None for card in cards], dtype=bool),
            rewards=rewards - kl_coef * np.where(mask, kl_rows, 0.0).sum(-1),
            step_ends=ends,
            values=None if bootstrap_values is None else values,
            bootstrap_values=bootstraps,
            baselines=_looked_up(baselines, [rollout.group_id for rollout in rollouts], np.nan),
            component_rewards=component_rewards,
            component_weights=component_weights,
        )
    except ValueError as error:
        raise RlgymError(f"{error}; {_way_out(bootstraps, values[mask])}") from error


def with_advantages(
    samples: Sequence[TrainingSample], rollouts: Sequence[Rollout], result: Advantages
) -> list[TrainingSample]:
    """The samples that may be learned from, each with its advantages, and returns where given."""
    row_of = {rollout.id: row for row, rollout in enumerate(rollouts)}
    trained = []
    for sample in samples:
        row, length = row_of[sample.rollout_id], sample.num_tokens
        if not result.is_valid[row]:
            continue
        found = replace(sample, advantages=tuple(result.advantages[row, :length].tolist()))
        if result.returns is not None:
            found = replace(found, returns=tuple(result.returns[row, :length].tolist()))
        trained.append(found)
    return trained


def _way_out(bootstraps: Floats | None, values: Floats) -> str:
    """Of inputs that are not finite: rewards were checked when they were composed."""
    if bootstraps is not None and not np.isfinite([*bootstraps, *values]).all():
        return "the critic has diverged: give a lower --critic.optim.lr"
    return "the policy has left its reference: give a lower --actor.optim.lr"


def _looked_up(
    found: Mapping[str, float] | None, keys: Sequence[str], missing: float
) -> Floats | None:
    if found is None:
        return None
    return np.array([found.get(key, missing) for key in keys], dtype=np.float64)


def _components(cards: Sequence[ScoreCard]) -> tuple[dict[str, Floats], dict[str, float]]:
    """The components by themselves and their weights, by name.

    A component is worth what its weight was put on: 0 for a truncated rollout under
    ``on_truncated: zero``.
    """
    rewards: dict[str, Floats] = {}
    weights: dict[str, float] = {}
    for row, card in enumerate(cards):
        for name, component in card.components.items():
            weight = weights.setdefault(name, component.weight)
            column = rewards.setdefault(name, np.full(len(cards), np.nan))
            if weight and component.contribution is not None:
                column[row] = component.contribution / component.weight
    return rewards, weights
