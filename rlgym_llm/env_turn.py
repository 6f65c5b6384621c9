"""One turn of an environment: what the policy did, what came back, and the record of both."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rlgym_llm.errors import UserError
from rlgym_llm.types import Action, Completion, FinishReason, Message, Prompt, Turn
from rlgym_llm.unchecked import unchecked

__all__ = ["OVER", "TurnOutcome", "as_action", "extended", "turn_record"]

# Every step makes them, mostly of values that their checks have nothing to say to.
_action, _completion, _turn = unchecked(Action), unchecked(Completion), unchecked(Turn)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOutcome:
    """What an environment answers to one action.

    Number-like and bool-like values (NumPy's, say) become Python's own; a reward that is NaN or
    infinite raises ValueError.

    >>> TurnOutcome(env_reward=1, terminated=True).env_reward
    1.0
    """

    reply: tuple[Message, ...] = ()
    """Messages that the policy reads next; empty where the episode is over."""
    env_reward: float | None = None
    """The environment's own reward for this step, None where it gives none."""
    terminated: bool = False
    """The task is over."""
    truncated: bool = False
    """A budget ran out."""
    spoken: Message | None = None
    """The action as the conversation remembers it, with its tool calls say; None: its text."""

    def __post_init__(self) -> None:
        if self.env_reward is not None:
            object.__setattr__(self, "env_reward", float(self.env_reward))
            if not math.isfinite(self.env_reward):
                raise ValueError(f"env_reward is {self.env_reward}; it is finite or None")
        object.__setattr__(self, "reply", tuple(self.reply))
        object.__setattr__(self, "terminated", bool(self.terminated))
        object.__setattr__(self, "truncated", bool(self.truncated))


OVER = TurnOutcome(terminated=True)
"""The answer to the last action of an episode where there is nothing to say."""


def as_action(action: str | Action, env_name: str) -> Action:
    """The action that a string or an action is; UserError for anything else."""
    if isinstance(action, Action):
        return action
    if isinstance(action, str):
        return _action(str(action), (), None, FinishReason.STOP, None)
    raise UserError(f"{env_name}.step takes a str or an Action, got {type(action).__name__}")


def turn_record(action: Action, outcome: TurnOutcome) -> Turn:
    """What stays of a turn; the ids of its prompt are the runner's, so () here."""
    text, ids, logprobs = action.text, action.token_ids, action.logprobs
    reason, raw = action.finish_reason, action.raw_text
    if type(ids) is tuple and logprobs is None and type(reason) is FinishReason:
        completion = _completion(text, ids, None, None, (), reason, raw, None)
    else:
        completion = Completion(
            text=text, token_ids=ids, logprobs=logprobs, finish_reason=reason, raw_text=raw
        )
    return _turn((), completion, outcome.reply, outcome.env_reward)


def extended(observation: Prompt, action: Action, outcome: TurnOutcome) -> Prompt:
    """The conversation after a turn."""
    if isinstance(observation, str):
        return "".join((observation, action.text, *(m.content for m in outcome.reply)))
    spoken = outcome.spoken or Message(role="assistant", content=action.text)
    return (*observation, spoken, *outcome.reply)
