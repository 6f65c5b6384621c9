"""Reward ``prm``: a process reward, one score per step of the reasoning."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from rlgym_llm.errors import UserError
from rlgym_llm.rewards import Granularity, RawScore, Reward, RewardContext
from rlgym_llm.scores import Score, ScoreStatus, StepScore
from rlgym_llm.types import Rollout
from rlgym_llm_rewards.endpoint import Endpoint, EndpointTimeoutError, check_patience, check_url
from rlgym_llm_rewards.pretrained import DType, check_template, load_pretrained
from rlgym_llm_rewards.prm.endpoint_scorer import API, PoolingScorer, StepsScorer
from rlgym_llm_rewards.prm.model_scorer import CausalScorer, TokenScorer
from rlgym_llm_rewards.prm.reduce import (
    Reduce,
    Transform,
    reduce_steps,
    reduced_range,
    transform_steps,
)
from rlgym_llm_rewards.prm.scorer import CallableScorer, Outcome, SteppedRollout, StepScorer
from rlgym_llm_rewards.prm.scorer_options import check_scorer_options
from rlgym_llm_rewards.prm.splitters import Split, Step, check_split, split_rollout
from rlgym_llm_rewards.user_function import check_arguments, load_function

__all__ = ["PRM"]


@dataclass(frozen=True, kw_only=True)
class PRM(Reward):
    r"""``reduce(transform(s_1, ..., s_n))`` over the scores of a completion's steps.

    The steps come from ``split``, each with the characters of ``rollout.text`` that it covers (no
    step reaches over a turn's end). Their scores come from exactly one of

    - ``function``: ``"file.py:name"`` or ``"module:name"``, called ``(prompt, steps) -> [float]``;
    - ``model``: a transformers model. ``head: token`` reads the probability of class ``label`` at
      ``separator``, which is written behind each step (Qwen2.5-Math-PRM, Zhang et al. 2025, arXiv
      2501.07301, and models of TRL's trainer); ``head: causal`` reads
      ``p(good) / (p(good) + p(bad))`` there (Math-Shepherd, Wang et al. 2023, arXiv 2312.08935:
      ``separator: " ки\n"``, ``template: "{prompt} {completion}"``);
    - ``url``: vLLM's ``/pooling`` of a model with a STEP pooler, or ``api: steps``, a server of
      your own, of which `StepsScorer` tells the format.

    ``transform`` and ``reduce`` are those of `transform_steps` and `reduce_steps`, with examples
    in numbers. Steps of 0.5, 0.25 and 1.0 have the value 0.25 under ``min``, 1.0 under ``last``,
    0.5833 under ``mean``, 0.125 under ``prod`` and 1.75 under ``sum``.

    ``Score.steps`` are the shares of the steps in the value, which add up to it; with
    ``potential`` they are what ``transform`` made of the scores, for the composition's placement
    ``potential`` (``gamma * Phi(s') - Phi(s)``, Ng, Harada and Russell 1999), and ``steps_are``
    says so. ``info["step_scores"]`` holds the scores as they came.

    A score that is NaN or outside ``step_range``, a wrong number of scores, a text too long for the
    model and a server that fails are errors of that rollout alone.
    """

    name = "prm"
    needs = ("prompt",)
    granularity: Granularity = "step"

    function: str | None = None
    """``"file.py:name"`` or ``"module:name"`` of a function ``(prompt, steps) -> [float]``."""
    model: str | None = None
    """Folder or hub id of a transformers model; beside ``url``, the model's name at the server."""
    url: str | None = None
    """Address of a server, path included: ``http://localhost:8000/pooling``."""
    split: Split = "newline"
    """How steps are told apart: newline, blank_line, sentence, step, regex or separator."""
    pattern: str | None = None
    """What parts two steps under ``split`` regex and separator."""
    reduce: Reduce | None = None
    """How the steps become one value: last, mean, min, prod or sum; None is min, and last for
    potentials."""
    transform: Transform = "none"
    """What a step counts for: none, clip, delta or clip_delta."""
    eta: float = 0.0
    """Bound above which ``clip`` counts nothing."""
    potential: bool = False
    """Give potentials instead of shares, for the placement ``potential``; the value is the last."""
    step_range: tuple[float, float] = (0.0, 1.0)
    """Between which bounds the scorer's scores lie; anything else is an error."""
    empty: float | None = 0.0
    """Value of a completion without any step; None for "does not apply"."""
    head: Literal["token", "causal"] = "token"
    """What the model is: a token classifier, or a causal model that says ``good`` or ``bad``."""
    separator: str = "<extra_0>"
    """Written behind each step; the token of its last visible character is where it is judged."""
    label: int = 1
    """The class that means "right"."""
    good: str = "+"
    """One token of the causal model that means "right"."""
    bad: str = "-"
    """One token of the causal model that means "wrong"."""
    template: str | None = None
    """Text with ``{prompt}`` and ``{completion}`` in place of the chat template."""
    api: API = "pooling"
    """What is spoken at ``url``: vLLM's pooling, or ``steps``."""
    api_key_env: str | None = None
    """Environment variable with the key for ``url``."""
    retries: int = 4
    """Further attempts at ``url`` where one fails in a way that may pass."""
    request_timeout_s: float = 60.0
    """Seconds that one attempt may take."""
    backoff_s: float = 0.5
    """Longest wait after the first failed attempt, in seconds; doubled after each."""
    batch_size: int = 8
    """Rollouts in one pass of the model, or in one request."""
    concurrency: int = 8
    """Requests side by side."""
    max_length: int | None = None
    """Most tokens; by default what the model and its tokenizer say. Longer texts are errors."""
    dtype: DType = "auto"
    """``auto`` is the checkpoint's."""
    device: str = "auto"
    """``auto`` is CUDA where there is one."""
    trust_remote_code: bool = False
    """Let the model's folder bring Python code that runs here, as Qwen2.5-Math-PRM's does."""

    def __post_init__(self) -> None:
        self._check_scorer()
        check_scorer_options(self)
        check_split(self.split, self.pattern)
        check_template(self.name, self.template)
        check_patience(
            self.name,
            retries=self.retries,
            request_timeout_s=self.request_timeout_s,
            backoff_s=self.backoff_s,
        )
        max_length = 1 if self.max_length is None else self.max_length
        if min(self.batch_size, self.concurrency, max_length) < 1:
            raise UserError("reward 'prm': batch_size, concurrency and max_length are at least 1")
        if self.label < 0:
            raise UserError(f"reward 'prm': label is a class's number from 0, not {self.label}")
        if self.potential and (self._reduce != "last" or "delta" in self.transform):
            raise UserError(
                "reward 'prm': potentials are reduced by last and take no delta, for their "
                "placement takes the differences itself"
            )
        if not self.separator:
            raise UserError("reward 'prm': the separator is empty; a step is judged at its token")
        low, high = reduced_range(*self.step_range, self._reduce, self.transform, self.eta)
        if self.empty is not None:
            low, high = min(low, self.empty), max(high, self.empty)
        object.__setattr__(self, "range", (low, high))
        object.__setattr__(self, "steps_are", "potentials" if self.potential else "shares")
        if self.function is not None:  # what is wrong with it is said now, not at the first step
            check_arguments(self.function, load_function(self.function), "prompt", "steps")

    def __getstate__(self) -> Mapping[str, Any]:
        # Options only: a copy makes its own scorer when it is set up.
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**own, "range": self.range, "steps_are": self.steps_are}

    def setup(self, ctx: RewardContext) -> None:
        """Loads the function or the model, or makes the client."""
        object.__setattr__(self, "_scorer", self._make_scorer())

    def close(self) -> None:
        """Lets the scorer go."""
        scorer: StepScorer | None = getattr(self, "_scorer", None)
        if scorer is not None:
            scorer.close()
        object.__setattr__(self, "_scorer", None)

    def score(self, rollout: Rollout, ctx: RewardContext) -> RawScore:
        """The value of one rollout."""
        return self.score_batch([rollout], ctx)[0]

    def score_batch(self, rollouts: Sequence[Rollout], ctx: RewardContext) -> list[RawScore]:
        """The values of the rollouts; their steps are scored together."""
        scorer: StepScorer | None = getattr(self, "_scorer", None)
        if scorer is None:
            raise RuntimeError("reward 'prm' is not set up; call setup before it scores")
        split = [tuple(split_rollout(r, self.split, self.pattern)) for r in rollouts]
        items = [
            SteppedRollout(rollout=rollout, steps=steps)
            for rollout, steps in zip(rollouts, split, strict=True)
            if steps
        ]
        outcomes = iter(scorer(items) if items else [])
        return [self._score(steps, next(outcomes)) if steps else self.empty for steps in split]

    def _score(self, steps: Sequence[Step], outcome: Outcome) -> Score:
        if isinstance(outcome, EndpointTimeoutError):
            return self._failed(str(outcome), ScoreStatus.TIMEOUT)
        if isinstance(outcome, Exception):
            return self._failed(f"{type(outcome).__name__}: {outcome}")
        if len(outcome) != len(steps):
            return self._failed(f"the scorer gave {len(outcome)} scores for {len(steps)} steps")
        low, high = self.step_range
        for number, score in enumerate(outcome, start=1):
            if not low <= score <= high:  # NaN is in no range
                return self._failed(
                    f"step {number} of {len(steps)} scored {score}, outside step_range "
                    f"[{low:g}, {high:g}]"
                )
        values = transform_steps(outcome, self.transform, eta=self.eta)
        value, shares = reduce_steps(values, self._reduce)
        placed = tuple(
            StepScore(value=share, char_start=step.char_start, char_end=step.char_end)
            for share, step in zip(values if self.potential else shares, steps, strict=True)
        )
        return Score(name=self.name, value=value, steps=placed, info={"step_scores": list(outcome)})

    def _failed(self, error: str, status: ScoreStatus = ScoreStatus.ERROR) -> Score:
        return Score(name=self.name, value=None, status=status, error=error)

    @property
    def _reduce(self) -> Reduce:
        return self.reduce or ("last" if self.potential else "min")

    def _check_scorer(self) -> None:
        given = [option for option in ("function", "url") if getattr(self, option) is not None]
        if self.model is not None and self.url is None:
            given.append("model")
        if len(given) != 1:
            raise UserError(
                "reward 'prm' has one scorer: function (file.py:name), model (a folder or hub id) "
                f"or url; given: {', '.join(given) or 'none'}"
            )
        if self.url is not None:
            check_url("reward 'prm': url", self.url)
        if not all(math.isfinite(number) for number in (self.eta, self.empty or 0.0)):
            raise UserError("reward 'prm': eta and empty are finite")

    def _make_scorer(self) -> StepScorer:
        if self.function is not None:
            return CallableScorer(load_function(self.function))
        if self.url is not None:
            return self._endpoint_scorer(self.url)
        assert self.model is not None
        loaded = load_pretrained(
            self.name,
            self.model,
            self.head,
            template=self.template,
            max_length=self.max_length,
            dtype=self.dtype,
            device=self.device,
            trust_remote_code=self.trust_remote_code,
        )
        common: dict[str, Any] = {"separator": self.separator, "batch_size": self.batch_size}
        if self.head == "token":
            return TokenScorer(loaded, label=self.label, **common)
        return CausalScorer(loaded, good=self.good, bad=self.bad, **common)

    def _endpoint_scorer(self, url: str) -> StepScorer:
        endpoint = Endpoint(
            url,
            api_key_env=self.api_key_env,
            retries=self.retries,
            request_timeout_s=self.request_timeout_s,
            backoff_s=self.backoff_s,
        )
        common: dict[str, Any] = {
            "model": self.model,
            "batch_size": self.batch_size,
            "concurrency": self.concurrency,
        }
        if self.api == "steps":
            return StepsScorer(endpoint, **common)
        return PoolingScorer(
            endpoint,
            separator=self.separator,
            template=self.template,
            label=self.label,
            **common,
        )
