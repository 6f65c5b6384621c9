"""verl's ``compute_score`` out of our rewards.

The way back needs no shim: reward ``function`` calls a ``compute_score`` of verl's signature.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlgym_llm.errors import ConfigError, DataError
from rlgym_llm.layouts.conversations import to_prompt
from rlgym_llm.scores import ScoreCard
from rlgym_llm.shims.shared_composer import RewardsLike, SharedComposer, answer_text, number_of
from rlgym_llm.types import Completion, Rollout, Task, Turn

__all__ = [
    "VerlBatchComputeScore",
    "VerlComputeScore",
    "verl_batch_compute_score",
    "verl_compute_score",
]

_NO_PROMPT = "(verl hands no prompt to compute_score)"
_TAKEN = ("score", "reward", "unscored", "data_source", "extra_info", "reward_model", "uid")
"""Columns of verl's own, in which a component's raw scores would get lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """How a call's arguments become rollouts, and cards what verl takes."""

    scorer: SharedComposer
    unscored: float | None
    prompt: str

    def rollout(
        self, data_source: Any, text: Any, ground_truth: Any, columns: Mapping[str, Any], place: str
    ) -> Rollout:
        prompt = columns.get(self.prompt)
        if prompt is None and "prompt" in self.scorer.needs:
            raise DataError(
                f"a reward needs the prompt, and extra_info of {place} has no {self.prompt!r} "
                f"(it has: {', '.join(map(str, columns)) or 'nothing'}); say which with prompt="
            )
        task = Task(
            prompt=_NO_PROMPT if prompt is None else to_prompt(prompt),
            answer=answer_text(ground_truth),
            data_source=str(data_source),
            info={**columns, "ground_truth": ground_truth},
        )
        turn = Turn(new_prompt_token_ids=(), completion=Completion(text=text))
        return Rollout(
            id=place,
            task=task,
            group_id=place,
            sample_index=0,
            seed=0,
            turns=(turn,),
            terminated=True,
        )

    def result(self, card: ScoreCard) -> dict[str, float | None]:
        found: dict[str, float | None] = {
            "score": number_of(card, self.unscored, trainer="verl"),
            **dict.fromkeys(self.scorer.config.components),
            **{name: component.raw for name, component in card.components.items()},
        }
        if self.unscored is not None:
            found["unscored"] = float(card.reward is None)
        return found


