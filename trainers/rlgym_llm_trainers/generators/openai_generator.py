"""Sample from any OpenAI-compatible server, for evaluation: its weights are its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.errors import GeneratorError, WeightSyncError
from rlgym_llm.generate import GenerateRequest
from rlgym_llm.http_endpoint import run
from rlgym_llm.types import Completion, FinishReason
from rlgym_llm_trainers.generators.openai_server import OpenAIServer, Sampled
from rlgym_llm_trainers.models.chat import ChatEncoder
from rlgym_llm_trainers.models.detokenize import special_ids
from rlgym_llm_trainers.models.token_side import ModelText

__all__ = ["OpenAIGenerator"]

_LOG = logging.getLogger(__name__)


class OpenAIGenerator(ChatEncoder):
    """A `Generator` and an `AsyncGenerator` over a server that runs the model of the tokenizer.

    Prompts go out as token ids, and a second turn's begin with the ids that were sampled in the
    first, where the server returns them (vLLM does). Where it returns text alone, that is encoded
    again, which may differ from what was sampled; this is said once.

    Log-probs are those of the model's own distribution, which is the sampling distribution at
    temperature 1 without top-p and top-k only; elsewhere, and for a server that does not return
    token ids, ``Completion.logprobs`` is None. A vLLM server that was started with
    ``--logprobs-mode processed_logprobs`` would know better, but does not say so.

    With the prompt ids (5, 8) and the sampled ids (7, 2) the next turn asks with (5, 8, 7, 2) and
    the ids of the reply. Of ``generate`` the first failure is raised; ``sample`` fails alone.
    """

    has_own_weights: bool = True

    def __init__(self, model: ModelText, server: OpenAIServer) -> None:
        super().__init__(model)
        self._model = model
        self._server = server
        self._special_ids = special_ids(model.tokenizer)
        self._said: set[str] = set()

    @classmethod
    def from_config(cls, model: ModelText, config: TrainConfig) -> OpenAIGenerator:
        """The generator that an evaluation asks for; raises UserError where there is no server."""
        return cls(model, OpenAIServer(config.rollout.server))

    @property
    def policy_version(self) -> int:
        """Always 0: nothing is learned."""
        return 0

    def sync(self, version: int) -> dict[str, float]:
        """Takes version 0, which the server samples from; raises WeightSyncError for any other."""
        if version != 0:
            raise WeightSyncError(
                f"the server {self._server.url} cannot be given the weights of version {version}: "
                "--rollout.name openai is for evaluation; train with hf or vllm"
            )
        return {}

    async def sample(self, request: GenerateRequest) -> Completion:
        """The completion of one request.

        Raises GeneratorError or TimeoutError where this one failed, UserError where all will.
        """
        params = request.params
        sampled = await self._server.complete(
            request,
            stop_token_ids=self._model.eos_token_ids,
            wants_logprobs=params.temperature == 1 and params.top_p == 1 and params.top_k == -1,
        )
        return self._completion(sampled, has_stop=bool(params.stop))

    def generate(self, requests: Sequence[GenerateRequest]) -> list[Completion]:
        """One completion per request, in order, asked for side by side. Raises as `sample` does."""
        return run(self._sample_all(requests))

    def close(self) -> None:
        """Lets the connections go; safe to call twice."""
        self._server.close()

    async def aclose(self) -> None:
        """Lets the connections go; safe to call twice."""
        await self._server.aclose()

    async def _sample_all(self, requests: Sequence[GenerateRequest]) -> list[Completion]:
        tasks = [asyncio.create_task(self.sample(request)) for request in requests]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    def _completion(self, sampled: Sampled, *, has_stop: bool) -> Completion:
        ids = sampled.token_ids
        self._check_ids(ids or ())
        if ids is None:
            ids = self._encoded(sampled, has_stop=has_stop)
        is_closed = bool(ids) and ids[-1] in self._model.eos_token_ids
        body = list(ids[:-1] if is_closed else ids)
        raw = sampled.text
        if is_closed:  # a server that shows stop strings may show the closing token too
            raw = raw.removesuffix(self._model.tokenizer.decode(list(ids[-1:])))
        if sampled.token_ids is not None:
            shown, raw = raw, self._model.tokenizer.decode(body, skip_special_tokens=False)
            if is_closed or sampled.stop_token_id is None:  # else it may show one token less
                # Of the token that completes a stop string it shows nothing behind the string.
                self._compare(raw, shown, is_cut=sampled.stop_string is not None)
        text = raw
        if not self._special_ids.isdisjoint(body):
            text = self._model.tokenizer.decode(body, skip_special_tokens=True)
        return Completion(
            text=text,
            raw_text=raw if raw != text else None,
            token_ids=ids,
            logprobs=sampled.logprobs,
            version_spans=((0, len(ids), self.policy_version),),
            finish_reason=sampled.finish_reason,
        )

    def _check_ids(self, ids: Sequence[int]) -> None:
        """Raises GeneratorError for an id that the model does not have: none could train on it."""
        known, largest = self._model.num_ids, max(ids, default=0)
        if known is not None and largest >= known:
            raise GeneratorError(
                f"{self._server.url} sampled the id {largest}, and --model {self._model.path} has "
                f"ids up to {known - 1}; they are not the same model"
            )

    def _encoded(self, sampled: Sampled, *, has_stop: bool) -> tuple[int, ...]:
        """The text's ids, and the end that the server must have sampled and does not show."""
        self._say_once(
            f"{self._server.url} returns no token ids: its text is encoded again, which may differ "
            "from what was sampled, and there are no log-probs"
        )
        tokenizer, ends = self._model.tokenizer, self._model.eos_token_ids
        ids = tuple(tokenizer(sampled.text, add_special_tokens=False)["input_ids"])
        if sampled.finish_reason is not FinishReason.STOP or (ids and ids[-1] in ends):
            return ids
        if sampled.stop_string is not None:
            return ids
        if sampled.stop_token_id is not None:
            return (*ids, sampled.stop_token_id)
        if has_stop:
            self._say_once(
                f"{self._server.url} does not tell whether a stop string ended a completion, and "
                "leaves it out of the text: rewards and environments do not see it"
            )
        likeliest = sorted(ends, key=lambda end: (end != tokenizer.eos_token_id, end))
        return (*ids, *likeliest[:1])

    def _compare(self, raw: str, shown: str, *, is_cut: bool) -> None:
        """Says so where the server reads its ids otherwise than the tokenizer does."""
        ours, theirs = (
            "".join(text.replace("\N{REPLACEMENT CHARACTER}", "").split()) for text in (raw, shown)
        )
        if (ours[: len(theirs)] if is_cut else ours) != theirs:
            self._say_once(
                f"{self._server.url} reads the ids that it sampled otherwise than the tokenizer of "
                f"--model {self._model.path} does; is it the same model?"
            )

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            _LOG.warning("%s", text)
