"""The wide table of rollouts: one row each, what a notebook or a training job elsewhere wants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rlgym_llm.layouts.layout import Layout, Sample
from rlgym_llm.layouts.rows import plain_prompt, rlgym_row
from rlgym_llm.types import Rollout

__all__ = ["TABLE_TYPES", "table_row"]

TABLE_TYPES: Final[Mapping[str, str]] = {
    "id": "string",
    "group_id": "string",
    "sample_index": "int64",
    "step": "int64",
    "data_source": "string",
    "prompt": "string",
    "response": "string",
    "answer": "string",
    "reward": "double",
    "advantage": "double",
    "length": "int64",
    "prompt_length": "int64",
    "num_turns": "int64",
    "finish_reason": "string",
    "terminated": "bool",
    "truncated": "bool",
    "status": "string",
    "error": "string",
    "min_policy_version": "int64",
    "max_policy_version": "int64",
    "prompt_token_ids": "list<int64>",
    "token_ids": "list<int64>",
    "mask": "list<bool>",
    "logprobs": "list<double>",
    "ref_logprobs": "list<double>",
    "values": "list<double>",
    "advantages": "list<double>",
    "weight_versions": "list<int64>",
}
"""The columns that every table has, null where nothing is known, with their types in arrow's words.
``prompt`` is a list of messages where it is a conversation. Beside them stand ``components`` (raw
scores by name), the columns of the task, and those that the file had more.

``length`` counts sampled tokens. ``token_ids``, ``mask``, ``logprobs``, ``ref_logprobs``,
``values``, ``advantages`` and ``weight_versions`` are all aligned: the context behind the first
prompt, where ``mask`` is true for tokens that the policy sampled; the others are null where it is
false or nothing is known."""


def table_row(sample: Sample, layout: Layout) -> dict[str, Any]:
    """The sample as a row of the table.

    >>> from rlgym_llm.layouts.layout import recognise
    >>> row = {"prompt": "2+3?", "completion": "5", "reward": 1, "level": 2}
    >>> layout = recognise([row])
    >>> found = table_row(layout.to_samples(row)[0], layout)
    >>> found["response"], found["reward"], found["advantage"], found["level"]
    ('5', 1.0, None, 2)
    """
    row: dict[str, Any] = dict.fromkeys(TABLE_TYPES)
    given = rlgym_row(sample, layout)
    row |= {
        "id": sample.id,
        "group_id": sample.group,
        "step": sample.step,
        "data_source": sample.data_source,
        "prompt": plain_prompt(sample.prompt),
        "response": sample.completion,
        "answer": sample.answer,
        "reward": sample.reward,
    }
    if sample.token_ids:
        num_tokens = len(sample.token_ids)
        row |= {"token_ids": list(sample.token_ids), "length": num_tokens}
        row["mask"] = [True] * num_tokens
    if sample.logprobs is not None:
        row["logprobs"] = list(sample.logprobs)
    if sample.rollout is not None:
        card = sample.columns.get("card") or {}
        components = card.get("components") or {}
        row["components"] = {name: component["raw"] for name, component in components.items()}
        row |= _tokens(sample.rollout) | _record(sample.rollout)
        given |= {k: v for k, v in sample.columns.items() if k not in _RECORD}
    said = {"completion", layout.reward, layout.token_ids, layout.logprobs, layout.group}
    for column, value in given.items():
        if column in ("reward", "advantage") and isinstance(value, int | float):
            row[column] = float(value)
        elif row.get(column) is None and column not in said:
            row[column] = value
    return row


_RECORD: Final = (
    *("step", "prompt", "completion", "answer", "reward", "components"),
    *("schema_version", "rollout", "card"),
)
"""What a stored line holds by itself; anything beside it is a further column."""


def _record(rollout: Rollout) -> dict[str, Any]:
    last = rollout.turns[-1].completion if rollout.turns else None
    return {
        "group_id": rollout.group_id,
        "sample_index": rollout.sample_index,
        "length": rollout.num_tokens,
        "num_turns": rollout.num_turns,
        "finish_reason": None if last is None else str(last.finish_reason),
        "terminated": rollout.terminated,
        "truncated": rollout.truncated,
        "status": str(rollout.status),
        "error": rollout.error,
        "min_policy_version": rollout.min_policy_version,
        "max_policy_version": rollout.max_policy_version,
    }


def _tokens(rollout: Rollout) -> dict[str, Any]:
    """The context behind the first prompt, token by token.

    Prompt [1, 2], sampled [4, 5], the environment adds [6], sampled [7]: ``token_ids`` is
    [4, 5, 6, 7], ``mask`` [True, True, False, True].
    """
    prompt_ids: list[int] = []
    token_ids: list[int] = []
    mask: list[bool] = []
    logprobs: list[float | None] = []
    versions: list[int | None] = []
    for number, turn in enumerate(rollout.turns):
        added, sampled = turn.new_prompt_token_ids, turn.completion
        if number == 0:
            prompt_ids.extend(added)
        else:
            token_ids.extend(added)
            mask.extend([False] * len(added))
            logprobs.extend([None] * len(added))
            versions.extend([None] * len(added))
        token_ids.extend(sampled.token_ids)
        mask.extend([True] * sampled.num_tokens)
        logprobs.extend(sampled.logprobs or [None] * sampled.num_tokens)
        spread: list[int | None] = [None] * sampled.num_tokens
        for start, end, version in sampled.version_spans:
            spread[start:end] = [version] * (end - start)
        versions.extend(spread)
    return {
        "prompt_token_ids": prompt_ids,
        "prompt_length": len(prompt_ids),
        "token_ids": token_ids,
        "mask": mask,
        "logprobs": None if logprobs.count(None) == len(logprobs) else logprobs,
        "weight_versions": None if versions.count(None) == len(versions) else versions,
    }
