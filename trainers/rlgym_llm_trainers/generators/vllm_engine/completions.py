"""Requests as vLLM takes them, and its outputs as completions: ids in, ids and log-probs out."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from rlgym_llm.errors import GeneratorError
from rlgym_llm.generate import GenerateRequest
from rlgym_llm.kept_sets import KeptSets
from rlgym_llm.types import Completion, FinishReason, VersionSpan

if TYPE_CHECKING:
    from vllm import SamplingParams
    from vllm.outputs import CompletionOutput

__all__ = ["completion", "prompt_scores", "sampling_params", "scoring_params"]

_FINISHED: Mapping[str | None, FinishReason] = {
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "abort": FinishReason.ABORT,
}


def sampling_params(
    request: GenerateRequest, *, eos_token_ids: Collection[int], bound: int | None = None
) -> SamplingParams:
    """VLLM's parameters of one request.

    The end-of-text ids are given as stop ids, so that one that was sampled stays among the ids.
    ``bound`` is the number of ids of the model where the engine gives kept sets, else None: it then
    samples with a temperature and a top-k alone, so greedy is the likeliest one, of log-prob 0, and
    no top-k is all ids.
    """
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    wanted = request.params
    temperature, top_k = wanted.temperature, 0 if wanted.top_k == -1 else wanted.top_k
    if bound is not None:
        temperature, top_k = (temperature, top_k or bound) if temperature else (1.0, 1)
    return SamplingParams(
        max_tokens=wanted.max_new_tokens,
        temperature=temperature,
        top_p=wanted.top_p,
        top_k=top_k,
        seed=request.seed & (2**63 - 1),  # a larger one would hang the engine
        stop_token_ids=sorted({*eos_token_ids, *wanted.stop_token_ids}),
        stop=list(wanted.stop),
        include_stop_str_in_output=True,
        skip_special_tokens=False,
        logprobs=0,  # of the sampled token alone
        flat_logprobs=True,
        detokenize=bool(wanted.stop),  # only to look for them: the text is decoded from the ids
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def scoring_params(bound: int | None = None) -> SamplingParams:
    """VLLM's parameters for the log-probs of a prompt; it samples one token that nobody wants.

    ``bound`` as in `sampling_params`.
    """
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        max_tokens=1,
        temperature=1.0,
        top_k=bound or 0,
        prompt_logprobs=0,
        flat_logprobs=True,
        detokenize=False,
        skip_reading_prefix_cache=True,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def prompt_scores(flat: Any) -> list[float]:
    """Log-probs of tokens 1.. of a prompt; nothing predicts its first."""
    return [float(value) for value in flat.logprobs]


def completion(
    output: CompletionOutput, *, text: str, raw_text: str | None, sampled_by: str | None = None
) -> Completion:
    """What vLLM sampled, as a record.

    Raises GeneratorError where ids, log-probs and versions do not go together, and for a reason of
    its end that is not known.
    """
    ids = tuple(output.token_ids)
    if output.finish_reason not in _FINISHED:
        raise GeneratorError(f"vLLM ended a completion with {output.finish_reason!r}")
    logprobs = _logprobs(output.logprobs, len(ids))
    return Completion(
        text=text,
        raw_text=raw_text,
        token_ids=ids,
        logprobs=logprobs,
        version_spans=_version_spans(output, len(ids)),
        finish_reason=_FINISHED[output.finish_reason],
        kept_token_ids=_kept_sets(output),
        sampled_by=sampled_by,
    )


def _logprobs(flat: Any, num_tokens: int) -> tuple[float, ...]:
    values = tuple(flat.logprobs) if flat is not None else ()
    if len(values) != num_tokens:
        raise GeneratorError(f"vLLM gave {len(values)} log-probs for {num_tokens} tokens")
    return values


def _kept_sets(output: CompletionOutput) -> KeptSets | None:
    if output.sampling_mask is None:
        return None
    return KeptSets.of(output.sampling_mask.token_ids)


def _version_spans(output: CompletionOutput, num_tokens: int) -> tuple[VersionSpan, ...]:
    spans = tuple(
        (span.start, span.end, int(span.version)) for span in output.weight_versions or ()
    )
    if sum(end - start for start, end, _ in spans) != num_tokens:
        raise GeneratorError(f"vLLM gave the versions {spans} for {num_tokens} tokens")
    return spans
