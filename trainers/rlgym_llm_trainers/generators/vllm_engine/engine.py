"""One vLLM engine: requests in at any time, completions out step by step, new weights between.

It lives in the process that uses it, so that its weights can be reached, and is used from one
thread at a time. Between two steps nothing is sampled: new weights come in then, and what is in
flight goes on under them, its keys and values computed anew, its version spans saying where.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any

from rlgym_llm.errors import GeneratorError, UserError, one_line
from rlgym_llm.generate import GenerateRequest
from rlgym_llm.types import Completion
from rlgym_llm_trainers.generators.vllm_engine.arguments import (
    EngineSettings,
    check_engine_kwargs,
    check_vllm,
    engine_arguments,
    set_environment,
)
from rlgym_llm_trainers.generators.vllm_engine.completions import (
    completion,
    prompt_scores,
    sampling_params,
    scoring_params,
)
from rlgym_llm_trainers.generators.vllm_engine.transfer import TransferredWeights
from rlgym_llm_trainers.generators.vllm_engine.weights import ModelWeights
from rlgym_llm_trainers.models.detokenize import Detokenizer
from rlgym_llm_trainers.models.token_side import TokenSide, read_model_config

__all__ = ["Engine", "open_engine"]


class Engine:
    """An engine as a sampler and as a `WeightReceiver`; made by `open_engine`."""

    def __init__(
        self,
        llm: Any,
        *,
        detokenize: Detokenizer,
        eos_token_ids: Collection[int],
        policy_version: int = 0,
        name: str | None = None,
        packs_heads: bool = True,
        is_transferred: bool = False,
        gives_kept_sets: bool = False,
    ) -> None:
        """``is_transferred`` has weights come by vLLM's own transport, not by this process.

        ``gives_kept_sets`` says that it was made to tell what top-k and top-p left.
        """
        self._llm = llm
        self._core = llm.llm_engine
        self._detokenize = detokenize
        self._eos_token_ids = frozenset(eos_token_ids)
        self._name = name
        self._vocab_size = llm.llm_engine.model_config.get_vocab_size()
        self._bound = self._vocab_size if gives_kept_sets else None
        self._weights: ModelWeights | TransferredWeights = (
            TransferredWeights(llm)
            if is_transferred
            else ModelWeights(llm, packs_heads=packs_heads)
        )
        self._in_flight: set[str] = set()
        self._scored: dict[str, list[float]] = {}
        self._ended: list[tuple[str, Completion]] = []
        self._set_version(policy_version)

    @property
    def policy_version(self) -> int:
        """Of the weights that sample."""
        return self._policy_version

    @property
    def has_work(self) -> bool:
        """Whether `step` has anything to do or to return."""
        return bool(self._in_flight or self._ended)

    def add(self, key: str, request: GenerateRequest) -> None:
        """Begins a request; ``key`` names its completion and is not in flight yet.

        Raises ValueError for a request that no engine of this model can sample: an empty prompt,
        an id that the model does not have, a prompt that fills its context.
        """
        params = sampling_params(request, eos_token_ids=self._eos_token_ids, bound=self._bound)
        self._add(key, request.prompt_token_ids, params)

    def step(self) -> list[tuple[str, Completion]]:
        """Samples a token of everything in flight; returns what has ended, with its keys."""
        if self._in_flight:
            self._step()
        ended, self._ended = self._ended, []
        return ended

    def score(self, sequences: Sequence[tuple[int, ...]]) -> list[list[float]]:
        """Log-probs of tokens 1.. of each sequence at temperature 1, from no cache of prefixes.

        What is in flight goes on meanwhile.
        """
        keys = [f"score-{place}" for place in range(len(sequences))]
        for key, sequence in zip(keys, sequences, strict=True):
            self._add(key, sequence, scoring_params(self._bound))
        while not self._scored.keys() >= set(keys):
            self._step()
        return [self._scored.pop(key) for key in keys]

    def abort(self) -> None:
        """Ends what is in flight; it never comes out of `step`."""
        self._core.abort_request(list(self._in_flight))
        self._in_flight.clear()
        self._ended.clear()

    def close(self) -> None:
        """Gives the model's memory back; safe to call twice."""
        if self._llm is not None:
            self._core.engine_core.shutdown()
            self._llm = self._core = None
            self._in_flight.clear()

    # ---- new weights: see WeightReceiver

    def init_weight_transfer(self, info: Mapping[str, Any]) -> None:
        """Joins vLLM's own transport; nothing to do where weights are handed over in memory."""
        if isinstance(self._weights, TransferredWeights):
            self._weights.init(info)

    def pause(self, *, abort: bool = False) -> None:
        """Nothing is sampled between steps, so there is nothing to wait for."""

    def start_weight_update(self) -> None:
        """Opens an update, whatever became of the one before."""
        self._weights.start()

    def update_weights(self, weights: Any) -> None:
        """Takes in tensors under their Hugging Face names, or what vLLM's sender says of them."""
        self._weights.update(weights)

    def finish_weight_update(self, weight_version: int) -> None:
        """Closes the update. Raises WeightSyncError where a weight of the model has not come."""
        self._weights.finish()
        self._set_version(weight_version)

    def reset_prefix_cache(self) -> bool:
        """Forgets keys and values of old weights, of what is in flight too."""
        return bool(self._core.reset_prefix_cache(reset_running_requests=True))

    def resume(self) -> None:
        """Steps again when it is next asked to."""

    def _add(self, key: str, prompt_token_ids: Sequence[int], params: Any) -> None:
        from vllm import TokensPrompt
        from vllm.exceptions import VLLMError

        if key in self._in_flight:
            raise ValueError(f"request {key!r} is in flight already")
        ids = list(prompt_token_ids)
        if ids and not 0 <= min(ids) <= max(ids) < self._vocab_size:  # it would end the engine
            raise ValueError(f"the model has ids 0 to {self._vocab_size - 1}, not {max(ids)}")
        try:
            self._core.add_request(key, TokensPrompt(prompt_token_ids=ids), params)
        except (VLLMError, ValueError) as error:
            raise ValueError(f"vLLM cannot sample this request: {error}") from error
        self._in_flight.add(key)

    def _step(self) -> None:
        try:
            outputs = self._core.step()
        except Exception as error:  # what an engine raises here it does not recover from
            raise GeneratorError(f"vLLM failed: {type(error).__name__}: {error}") from error
        ended = [output for output in outputs if output.finished]
        self._in_flight.difference_update(output.request_id for output in ended)
        sampled = [output for output in ended if output.prompt_logprobs is None]
        texts = self._detokenize([output.outputs[0].token_ids for output in sampled])
        for output, (text, raw_text) in zip(sampled, texts, strict=True):
            done = completion(
                output.outputs[0], text=text, raw_text=raw_text, sampled_by=self._name
            )
            self._ended.append((output.request_id, done))
        for output in ended:
            if output.prompt_logprobs is not None:
                self._scored[output.request_id] = prompt_scores(output.prompt_logprobs)

    def _set_version(self, version: int) -> None:
        self._core.set_weight_version(str(version))
        self._policy_version = version


