"""One completion from an OpenAI-compatible server: ids go out, whatever it tells comes back."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from rlgym_llm.config_rollout import ServerConfig
from rlgym_llm.errors import ConfigError, GeneratorError, UserError, describe
from rlgym_llm.generate import GenerateRequest, SamplingParams
from rlgym_llm.http_endpoint import Endpoint, EndpointError, EndpointTimeoutError, check_url, run
from rlgym_llm.types import FinishReason

__all__ = ["OpenAIServer", "Sampled"]

_SEEDS = 2**31
"""Seeds are folded below this: some servers keep 32 bits of them."""
_UNCUT: dict[str, Any] = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""Sent with every request: servers have defaults of their own, from the model's
``generation_config.json`` or built in, and would sample from another distribution unasked."""
_MAY_BE_REFUSED = frozenset(
    {"return_token_ids", "skip_special_tokens", "include_stop_str_in_output", *_UNCUT}
)
"""Beyond OpenAI's own fields; a server that knows none of them does nothing of what they undo."""
_ROUNDING = 1e-3
"""A certain token's log-prob may come out this far above 0 where probabilities are rounded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """What a server says of one completion."""

    text: str
    """With special tokens where the server can show them, and with the stop string that ended it
    where that is known; the closing token is shown by some servers and not by others."""
    finish_reason: FinishReason
    token_ids: tuple[int, ...] | None
    """As sampled, the closing one included; None where the server does not tell."""
    logprobs: tuple[float, ...] | None
    """One per token id, of the model's own distribution; None without ids or unless asked for."""
    stop_token_id: int | None
    """Which of the stop ids ended it, where the server tells."""
    stop_string: str | None
    """Which of the stop strings ended it, where that is known."""


class OpenAIServer:
    """``POST {base_url}/completions`` with token ids as the prompt, ``concurrency`` at a time.

    A request has ``timeout_s`` seconds from when its turn has come, for all its attempts and the
    waits between them. What may pass (429, 5xx, connections) is tried again. The key is in the
    environment variable ``api_key_env``, if it is set, and in no message.

    Raises UserError, in one line, for a missing address, a missing package, and where no model is
    named and the server has not exactly one.
    """

    def __init__(self, config: ServerConfig) -> None:
        if config.base_url is None:
            raise ConfigError(
                "--rollout.name openai needs a server; give --rollout.server.base_url, such as "
                "http://localhost:8000/v1"
            )
        check_url("--rollout.server.base_url", config.base_url)
        self._config = config
        self._base_url = config.base_url.rstrip("/")
        self._endpoint = self._open("completions")
        self._turnstiles: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            WeakKeyDictionary()
        )
        self._refused: frozenset[str] = frozenset()
        self.model = config.model or self._only_model()

    @property
    def url(self) -> str:
        """The address that completions are asked of."""
        return self._endpoint.url

    async def complete(
        self, request: GenerateRequest, *, stop_token_ids: Iterable[int], wants_logprobs: bool
    ) -> Sampled:
        """One completion; ``stop_token_ids`` are the model's own ends.

        Raises GeneratorError where this request failed, TimeoutError where its time ran out, and
        UserError where none will do better: the server refuses the key, or has no such model.
        """
        payload, may_be_refused = self._payload(request, sorted(set(stop_token_ids)))
        if wants_logprobs:
            payload["logprobs"] = 1  # 0 is none at all for some servers
        async with self._turnstile():
            try:
                async with asyncio.timeout(self._config.timeout_s):
                    reply = await self._post(payload, may_be_refused)
            except (TimeoutError, EndpointTimeoutError):
                raise TimeoutError(
                    f"{self.url} gave no completion in {self._config.timeout_s:g} s; raise "
                    "--rollout.server.timeout_s or lower --rollout.server.concurrency"
                ) from None
            except EndpointError as error:
                raise self._failure(error) from None
        try:
            return _sampled(reply, request)
        except (ArithmeticError, LookupError, TypeError, ValueError) as odd:
            reason = describe(odd)[:200]
            raise GeneratorError(f"{self.url} answered out of shape: {reason}") from None

    def close(self) -> None:
        """Lets the connections go; safe to call twice."""
        self._endpoint.close()

    async def aclose(self) -> None:
        """As `close`, and waits for those of the running loop."""
        await self._endpoint.aclose()

    def _open(self, path: str) -> Endpoint:
        variable = self._config.api_key_env
        return Endpoint(
            f"{self._base_url}/{path}",
            api_key_env=variable if os.environ.get(variable, "").strip() else None,
            retries=self._config.max_retries,
            request_timeout_s=self._config.timeout_s,
        )

    def _turnstile(self) -> asyncio.Semaphore:
        """That of the running loop: a semaphore belongs to one loop."""
        loop = asyncio.get_running_loop()
        return self._turnstiles.setdefault(loop, asyncio.Semaphore(self._config.concurrency))

    def _payload(
        self, request: GenerateRequest, stop_token_ids: list[int]
    ) -> tuple[dict[str, Any], frozenset[str]]:
        """The request's JSON, and which of its fields a server may do without."""
        params: SamplingParams = request.params
        payload = {
            "model": self.model,
            "prompt": list(request.prompt_token_ids),
            "max_tokens": params.max_new_tokens,
            "temperature": params.temperature,
            "top_p": params.top_p,
            "seed": request.seed % _SEEDS,
            "n": 1,
            **_UNCUT,
            "top_k": params.top_k,
            "stop_token_ids": sorted({*stop_token_ids, *params.stop_token_ids}),
            "return_token_ids": True,
            "skip_special_tokens": False,
        }
        if params.stop:
            payload |= {"stop": list(params.stop), "include_stop_str_in_output": True}
        may_be_refused = _MAY_BE_REFUSED
        if params.top_k != -1:
            may_be_refused -= {"top_k"}
        if not params.stop_token_ids:  # the server knows the model's own ends
            may_be_refused |= {"stop_token_ids"}
        return payload, may_be_refused

    async def _post(self, payload: dict[str, Any], may_be_refused: frozenset[str]) -> Any:
        """The reply, without those optional fields that the server refuses by name."""
        refused = self._refused & may_be_refused
        while True:
            try:
                reply = await self._endpoint.post(
                    {name: value for name, value in payload.items() if name not in refused}
                )
            except EndpointError as error:
                left = may_be_refused - refused if error.status in (400, 422) else ()
                named = {name for name in left if name in str(error)}
                if not named:
                    raise
                refused |= named
            else:
                self._refused |= refused
                return reply

    def _failure(self, error: EndpointError) -> Exception:
        if error.status in (401, 403):
            return UserError(
                f"{error}; the key is read from the environment variable "
                f"{self._config.api_key_env} (--rollout.server.api_key_env)"
            )
        if error.status == 404:
            return UserError(
                f"{error}; look at --rollout.server.base_url (up to and with the version) and "
                f"--rollout.server.model, now {self.model!r}"
            )
        return GeneratorError(str(error))

    def _only_model(self) -> str:
        models = self._open("models")
        way_out = "name the model: --rollout.server.model NAME"
        try:
            reply = run(models.get())
            names = [str(entry["id"]) for entry in reply["data"]]
        except EndpointError as error:
            raise UserError(f"{error}; look at --rollout.server.base_url, or {way_out}") from None
        except (LookupError, TypeError):
            raise UserError(f"{models.url} does not list models; {way_out}") from None
        finally:
            models.close()
        if len(names) != 1:
            listed = ", ".join(names[:8]) or "none"
            raise UserError(f"{models.url} lists {len(names)} models ({listed}); {way_out}")
        return names[0]