@dataclass(frozen=True, slots=True)
class VerlComputeScore:
    """A ``compute_score`` of verl's signature; made by `verl_compute_score`.

    It pickles by reference (each Ray worker sets up its own rewards, at the first row) and may be
    called from many threads, as verl's reward loop does.
    """

    rows: _Rows

    def __call__(
        self,
        data_source: str,
        solution_str: str,
        ground_truth: Any,
        extra_info: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> dict[str, float | None]:
        """``{"score": R, <component>: raw score or None, ...}``, the same keys for every row.

        ``extra_info`` and ``kwargs`` (verl's ``reward_kwargs``) are columns that rewards may ask
        for by name. Raises RewardError where there is no reward and no ``unscored``.
        """
        columns = {**(extra_info or {}), **kwargs}
        place = _place(data_source, columns)
        rollout = self.rows.rollout(data_source, solution_str, ground_truth, columns, place)
        return self.rows.result(self.rows.scorer.score([rollout])[0])


@dataclass(frozen=True, slots=True)
class VerlBatchComputeScore:
    """A ``compute_score`` for verl's BatchRewardManager; made by `verl_batch_compute_score`."""

    rows: _Rows
    group_by: str

    def __call__(
        self,
        data_sources: Sequence[str],
        solution_strs: Sequence[str],
        ground_truths: Sequence[Any],
        extra_infos: Sequence[Mapping[str, Any] | None] | None = None,
        **kwargs: Any,
    ) -> list[dict[str, float | None]]:
        """One result per row, in order, each as `VerlComputeScore` gives it.

        Raises DataError where the lengths differ, or where siblings count and a row does not say
        in ``extra_info`` which prompt it answers.
        """
        extras = [None] * len(solution_strs) if extra_infos is None else extra_infos
        lengths = {
            "data_sources": len(data_sources),
            "solution_strs": len(solution_strs),
            "ground_truths": len(ground_truths),
            "extra_infos": len(extras),
        }
        if len(set(lengths.values())) > 1:
            counts = ", ".join(f"{count} {name}" for name, count in lengths.items())
            raise DataError(f"verl's batch does not line up: {counts}")
        rollouts = [
            self._rollout(number, *row, kwargs)
            for number, row in enumerate(
                zip(data_sources, solution_strs, ground_truths, extras, strict=True)
            )
        ]
        return [self.rows.result(card) for card in self.rows.scorer.score(_in_groups(rollouts))]

    def _rollout(
        self,
        number: int,
        source: str,
        text: str,
        truth: Any,
        extra: Mapping[str, Any] | None,
        kwargs: Mapping[str, Any],
    ) -> Rollout:
        columns = {**(extra or {}), **kwargs}
        if self.rows.scorer.needs_groups and columns.get(self.group_by) is None:
            raise DataError(
                f"a reward compares the siblings of a prompt, and extra_infos[{number}] has no "
                f"{self.group_by!r} that they share; say which with group_by="
            )
        place = _place(source, columns, key=self.group_by)
        return self.rows.rollout(source, text, truth, columns, place)


def verl_compute_score(
    rewards: RewardsLike,
    *,
    unscored: float | None = None,
    prompt: str = "question",
    plugins: Sequence[str | Path] = (),
) -> VerlComputeScore:
    r"""Our rewards as verl's ``compute_score``: the whole of a file for ``custom_reward_function``.

    ``rewards`` is a list of ``NAME=WEIGHT``, a mapping, or the path of a YAML file. A row without
    a reward (a component failed, or none applies) raises, since verl knows no missing reward;
    ``unscored=0.0`` counts it as 0 and marks it under ``unscored``. ``prompt`` is the key of
    ``extra_info`` that holds the prompt, for rewards that read it.

    Raises ConfigError for rewards that compare siblings: verl asks for one row at a time.

    >>> compute_score = verl_compute_score(["math=1.0", "format=0.2"])
    >>> compute_score("gsm8k", "24 + 48 = 72\n#### 72", "72")
    {'score': 1.2, 'math': 1.0, 'format': 1.0}
    """
    rows = _rows(rewards, unscored, prompt, plugins)
    if rows.scorer.needs_groups:
        raise ConfigError(
            "a reward compares the siblings of a prompt, and verl calls compute_score with one "
            "row at a time; use verl_batch_compute_score where a reward manager hands over batches"
        )
    return VerlComputeScore(rows)


def verl_batch_compute_score(
    rewards: RewardsLike,
    *,
    unscored: float | None = None,
    prompt: str = "question",
    group_by: str = "index",
    plugins: Sequence[str | Path] = (),
) -> VerlBatchComputeScore:
    """The same for reward managers that hand over a batch, as verl's BatchRewardManager does.

    ``group_by`` is the key of ``extra_info`` that siblings of one prompt share (with their data
    source); it is read where a reward compares siblings.

    >>> compute_score = verl_batch_compute_score("math=1.0")
    >>> compute_score(["gsm8k"] * 2, ["So it is 72.", "So it is 7."], ["72", "72"], [{}, {}])
    [{'score': 1.0, 'math': 1.0}, {'score': 0.0, 'math': 0.0}]
    """
    return VerlBatchComputeScore(_rows(rewards, unscored, prompt, plugins), group_by)


def _rows(
    rewards: RewardsLike, unscored: float | None, prompt: str, plugins: Sequence[str | Path]
) -> _Rows:
    scorer = SharedComposer(rewards, plugins)
    for name in scorer.config.components:
        if name in _TAKEN:
            raise ConfigError(f"component {name!r} has the name of a column of verl's; rename it")
    return _Rows(scorer=scorer, unscored=unscored, prompt=prompt)


def _place(data_source: Any, columns: Mapping[str, Any], key: str = "index") -> str:
    """Where a row comes from, for errors and as the id of its siblings: ``gsm8k/train/17``."""
    parts = [data_source, columns.get("split"), columns.get(key)]
    return "/".join(str(part) for part in parts if part is not None)


def _in_groups(rollouts: Sequence[Rollout]) -> list[Rollout]:
    """The rollouts with ids and sample indices that tell the siblings of a group apart."""
    counts: dict[str, int] = {}
    numbered = []
    for rollout in rollouts:
        index = counts[rollout.group_id] = counts.get(rollout.group_id, -1) + 1
        numbered.append(replace(rollout, id=f"{rollout.id}-{index}", sample_index=index))
    return numbered
