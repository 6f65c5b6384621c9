"""Reward ``judge``: the grade that a language model behind an OpenAI-compatible address gives."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from rlgym_llm.errors import UserError
from rlgym_llm.rewards import Backend, RawScore, Reward, RewardContext
from rlgym_llm.scores import Score, ScoreStatus
from rlgym_llm.types import Rollout
from rlgym_llm_rewards.endpoint import (
    Endpoint,
    EndpointError,
    EndpointTimeoutError,
    check_patience,
    check_url,
    run,
)
from rlgym_llm_rewards.judge.criteria import Criteria, ReplyForm, read_criteria
from rlgym_llm_rewards.judge.extra_body import check_extra_body
from rlgym_llm_rewards.judge.replies import Pending, Replies, reply_key
from rlgym_llm_rewards.judge.verdict import (
    Combine,
    VerdictError,
    combine_votes,
    read_reply,
    read_verdict,
)

__all__ = ["Judge"]

_Vote = tuple[float, str] | Exception
"""A grade with the reply that it was read from, or why there is none."""

_MAX_REPLY_CHARS = 2000


@dataclass(frozen=True, kw_only=True)
class Judge(Reward):
    """``range_low + (g - low) / (high - low) * (range_high - range_low)`` for a judge's grade g.

    The judge is any model behind ``POST {base_url}/chat/completions`` (OpenAI's API, vLLM, SGLang,
    llama.cpp); grading by a model with criteria is Zheng et al. 2023, arXiv 2306.05685. With the
    scale [0, 10] and the range [0, 1] a grade of 7 is 0.7; of the votes 6, 7 and 9 the median is
    7, so 0.7 too, and the mean 7.33, so 0.733.

    The completion is put between lines that it cannot forge, and the verdict is read from the last
    line of the reply alone (`read_verdict`). A refusal, a reply without a verdict, a grade off the
    scale, and a server that fails to the last attempt are errors of that rollout, never a 0. Of
    several votes more than half must come in.

    ``info`` holds ``votes`` (on the judge's scale), ``reply`` (the first) and, where votes failed,
    ``failed``.
    """

    name = "judge"
    needs = ("prompt",)
    backend: Backend = "async"

    base_url: str
    """Address up to and with the version: ``http://localhost:8000/v1``."""
    model: str
    """The judge's name at that address."""
    criteria: str
    """What a good answer is: a text, or a file (``.txt``, ``.md``). It may name ``{prompt}``,
    ``{completion}`` and ``{answer}``."""
    scale: tuple[float, float] = (0.0, 10.0)
    """Worst and best grade, as the judge is told."""
    range: tuple[float, float] = (0.0, 1.0)
    """What those two grades become."""
    votes: int = 1
    """Independent requests for each rollout."""
    combine: Combine = "median"
    """How votes become one grade: median, mean or majority."""
    temperature: float = 0.0
    """Of the judge; several votes need more than 0."""
    max_tokens: int = 1024
    """Longest reply; one that is cut is an error."""
    seed: int | None = None
    """Sent with each request, plus the vote's number; None sends none."""
    reply: ReplyForm = "line"
    """``line`` ends with ``Score: N``; ``json`` asks the server for a JSON object."""
    pattern: str | None = None
    """Regular expression of which the last match's first group is the grade, instead of either."""
    extra_body: Mapping[str, Any] | None = None
    """Further fields of the request; null leaves ``temperature`` and ``max_tokens`` to the
    server."""
    api_key_env: str | None = None
    """Environment variable with the key; the key itself stands in no configuration."""
    retries: int = 4
    """Further attempts where one fails in a way that may pass (429, 5xx, connections, time)."""
    request_timeout_s: float = 60.0
    """Seconds that one attempt may take."""
    timeout_s: float | None = None
    """Seconds for one rollout, all votes and attempts together; None for what they add up to."""
    backoff_s: float = 0.5
    """Longest wait after the first failed attempt, in seconds; doubled after each."""
    concurrency: int = 32
    """Rollouts judged side by side."""
    cache: str | None = None
    """SQLite file that keeps verdicts, so that the same question is asked once: what another is
    asking is waited for, failures included, and only verdicts are kept. None for none."""

    def __post_init__(self) -> None:
        check_url("reward 'judge': base_url", self.base_url)
        for what, (low, high) in (("scale", self.scale), ("range", self.range)):
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise UserError(f"reward 'judge': {what} [{low:g}, {high:g}] does not ascend")
        if min(self.votes, self.concurrency, self.max_tokens) < 1:
            raise UserError("reward 'judge': votes, concurrency and max_tokens are at least 1")
        check_patience(
            self.name,
            retries=self.retries,
            request_timeout_s=self.request_timeout_s,
            backoff_s=self.backoff_s,
        )
        if self.timeout_s is not None and not self.timeout_s > 0:
            raise UserError(f"reward 'judge': timeout_s is a time above 0, not {self.timeout_s:g}")
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise UserError(f"reward 'judge': temperature is 0 or more, not {self.temperature:g}")
        if self.pattern is not None and self.reply == "json":
            raise UserError(
                "reward 'judge': pattern reads a text and reply: json asks for an object; "
                "give one of them"
            )
        check_extra_body(self.extra_body or {})
        if self.votes > 1 and self.temperature <= 0:
            raise UserError(
                f"reward 'judge': {self.votes} votes at temperature 0 ask the same thing "
                f"{self.votes} times; give a temperature"
            )
        text = read_criteria(self.criteria)
        criteria = Criteria(text=text, scale=self.scale, reply=self.reply)
        if criteria.needs_answer:
            object.__setattr__(self, "needs", ("prompt", "answer"))
        object.__setattr__(self, "_criteria", criteria)
        object.__setattr__(self, "_pattern", _compiled(self.pattern))

    def __reduce__(self) -> tuple[Any, ...]:
        # Options only: a copy makes its own client when it is set up.
        return _rebuild, (type(self), {f.name: getattr(self, f.name) for f in fields(self)})

    def setup(self, ctx: RewardContext) -> None:
        """Reads the key and opens the cache."""
        endpoint = Endpoint(
            _chat_url(self.base_url),
            api_key_env=self.api_key_env,
            retries=self.retries,
            request_timeout_s=self.request_timeout_s,
            backoff_s=self.backoff_s,
        )
        object.__setattr__(self, "_endpoint", endpoint)
        object.__setattr__(self, "_replies", Replies(self.cache) if self.cache else None)
        object.__setattr__(self, "_pending", Pending())

    def close(self) -> None:
        """Lets connections and cache go."""
        for held in ("_endpoint", "_replies"):
            if (thing := getattr(self, held, None)) is not None:
                thing.close()
            object.__setattr__(self, held, None)

    def score(self, rollout: Rollout, ctx: RewardContext) -> RawScore:
        """The grade of one rollout, for callers that cannot await."""
        return run(self.ascore(rollout, ctx))

    def score_batch(self, rollouts: Sequence[Rollout], ctx: RewardContext) -> Sequence[RawScore]:
        """The grades of many, ``concurrency`` of them side by side."""

        async def all_of_them() -> list[RawScore]:
            turnstile = asyncio.Semaphore(self.concurrency)

            async def one(rollout: Rollout) -> RawScore:
                async with turnstile:
                    return await self.ascore(rollout, ctx)

            return await asyncio.gather(*map(one, rollouts))

        return run(all_of_them())

    async def ascore(self, rollout: Rollout, ctx: RewardContext) -> RawScore:
        """The grade of one rollout."""
        criteria: Criteria = self._criteria  # type: ignore[attr-defined]
        payload = self._payload(criteria.messages(rollout))
        try:
            async with asyncio.timeout(self.timeout_s):
                outcomes = await asyncio.gather(
                    *(self._vote(payload, number) for number in range(self.votes))
                )
        except TimeoutError:
            error = f"the judge took more than {self.timeout_s:g} s"
            return self._failed(error, ScoreStatus.TIMEOUT)
        return self._score(outcomes)

    def _score(self, outcomes: Sequence[_Vote]) -> Score:
        cast = [outcome for outcome in outcomes if not isinstance(outcome, Exception)]
        lost = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
        if 2 * len(cast) <= len(outcomes):
            timed_out = isinstance(lost[0], EndpointTimeoutError)
            count = f"{len(lost)} of {len(outcomes)} votes failed: " if len(outcomes) > 1 else ""
            status = ScoreStatus.TIMEOUT if timed_out else ScoreStatus.ERROR
            return self._failed(f"{count}{lost[0]}", status)
        grade = combine_votes([vote for vote, _ in cast], self.combine)
        share = (grade - self.scale[0]) / (self.scale[1] - self.scale[0])
        low, high = self.range
        info: dict[str, Any] = {
            "votes": [vote for vote, _ in cast],
            "reply": cast[0][1][-_MAX_REPLY_CHARS:],
        }
        if lost:
            info["failed"] = [str(failure) for failure in lost]
        return Score(name=self.name, value=low + share * (high - low), info=info)

    async def _vote(self, payload: Mapping[str, Any], number: int) -> _Vote:
        """One grade; where replies are kept, the same question is asked once at a time too."""
        endpoint: Endpoint | None = getattr(self, "_endpoint", None)
        if endpoint is None:
            raise RuntimeError("reward 'judge' is not set up; call setup before it scores")
        if self.seed is not None:
            payload = {**payload, "seed": self.seed + number}
        replies: Replies | None = self._replies  # type: ignore[attr-defined]
        if replies is None:
            return await self._asked(endpoint, payload)
        pending: Pending[_Vote] = self._pending  # type: ignore[attr-defined]
        key = reply_key(endpoint.url, payload, number)

        async def ask() -> _Vote:
            if (known := await asyncio.to_thread(replies.get, key)) is not None:
                return self._read(known)
            vote = await self._asked(endpoint, payload)
            if not isinstance(vote, Exception):
                await asyncio.to_thread(replies.put, key, vote[1])
            return vote

        return await pending.once(key, ask)

    async def _asked(self, endpoint: Endpoint, payload: Mapping[str, Any]) -> _Vote:
        try:
            return self._read(read_reply(await endpoint.post(payload)))
        except (EndpointError, VerdictError) as failure:
            return failure

    def _read(self, reply: str) -> _Vote:
        pattern: re.Pattern[str] | None = self._pattern  # type: ignore[attr-defined]
        try:
            return read_verdict(reply, self.scale, pattern=pattern), reply
        except VerdictError as failure:
            return failure

    def _payload(self, messages: Sequence[Mapping[str, str]]) -> dict[str, Any]:
        payload: dict[str, Any] = {
            "model": self.model,
            "messages": messages,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
        }
        if self.reply == "json":
            payload["response_format"] = {"type": "json_object"}
        return {**payload, **(self.extra_body or {})}

    def _failed(self, error: str, status: ScoreStatus = ScoreStatus.ERROR) -> Score:
        return Score(name=self.name, value=None, status=status, error=error)


def _rebuild(cls: type[Judge], options: Mapping[str, Any]) -> Judge:
    return cls(**options)


def _chat_url(base_url: str) -> str:
    base = base_url.rstrip("/")
    return base if base.endswith("/chat/completions") else f"{base}/chat/completions"


def _compiled(pattern: str | None) -> re.Pattern[str] | None:
    if pattern is None:
        return None
    try:
        compiled = re.compile(pattern)
    except re.error as wrong:
        raise UserError(f"reward 'judge': pattern {pattern!r}: {wrong}") from None
    if compiled.groups < 1:
        raise UserError(f"reward 'judge': pattern {pattern!r} has no group to read the grade from")
    return compiled
