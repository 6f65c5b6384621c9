"""Rewards on the text: which characters earned what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rlgym_llm.composition.component import ComponentConfig
from rlgym_llm.composition.placement import token_rewards
from rlgym_llm.scores import ScoreCard, StepScore
from rlgym_llm.types import Rollout

__all__ = ["Span", "step_spans", "token_spans"]


class Span(NamedTuple):
    """A stretch of a text, in order and without gaps."""

    text: str
    value: float | None
    """None where nothing was earned or could be: between steps, what nobody sampled."""


def step_spans(text: str, steps: Sequence[StepScore]) -> list[Span]:
    """The text cut at its steps; what lies between them has no value.

    >>> step_spans("2+3=5 so 5", [StepScore(value=0.5, char_start=0, char_end=5)])
    [Span(text='2+3=5', value=0.5), Span(text=' so 5', value=None)]
    """
    spans: list[Span] = []
    at = 0
    for step in sorted(steps, key=lambda step: (step.char_start, step.char_end)):
        start, end = max(at, step.char_start), min(len(text), step.char_end)
        if start > at:
            spans.append(Span(text[at:start], None))
        spans.append(Span(text[start:end] if end > start else "", step.value))
        at = max(at, end)
    if at < len(text):
        spans.append(Span(text[at:], None))
    return spans


def token_spans(
    rollout: Rollout, card: ScoreCard, components: Mapping[str, ComponentConfig]
) -> list[Span] | None:
    """Every sampled token with what it earned; the texts joined are ``rollout.text``.

    A closing end-of-text token has no text. A component of unknown configuration that has steps is
    placed by them. None where the tokens' places in the text are unknown, or there is no reward.
    """
    turns = rollout.turns
    sampled = [turn.completion for turn in turns]
    if card.reward is None or not any(completion.num_tokens for completion in sampled):
        return None
    if any(c.num_tokens and c.token_char_ends is None for c in sampled):
        return None
    known = {
        name: components.get(name)
        or ComponentConfig(reward=name, placement="step" if part.steps else "last_token")
        for name, part in card.components.items()
    }
    try:
        earned = token_rewards(rollout, card, known)
    except ValueError:  # a step of a turn without tokens: it has no place
        return None
    return list(_token_spans(rollout, earned))


def _token_spans(rollout: Rollout, earned: Sequence[Sequence[float]]) -> Iterator[Span]:
    for number, (turn, values) in enumerate(zip(rollout.turns, earned, strict=True)):
        text, at = turn.completion.text, 0
        if number:
            yield Span("\n", None)
        for end, value in zip(turn.completion.token_char_ends or (), values, strict=True):
            yield Span(text[at:end], value)
            at = max(at, end)
        if at < len(text):
            yield Span(text[at:], None)
