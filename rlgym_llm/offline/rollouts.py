"""Stored samples as rollouts, so that the composer of training scores them."""

from __future__ import annotations

from typing import Final

from rlgym_llm.layouts.layout import Sample
from rlgym_llm.types import Completion, FinishReason, Rollout, Task, Turn
from rlgym_llm.unchecked import unchecked

__all__ = ["to_rollout"]

_NO_PROMPT: Final = " "
"""A task has a prompt; where the file has none, this says nothing and is never empty."""
# Half a million rows a minute pass here, and nothing in them is left for the checks to refuse.
_task, _completion = unchecked(Task), unchecked(Completion)
_turn, _rollout = unchecked(Turn), unchecked(Rollout)


def to_rollout(sample: Sample) -> Rollout:
    """The finished episode that a stored sample is; one of the layout ``rollouts`` is one already.

    The columns ``finish_reason`` ("length") and ``truncated`` say that a budget cut it short.

    >>> sample = Sample("7", "2+3?", "5", "5", "unknown", None, {"finish_reason": "length"})
    >>> rollout = to_rollout(sample)
    >>> rollout.text, rollout.task.answer, rollout.turns[0].completion.finish_reason.value
    ('5', '5', 'length')
    """
    # By place, since a look-up by name takes longer; label, reward and step are no part of it.
    name, prompt, text, answer, source, group, columns = sample[:7]
    token_ids, logprobs, rollout = sample[10:]
    if rollout is not None:
        return rollout
    is_cut = "finish_reason" in columns and columns["finish_reason"] == "length"
    reason = FinishReason.LENGTH if is_cut else FinishReason.STOP
    truncated = "truncated" in columns and columns["truncated"] is True
    if token_ids:
        if logprobs is not None and len(logprobs) != len(token_ids):
            logprobs = None  # of other tokens, such as the prompt's too
        completion = Completion(
            text=text or "", token_ids=token_ids, logprobs=logprobs, finish_reason=reason
        )
    else:
        completion = _completion(text or "", (), None, None, (), reason)
    task = _task(_NO_PROMPT if prompt is None else prompt, answer, source, columns, name)
    turns = (_turn((), completion),)
    group = name if group is None else group
    return _rollout(name, task, group, 0, 0, turns, True, truncated)
