"""The sides of `rollout.py`: who samples, each made in the process that it will sample in.

All take `GenerateRequest`s and return how many tokens they sampled for each. The model is one that
never stops (`stop_free`), so that budgets alone set the lengths.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rlgym_llm.generate import GenerateRequest

__all__ = ["PROCESSES", "Sample", "sides_of", "stop_free"]

Sample = Callable[[Sequence[GenerateRequest]], list[int]]

PROCESSES = {
    "engine": ("bare", "unseeded", "ours"),
    "ray": ("ray",),
    "actors": ("actors",),
    "transformers": ("transformers",),
}
"""Each process, and the sides that it serves: those of one engine share it."""
_KV_CACHE_GIB = 2.0
_WITHOUT_ENDS = ("config.json", "generation_config.json", "tokenizer_config.json")


def stop_free(model: Path, folder: Path) -> Path:
    """A folder with the model's own weights and no end-of-text token; the files are links."""
    folder.mkdir()
    for path in model.iterdir():
        if path.name not in (*_WITHOUT_ENDS, "special_tokens_map.json"):
            (folder / path.name).symlink_to(path.absolute())
    for name in _WITHOUT_ENDS:
        known = model / name
        settings = json.loads(known.read_text(encoding="utf-8")) if known.exists() else {}
        settings |= {"eos_token": None} if name.startswith("tokenizer") else {"eos_token_id": None}
        (folder / name).write_text(json.dumps(settings), encoding="utf-8")
    return folder


def sides_of(
    process: str, model: str, *, threads: int, max_num_seqs: int, max_model_len: int
) -> dict[str, Sample]:
    """The sides that this process serves, ready to sample."""
    from rlgym_llm_trainers.models.torch_setup import set_up_torch

    set_up_torch(num_threads=None, seed=0)
    if process == "transformers":
        return {"transformers": _transformers(model)}
    is_split = process == "actors"
    rollout = {
        "max_num_seqs": max_num_seqs,
        "max_model_len": max_model_len,
        "kv_cache_gib": _KV_CACHE_GIB,
        "num_workers": 0 if process == "engine" else threads if is_split else 1,
        "workers": {"num_cpus": 1.0 if is_split else float(threads), "bind_cores": is_split},
    }
    return _engine(model, rollout) if process == "engine" else {process: _ray(model, rollout)}


def _engine(model: str, rollout: dict[str, Any]) -> dict[str, Sample]:
    """Bare vLLM and our generator, over one and the same engine."""
    import torch
    from rlgym_llm_trainers.generators.vllm_engine.arguments import (
        EngineSettings,
        engine_arguments,
        set_environment,
    )
    from rlgym_llm_trainers.generators.vllm_engine.completions import sampling_params
    from rlgym_llm_trainers.generators.vllm_engine.engine import Engine
    from rlgym_llm_trainers.generators.vllm_engine.generator import VLLMGenerator
    from rlgym_llm_trainers.models.detokenize import Detokenizer
    from rlgym_llm_trainers.models.policy import load_policy
    from rlgym_llm_trainers.models.token_side import read_model_config

    from rlgym_llm.config_rollout import RolloutConfig

    settings = EngineSettings(
        model_path=model,
        dtype="float32",
        device="cpu",
        rollout=RolloutConfig.model_validate(rollout),
    )
    set_environment("cpu")
    from vllm import LLM, TokensPrompt

    llm = LLM(**engine_arguments(settings, read_model_config(model)))
    policy = load_policy(model, device=torch.device("cpu"))
    detokenize = Detokenizer(policy.tokenizer, ())
    generator = VLLMGenerator(policy, Engine(llm, detokenize=detokenize, eos_token_ids=()))

    def bare(requests: Sequence[GenerateRequest], *, has_seeds: bool = True) -> list[int]:
        params = [sampling_params(request, eos_token_ids=()) for request in requests]
        if not has_seeds:
            for one in params:
                one.seed = None
        prompts = [TokensPrompt(prompt_token_ids=list(r.prompt_token_ids)) for r in requests]
        found = llm.generate(prompts, params, use_tqdm=False)
        return [len(one.outputs[0].token_ids) for one in found]

    def ours(requests: Sequence[GenerateRequest]) -> list[int]:
        return [done.num_tokens for done in generator.generate(requests)]

    return {"bare": bare, "unseeded": lambda r: bare(r, has_seeds=False), "ours": ours}


def _ray(model: str, rollout: dict[str, Any]) -> Sample:
    """Our generator over vLLM in Ray actors."""
    import atexit

    import torch
    from rlgym_llm_trainers.generators.ray_pool.generator import RayGenerator
    from rlgym_llm_trainers.models.policy import load_policy

    from rlgym_llm.config_schema import TrainConfig
    from rlgym_llm.plugins import Plugins
    from rlgym_llm.specs import GeneratorSpec, Kind

    spec = Plugins.discover().get(Kind.GENERATOR, "vllm")
    assert isinstance(spec, GeneratorSpec)
    config = TrainConfig.model_validate({"rollout": rollout})
    policy = load_policy(model, device=torch.device("cpu"))
    generator = RayGenerator(policy, config, spec)
    atexit.register(generator.close)
    generator.sync(0)
    return lambda requests: [done.num_tokens for done in generator.generate(requests)]


def _transformers(model: str) -> Sample:
    """The model's own ``generate``, as TRL calls it: one batch, padded, to the longest budget."""
    import torch
    from rlgym_llm_trainers.models.policy import load_policy
    from transformers import GenerationConfig

    policy = load_policy(model, device=torch.device("cpu"))
    network: Any = policy.model
    pad = policy.pad_token_id

    @torch.inference_mode()
    def sample(requests: Sequence[GenerateRequest]) -> list[int]:
        prompts = [request.prompt_token_ids for request in requests]
        width = max(map(len, prompts))
        ids = torch.tensor([[pad] * (width - len(p)) + list(p) for p in prompts])
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
        budgets = [request.params.max_new_tokens for request in requests]
        how = GenerationConfig(  # type: ignore[no-untyped-call]
            max_new_tokens=max(budgets),
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            pad_token_id=pad,
        )
        found = network.generate(
            input_ids=ids, attention_mask=mask, generation_config=how, disable_compile=True
        )
        length = found.shape[1] - width
        return [min(length, budget) for budget in budgets]  # the rest of a row is thrown away

    return sample


def quiet_environment(threads: int) -> dict[str, str]:
    """For a side's process: its threads, and none of them spins while others are at work."""
    return {
        "OMP_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "PASSIVE",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONWARNINGS": "ignore",
        "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "ERROR"),
    }
