"""Placement: on which sampled tokens a rollout's reward lands. Pure; in float64."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Mapping

from rlgym_llm.composition.component import ComponentConfig
from rlgym_llm.scores import Component, ScoreCard
from rlgym_llm.types import Rollout

__all__ = ["step_ends", "token_rewards"]

_ROUNDINGS = 2
"""The rest is rounded as it is added, and what that lost is added again."""


def token_rewards(
    rollout: Rollout, card: ScoreCard, components: Mapping[str, ComponentConfig]
) -> tuple[tuple[float, ...], ...]:
    """What every sampled token earned, turn by turn: one number per token of each completion.

    Each component goes where its ``placement`` says:

    - ``last_token``: on the last sampled token of the last turn;
    - ``turn``, ``step``, ``token``: the shares in ``Component.steps``, times the component's
      contribution over its raw score; a share lands on the last sampled token of the turn in which
      its span ends, or on the token that holds the span's last character;
    - ``potential``: the steps are potentials Phi_k, and the token that ends step k gets
      ``w (gamma Phi_k - Phi_{k-1})`` with Phi_0 = 0 (Ng, Harada and Russell 1999).

    What is left of the reward (of a clip, a gate, a transform, shares that do not add up) lands on
    the last sampled token, so that ``math.fsum`` over all tokens equals ``card.reward``, to the
    rounding of the largest of them. Potentials are summed discounted: with gamma < 1 the plain sum
    differs from R by what discounting takes. Observation tokens are not in the result.

    Raises ValueError for a card without a reward, a rollout without a sampled token, and steps
    that cannot be placed since the completion has no ``token_char_ends``.

    Steps worth 0.25 and 0.5, weight 2, and 1.0 for the answer: 0.5 and 1.0 at the steps' ends, and
    1.0 on the last token.
    """
    if card.reward is None:
        raise ValueError(f"rollout {rollout.id} has no reward to place (status {card.status})")
    rewards = [[0.0] * turn.completion.num_tokens for turn in rollout.turns]
    last_turn = max((t for t, tokens in enumerate(rewards) if tokens), default=None)
    if last_turn is None:
        raise ValueError(f"rollout {rollout.id} has no sampled token to place its reward on")
    total = [card.reward]  # what the tokens add up to
    for name, component in card.components.items():
        config = components[name]
        if component.contribution is None or config.placement == "last_token":
            continue
        shares = _shares(component, config)
        for share, char_end in shares:
            turn, token = _token_at(rollout, char_end, whole_turn=config.placement == "turn")
            rewards[turn][token] += share
        if config.placement == "potential":
            total.append(math.fsum((*(s for s, _ in shares), -component.contribution)))
    for _ in range(_ROUNDINGS):
        so_far = (-value for tokens in rewards for value in tokens)
        rewards[last_turn][-1] += math.fsum((*total, *so_far))
    return tuple(tuple(tokens) for tokens in rewards)


def step_ends(
    rollout: Rollout, card: ScoreCard, components: Mapping[str, ComponentConfig]
) -> tuple[tuple[bool, ...], ...]:
    """The sampled tokens on which a step ends, turn by turn, whatever the step earned.

    The tokens that hold the shares of `token_rewards`; the last sampled token too where a component
    of weight is placed on it, the outcome being a step of its own. Errors as there.

    Steps that end on the second and third token of four, and an answer: F, T, T, T.
    """
    ends = [[False] * turn.completion.num_tokens for turn in rollout.turns]
    for name, component in card.components.items():
        config = components[name]
        if component.contribution is None or not component.weight:
            continue
        if config.placement == "last_token":
            last_turn = max(t for t, tokens in enumerate(ends) if tokens)
            ends[last_turn][-1] = True
            continue
        for _, char_end in _shares(component, config):
            turn, token = _token_at(rollout, char_end, whole_turn=config.placement == "turn")
            ends[turn][token] = True
    return tuple(tuple(tokens) for tokens in ends)


def _shares(component: Component, config: ComponentConfig) -> list[tuple[float, int]]:
    """(what the step earns, the character after its last one)."""
    contribution, steps = component.contribution, component.steps
    assert contribution is not None
    if not steps:
        return []
    if config.placement == "potential":
        # The contribution is w gamma^n Phi_n; the factor is what scales each potential.
        final = config.gamma ** len(steps) * steps[-1].value
        factor = contribution / final if final else component.weight
        potentials = [0.0, *(step.value for step in steps)]
        return [
            (factor * (config.gamma * after - before), step.char_end)
            for step, (before, after) in zip(steps, itertools.pairwise(potentials), strict=True)
        ]
    if component.raw:
        factor = contribution / component.raw
    elif component.transformed == 0.0:
        factor = component.weight  # shares that cancel, such as +0.5 and -0.5
    else:
        return []  # a transform made it out of nothing: there is nothing to share by
    return [(factor * step.value, step.char_end) for step in steps]


def _token_at(rollout: Rollout, char_end: int, *, whole_turn: bool) -> tuple[int, int]:
    """(turn, token) that holds the character before ``char_end`` of ``rollout.text``."""
    start = 0
    for index, turn in enumerate(rollout.turns):
        completion = turn.completion
        end = start + len(completion.text)
        if char_end <= end or index == len(rollout.turns) - 1:
            break
        start = end + 1  # the newline that joins turns
    if not completion.num_tokens:
        raise ValueError(f"rollout {rollout.id}: turn {index} holds a step but no sampled token")
    if whole_turn:
        return index, completion.num_tokens - 1
    if completion.token_char_ends is None:
        raise ValueError(
            f"rollout {rollout.id}: a step cannot be placed on a token, since its completion "
            "carries no token_char_ends; take placement turn or last_token"
        )
    token = bisect.bisect_left(completion.token_char_ends, char_end - start)
    return index, min(token, completion.num_tokens - 1)
