"""Score steps at a server: vLLM's pooling API, or a reward server of your own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from rlgym_llm.inject import prompt_text
from rlgym_llm_rewards.endpoint import Endpoint, EndpointError, run
from rlgym_llm_rewards.prm.scorer import Outcome, SteppedRollout
from rlgym_llm_rewards.transcript import conversation, defuse, fill, prompt_values

__all__ = ["API", "PoolingScorer", "StepsScorer"]

API = Literal["pooling", "steps"]

_TOO_MUCH = frozenset({400, 413, 422})
"""What a server says to a request of which one row may be at fault."""


class _EndpointScorer:
    """Sends rollouts in requests of ``batch_size``, ``concurrency`` of them side by side."""

    def __init__(self, endpoint: Endpoint, *, batch_size: int, concurrency: int) -> None:
        self._endpoint = endpoint
        self._batch_size = batch_size
        self._concurrency = concurrency

    def __call__(self, items: Sequence[SteppedRollout], /) -> list[Outcome]:
        """One outcome per rollout, in order."""
        return run(self._score(items))

    def close(self) -> None:
        """Lets the connections go."""
        self._endpoint.close()

    def _payload(self, items: Sequence[SteppedRollout]) -> Any:
        raise NotImplementedError

    def _read(self, reply: Any, items: Sequence[SteppedRollout]) -> list[Outcome]:
        raise NotImplementedError

    async def _score(self, items: Sequence[SteppedRollout]) -> list[Outcome]:
        turnstile = asyncio.Semaphore(self._concurrency)

        async def ask(batch: Sequence[SteppedRollout]) -> list[Outcome]:
            try:
                async with turnstile:
                    reply = await self._endpoint.post(self._payload(batch))
                return self._read(reply, batch)
            except EndpointError as failure:
                if len(batch) == 1 or failure.status not in _TOO_MUCH:
                    return [failure] * len(batch)
            except (KeyError, TypeError, ValueError, IndexError, AttributeError) as odd:
                problem = EndpointError(f"{self._endpoint.url} answered out of shape: {odd!r}")
                return [problem] * len(batch)
            alone = await asyncio.gather(*(ask([item]) for item in batch))
            return [outcome for [outcome] in alone]

        size = self._batch_size
        batches = [items[start : start + size] for start in range(0, len(items), size)]
        return [outcome for found in await asyncio.gather(*map(ask, batches)) for outcome in found]


class PoolingScorer(_EndpointScorer):
    """vLLM's ``/pooling`` with the task ``token_classify``, for models with a STEP pooler.

    The server answers with one row of class probabilities per step tag. Without ``template`` a
    rollout goes out as messages, one a request, and the server applies its chat template;
    with one, ``batch_size`` texts go out together.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        model: str | None,
        separator: str,
        template: str | None,
        label: int,
        batch_size: int,
        concurrency: int,
    ) -> None:
        size = 1 if template is None else batch_size
        super().__init__(endpoint, batch_size=size, concurrency=concurrency)
        self._model = model
        self._separator = separator
        self._template = template
        self._label = label

    def _payload(self, items: Sequence[SteppedRollout]) -> Any:
        payload: dict[str, Any] = {"task": "token_classify", "encoding_format": "float"}
        if self._model is not None:
            payload["model"] = self._model
        core = self._separator.strip()
        markers = [core] if core else []
        said = [item.contents(separator=self._separator, markers=markers) for item in items]
        if self._template is None:
            [item], [contents] = items, said
            messages = conversation(item.rollout, contents, markers=markers)
            return {**payload, "messages": messages}
        texts = []
        for item, contents in zip(items, said, strict=True):
            values = prompt_values(item.rollout, markers=markers)
            texts.append(fill(self._template, {**values, "completion": "\n".join(contents)}))
        return {**payload, "input": texts}

    def _read(self, reply: Any, items: Sequence[SteppedRollout]) -> list[Outcome]:
        by_index = {int(entry["index"]): entry["data"] for entry in reply["data"]}
        return [self._outcome(by_index[index], item) for index, item in enumerate(items)]

    def _outcome(self, rows: Sequence[Any], item: SteppedRollout) -> Outcome:
        if len(rows) != len(item.steps):
            return EndpointError(
                f"{self._endpoint.url} gave {len(rows)} rows for {len(item.steps)} steps; it must "
                "pool with pooling_type STEP and the step_tag_id of the separator "
                f"{self._separator!r}"
            )
        return [float(self._of_class(row)) for row in rows]

    def _of_class(self, row: Any) -> Any:
        if not isinstance(row, Sequence):
            return row
        return row[0] if len(row) == 1 else row[self._label]


class StepsScorer(_EndpointScorer):
    """A reward server of your own.

    It takes ``{"inputs": [{"prompt": str, "steps": [str, ...]}, ...]}`` (``model`` too, where it
    is given) and answers ``{"scores": [[float, ...], ...]}``, one number per step.
    """

    def __init__(
        self, endpoint: Endpoint, *, model: str | None, batch_size: int, concurrency: int
    ) -> None:
        super().__init__(endpoint, batch_size=batch_size, concurrency=concurrency)
        self._extra: Mapping[str, str] = {} if model is None else {"model": model}

    def _payload(self, items: Sequence[SteppedRollout]) -> Any:
        inputs = [
            {
                "prompt": defuse(prompt_text(item.rollout.task)),
                "steps": [defuse(step.text) for step in item.steps],
            }
            for item in items
        ]
        return {**self._extra, "inputs": inputs}

    def _read(self, reply: Any, items: Sequence[SteppedRollout]) -> list[Outcome]:
        scores = reply["scores"]
        if len(scores) != len(items):
            raise ValueError(f"{len(scores)} lists of scores for {len(items)} inputs")
        return [[float(score) for score in row] for row in scores]
