"""OpenRLHF's ``reward_func(queries, prompts, labels)``, out of our rewards and into them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlgym_llm.errors import ConfigError, DataError, did_you_mean
from rlgym_llm.inject import prompt_text
from rlgym_llm.layouts.conversations import to_prompt
from rlgym_llm.rewards import RawScore, Reward, RewardContext
from rlgym_llm.scores import Score
from rlgym_llm.shims.shared_composer import RewardsLike, SharedComposer, answer_text, number_of
from rlgym_llm.types import Completion, Rollout, Task, Turn

__all__ = ["OpenRlhfFunction", "OpenRlhfRewardFunc", "from_openrlhf", "openrlhf_reward_func"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRlhfRewardFunc:
    """A ``reward_func`` of OpenRLHF's signature; made by `openrlhf_reward_func`."""

    scorer: SharedComposer
    tensor: Callable[[list[float]], Any]
    scores: str | None
    unscored: float | None
    special_tokens: tuple[str, ...]

    def __call__(
        self,
        queries: Sequence[str],
        prompts: Sequence[str],
        labels: Sequence[Any],
        **columns: Any,
    ) -> dict[str, Any]:
        """``{"rewards": [N], "scores": [N], "extra_logs": {component: [N]}}``, tensors all.

        Raises DataError where the lengths differ or a query does not hold its prompt.
        """
        if not len(queries) == len(prompts) == len(labels):
            raise DataError(
                f"OpenRLHF's batch does not line up: {len(queries)} queries, {len(prompts)} "
                f"prompts, {len(labels)} labels"
            )
        rows = zip(queries, prompts, labels, strict=True)
        cards = self.scorer.score([self._rollout(n, *row) for n, row in enumerate(rows)])
        rewards = [number_of(card, self.unscored, trainer="OpenRLHF") for card in cards]
        logs = {
            name: [
                math.nan
                if (part := card.components.get(name)) is None or part.raw is None
                else part.raw
                for card in cards
            ]
            for name in self.scorer.config.components
        }
        scores = rewards if self.scores is None else logs[self.scores]
        return {
            "rewards": self.tensor(rewards),
            "scores": self.tensor(scores),
            "extra_logs": {name: self.tensor(values) for name, values in logs.items()},
        }

    def _rollout(self, number: int, query: str, prompt: str, label: Any) -> Rollout:
        start = query.find(prompt)
        if start < 0:
            raise DataError(
                f"query {number} of OpenRLHF's batch does not hold its prompt, so where the "
                "response starts is not known; OpenRLHF cuts prompts that are too long: raise the "
                "longest length"
            )
        text = query[start + len(prompt) :]
        while ending := next((e for e in self.special_tokens if text.endswith(e)), None):
            text = text[: -len(ending)]
        task = Task(prompt=to_prompt(prompt), answer=answer_text(label), info={"label": label})
        return Rollout(
            id=f"query-{number}",
            task=task,
            group_id=task.id,
            sample_index=number,
            seed=0,
            turns=(Turn(new_prompt_token_ids=(), completion=Completion(text=text)),),
            terminated=True,
        )


def openrlhf_reward_func(
    rewards: RewardsLike,
    *,
    tensor: Callable[[list[float]], Any],
    scores: str | None = None,
    unscored: float | None = None,
    special_tokens: Sequence[str] = (),
    plugins: Sequence[str | Path] = (),
) -> OpenRlhfRewardFunc:
    """Our rewards as OpenRLHF's ``reward_func``, for a file that ``--reward.remote_url`` names.

    ``tensor`` is ``torch.tensor``: OpenRLHF takes tensors, and this package imports no torch.
    ``scores`` names the component that its dynamic filtering compares with a range of 0 to 1
    (the composed reward by default). ``special_tokens`` are cut from the end of a response, as
    OpenRLHF decodes them with the text. A row without a reward raises; ``unscored=0.0`` counts it
    as 0. Raises ConfigError for rewards that compare siblings: OpenRLHF asks for one row at a time.

    >>> reward_func = openrlhf_reward_func(["math=1.0", "format=0.2"], tensor=list,
    ...                                    scores="math", special_tokens=["<|im_end|>"])
    >>> reward_func(["1 + 1 = ? It is 2.<|im_end|>"], ["1 + 1 = ?"], ["2"])["rewards"]
    [1.0]
    """
    scorer = SharedComposer(rewards, plugins)
    if scorer.needs_groups:
        raise ConfigError(
            "a reward compares the siblings of a prompt, and OpenRLHF calls reward_func with one "
            "row at a time; leave it out"
        )
    known = scorer.config.components
    if scores is not None and scores not in known:
        hint = did_you_mean(scores, known)
        raise ConfigError(f"no component {scores!r}{hint} (components: {', '.join(known)})")
    return OpenRlhfRewardFunc(
        scorer=scorer,
        tensor=tensor,
        scores=scores,
        unscored=unscored,
        special_tokens=tuple(token for token in special_tokens if token),
    )


@dataclass(frozen=True, kw_only=True)
class OpenRlhfFunction(Reward):
    """What a ``reward_func`` of OpenRLHF's returns for a rollout; made by `from_openrlhf`."""

    range = (-math.inf, math.inf)

    function: Callable[..., Any]
    name: str

    def score(self, rollout: Rollout, ctx: RewardContext) -> RawScore:
        """The function's ``rewards``; its ``scores`` and ``extra_logs`` go to ``info``."""
        prompt = prompt_text(rollout.task)
        found = self.function([prompt + rollout.text], [prompt], [rollout.task.answer])
        if not isinstance(found, Mapping):
            return _number(found)
        if "rewards" not in found:
            raise ValueError(f"returned a dictionary without 'rewards' (keys: {', '.join(found)})")
        info = {key: _number(value) for key, value in (found.get("extra_logs") or {}).items()}
        if found.get("scores") is not None:
            info["scores"] = _number(found["scores"])
        return Score(name=self.name, value=_number(found["rewards"]), info=info)


def from_openrlhf(function: Callable[..., Any], *, name: str | None = None) -> OpenRlhfFunction:
    """A reward that calls a ``reward_func`` written for OpenRLHF, one row a call as OpenRLHF does.

    The query is the prompt's text and the completion, the label the answer.

    >>> def reward_func(queries, prompts, labels):
    ...     return {"rewards": [float(label in query) for query, label in zip(queries, labels)]}
    >>> from_openrlhf(reward_func, name="contains").name
    'contains'
    """
    called = name or getattr(function, "__name__", "") or "openrlhf"
    return OpenRlhfFunction(function=function, name=called)


def _number(value: Any) -> float:
    """The one number of a tensor, a list of one or a number."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    while isinstance(value, list | tuple):
        if len(value) != 1:
            raise ValueError(f"returned {len(value)} values for one row")
        value = value[0]
    return float(value)