def open_engine(
    settings: EngineSettings,
    tokens: TokenSide,
    *,
    policy_version: int = 0,
    name: str | None = None,
    packs_heads: bool = True,
) -> Engine:
    """Loads the model into vLLM, in this process; ``packs_heads`` as in `ModelWeights`.

    Raises UserError, in one line, where vLLM is missing or will not have the model.
    """
    check_vllm()
    set_environment(settings.device)
    model = read_model_config(settings.model_path, trust_remote_code=settings.trust_remote_code)
    arguments = engine_arguments(settings, model)
    try:
        # It deprecates torch's names at import and warns of libraries that would be quicker.
        with warnings.catch_warnings(action="ignore"):
            from vllm import LLM
            from vllm.engine.arg_utils import EngineArgs

            check_engine_kwargs(settings.rollout, (field.name for field in fields(EngineArgs)))
            llm = LLM(**arguments)
    except UserError:
        raise
    except Exception as error:  # it raises anything from ValueError to its engine's own
        reason = one_line(error, 400)
        raise UserError(
            f"--model {settings.model_path}: vLLM does not load it: {reason}"
        ) from error
    # It was loaded without a tokenizer, and finds stop strings with the one of its output side.
    llm.llm_engine.output_processor.tokenizer = tokens.tokenizer
    return Engine(
        llm,
        detokenize=Detokenizer(tokens.tokenizer, tokens.eos_token_ids),
        eos_token_ids=tokens.eos_token_ids,
        policy_version=policy_version,
        name=name,
        packs_heads=packs_heads,
        is_transferred="weight_transfer_config" in arguments,
        gives_kept_sets=arguments.get("return_sampling_mask", False),
    )
