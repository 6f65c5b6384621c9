"""A reward function of TRL's as a reward of ours."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from rlgym_llm.errors import PluginError
from rlgym_llm.inject import sample_columns
from rlgym_llm.rewards import RawScore, Reward, RewardContext
from rlgym_llm.types import Rollout

__all__ = ["TrlFunction", "from_trl"]


@dataclass(frozen=True, kw_only=True)
class TrlFunction(Reward):
    """What a reward function of TRL's returns for a batch; made by `from_trl`.

    It is called once with the whole batch: a function that raises fails every row of it.
    """

    scope = "batch"
    range = (-math.inf, math.inf)

    function: Callable[..., Sequence[float | None]]
    name: str
    columns: Mapping[str, str] = field(default_factory=dict)
    """The function's parameter to our column, ``{"solution": "answer"}``."""

    def __post_init__(self) -> None:
        if inspect.iscoroutinefunction(self.function):
            raise PluginError(f"reward {self.name!r} is an async function, which is not supported")

    def score_batch(self, rollouts: Sequence[Rollout], ctx: RewardContext) -> Sequence[RawScore]:
        """The function's values, None where it says that it does not apply.

        Raises LookupError where a parameter without default has no column.
        """
        if not rollouts:
            return []
        offered: dict[str, Any] = {
            "prompts": [_prompt(rollout) for rollout in rollouts],
            "completions": [_completion(rollout) for rollout in rollouts],
            "completion_ids": [_token_ids(rollout) for rollout in rollouts],
            "trainer_state": SimpleNamespace(global_step=ctx.step or 0),
            "log_extra": _ignore,
            "log_metric": _ignore,
        }
        rows = [sample_columns(rollout) for rollout in rollouts]
        offered |= self._columns(rows, taken=offered)
        parameters = inspect.signature(self.function).parameters.values()
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            return self.function(**offered)
        arguments = {}
        for parameter in parameters:
            if parameter.name in offered:
                arguments[parameter.name] = offered[parameter.name]
            elif parameter.default is parameter.empty:
                raise LookupError(
                    f"parameter {parameter.name!r} has no default and no column that every row has "
                    f"provides it (available: {', '.join(sorted(offered))})"
                )
        return self.function(**arguments)

    def _columns(
        self, rows: Sequence[Mapping[str, Any]], taken: Mapping[str, Any]
    ) -> dict[str, list[Any]]:
        """The columns that every row has, as lists; the answer under TRL's names for it too."""
        ours = ("completion", "prompt", "info", "rollout")
        names = [name for name in rows[0] if name not in ours and all(name in row for row in rows)]
        found = {name: [row[name] for row in rows] for name in names if name not in taken}
        if "answer" in found:
            found = {"solution": found["answer"], "ground_truth": found["answer"], **found}
        for parameter, column in self.columns.items():
            if not all(column in row for row in rows):
                raise LookupError(
                    f"there is no column {column!r} in every row for the parameter {parameter!r} "
                    f"(available: {', '.join(sorted(names)) or 'none'})"
                )
            found[parameter] = [row[column] for row in rows]
        return found


def from_trl(
    function: Callable[..., Sequence[float | None]],
    *,
    name: str | None = None,
    columns: Mapping[str, str] | None = None,
) -> TrlFunction:
    """A reward that calls a reward function written for TRL, with what TRL would hand it.

    ``prompts`` and ``completions`` are strings, or lists of messages where the task's prompt is a
    conversation, as in TRL; ``completion_ids`` the sampled ids. Columns go by the names that the
    function asks for, the ground truth as ``answer``, ``solution`` and ``ground_truth``;
    ``columns`` says where else to look: ``{"gold": "answer"}``. A function that takes no
    ``**kwargs`` gets what its signature names and nothing else. None means "does not apply". Name
    the result in a plugin's ``RewardSpec(entry_point=f"{__name__}:...")``.

    >>> def exact(completions, solution, **kwargs):
    ...     return [float(text == right) for text, right in zip(completions, solution)]
    >>> from_trl(exact).name
    'exact'
    """
    called = name or getattr(function, "__name__", "")
    if not called:
        raise PluginError("from_trl needs a name for a function that has none: name='mine'")
    return TrlFunction(function=function, name=called, columns=dict(columns or {}))


def _prompt(rollout: Rollout) -> Any:
    prompt = rollout.task.prompt
    return prompt if isinstance(prompt, str) else [message.to_dict() for message in prompt]


def _completion(rollout: Rollout) -> Any:
    if isinstance(rollout.task.prompt, str):
        return rollout.text
    messages: list[dict[str, Any]] = []
    for turn in rollout.turns:
        messages.append({"role": "assistant", "content": turn.completion.text})
        messages.extend(message.to_dict() for message in turn.reply)
    return messages


def _token_ids(rollout: Rollout) -> list[int]:
    return [token for turn in rollout.turns for token in turn.completion.token_ids]


def _ignore(*_: Any, **__: Any) -> None:
    """Stands for TRL's own log: ours holds every score already."""
