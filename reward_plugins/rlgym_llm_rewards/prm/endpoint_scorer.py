"""Score steps at a server: vLLM's pooling API, or a reward server of your own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from rlgym_llm.inject import prompt_text
from rlgym_llm_rewards.endpoint import Endpoint, EndpointError, run
from rlgym_llm_rewards.prm.scorer import Outcome, SteppedRollout
from rlgym_llm_rewards.returned_numbers import returned_numbers, returned_sequence
from rlgym_llm_rewards.transcript import conversation, defuse, fill, prompt_values

__all__ = ["API", "PoolingScorer", "StepsScorer"]

API = Literal["pooling", "steps"]

_MAX_REASON_CHARS = 200


class _EndpointScorer:
    """Sends rollouts in requests of ``batch_size``, ``concurrency`` of them side by side.

    Whatever a server says to several at once (no answer, a status, scores that cannot be read), one
    of them may be the cause: those without scores are asked for once more, each alone. But where
    nobody listens none of them is to blame, and all fail.
    """

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

    def _rows(self, reply: Any, count: int) -> list[Any]:
        """The reply's row for each of ``count`` rollouts, in order; raises where it has not one."""
        raise NotImplementedError

    def _scores(self, row: Any, item: SteppedRollout) -> list[float]:
        """The numbers of one row; raises where it has not one for each step."""
        raise NotImplementedError

    async def _score(self, items: Sequence[SteppedRollout]) -> list[Outcome]:
        turnstile = asyncio.Semaphore(self._concurrency)

        async def ask(batch: Sequence[SteppedRollout]) -> list[Outcome]:
            outcomes: list[Outcome]
            try:
                async with turnstile:
                    reply = await self._endpoint.post(self._payload(batch))
                outcomes = self._outcomes(reply, batch)
            except EndpointError as failure:
                outcomes = [failure] * len(batch)
                if not failure.was_reached:
                    return outcomes
            if len(batch) == 1:
                return outcomes
            lost = [n for n, outcome in enumerate(outcomes) if isinstance(outcome, Exception)]
            alone = await asyncio.gather(*(ask([batch[n]]) for n in lost))
            for n, [outcome] in zip(lost, alone, strict=True):
                outcomes[n] = outcome
            return outcomes

        size = self._batch_size
        batches = [items[start : start + size] for start in range(0, len(items), size)]
        return [outcome for found in await asyncio.gather(*map(ask, batches)) for outcome in found]

    def _outcomes(self, reply: Any, items: Sequence[SteppedRollout]) -> list[Outcome]:
        """What the reply says of each; raises EndpointError where it is no reply to all of them."""
        try:
            rows = self._rows(reply, len(items))
        except Exception as odd:  # whatever a server of anybody's may send
            raise self._out_of_shape(odd) from None
        return [self._outcome(row, item) for row, item in zip(rows, items, strict=True)]

    def _outcome(self, row: Any, item: SteppedRollout) -> Outcome:
        try:
            return self._scores(row, item)
        except EndpointError as failure:
            return failure
        except Exception as odd:
            return self._out_of_shape(odd)

    def _out_of_shape(self, odd: Exception) -> EndpointError:
        reason = f"{type(odd).__name__}: {odd}"[:_MAX_REASON_CHARS]
        return EndpointError(f"{self._endpoint.url} answered out of shape: {reason}")


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

    def _rows(self, reply: Any, count: int) -> list[Any]:
        by_index = {int(entry["index"]): entry["data"] for entry in reply["data"]}
        return [by_index[index] for index in range(count)]

    def _scores(self, row: Any, item: SteppedRollout) -> list[float]:
        steps = returned_sequence(row, "rows")
        if len(steps) != len(item.steps):
            raise EndpointError(
                f"{self._endpoint.url} gave {len(steps)} rows for {len(item.steps)} steps; it must "
                "pool with pooling_type STEP and the step_tag_id of the separator "
                f"{self._separator!r}"
            )
        return returned_numbers(map(self._of_class, steps))

    def _of_class(self, step: Any) -> Any:
        if not isinstance(step, list):
            return step
        return step[0] if len(step) == 1 else step[self._label]


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

    def _rows(self, reply: Any, count: int) -> list[Any]:
        scores = returned_sequence(reply["scores"], "scores")
        if len(scores) != count:
            raise ValueError(f"{len(scores)} lists of scores for {count} inputs")
        return scores

    def _scores(self, row: Any, item: SteppedRollout) -> list[float]:
        scores = returned_numbers(row)
        if len(scores) != len(item.steps):
            raise EndpointError(
                f"{self._endpoint.url} gave {len(scores)} scores for {len(item.steps)} steps"
            )
        return scores