def _sampled(reply: Any, request: GenerateRequest) -> Sampled:
    """Reads a reply; raises ValueError, LookupError or TypeError where it is out of shape."""
    [choice] = reply["choices"]
    text, finish_reason = choice["text"], choice["finish_reason"]
    if not isinstance(text, str):
        raise ValueError("its text is no string")
    if finish_reason not in (FinishReason.STOP, FinishReason.LENGTH):
        raise ValueError(f"it ended with {finish_reason!r}, neither 'stop' nor 'length'")
    told = choice.get("prompt_token_ids")
    if told is not None and tuple(told) != request.prompt_token_ids:
        raise ValueError("it sampled after another prompt than it was given")
    token_ids, logprobs = choice.get("token_ids"), None
    if token_ids is not None:
        token_ids = _ids(token_ids, request.params.max_new_tokens)
        if choice.get("logprobs") is not None:
            logprobs = _logprobs(choice["logprobs"]["token_logprobs"], len(token_ids))
    stop = choice.get("stop_reason")
    stop_string = None
    if finish_reason == FinishReason.STOP:
        stop_string = _stop_string(text, stop, request.params.stop)
    if stop_string is not None and stop_string not in text:
        text += stop_string  # it was sampled, and left out
    return Sampled(
        text=text,
        finish_reason=FinishReason(finish_reason),
        token_ids=token_ids,
        logprobs=logprobs,
        stop_token_id=stop if type(stop) is int else None,
        stop_string=stop_string,
    )


def _stop_string(text: str, told: Any, wanted: tuple[str, ...]) -> str | None:
    """The stop string that ended a completion: as the server tells, else as its text shows."""
    return next((one for one in wanted if one == told), None) or next(
        (one for one in wanted if one in text), None
    )


def _ids(values: Any, longest: int) -> tuple[int, ...]:
    if not all(type(value) is int and value >= 0 for value in values):
        raise ValueError("a token id is no whole number of at least 0")
    if len(values) > longest:
        raise ValueError(f"{len(values)} token ids, and {longest} were asked for")
    return tuple(values)


def _logprobs(values: Any, count: int) -> tuple[float, ...]:
    if len(values) != count:
        raise ValueError(f"{len(values)} log-probs for {count} token ids")
    logprobs = tuple(map(float, values))
    if not all(map(math.isfinite, logprobs)):
        raise ValueError("a log-prob is not finite")
    if max(logprobs, default=0.0) > _ROUNDING:
        raise ValueError(f"a log-prob is above 0: {max(logprobs)}")
    return logprobs
