"""A real vLLM on a CPU, loaded once for the tests of a module; without vLLM they are left out."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from rlgym_llm_trainers.algorithms.logprobs import token_logprobs
from rlgym_llm_trainers.generators.vllm_engine.arguments import EngineSettings
from rlgym_llm_trainers.generators.vllm_engine.engine import Engine, open_engine
from rlgym_llm_trainers.models.policy import Policy, load_policy
from rlgym_llm_trainers.models.starter import starter_model_path
from rlgym_llm_trainers.models.token_side import TokenSide

from rlgym_llm.config_rollout import RolloutConfig
from rlgym_llm.generate import GenerateRequest, SamplingParams
from rlgym_llm.types import Completion

if importlib.util.find_spec("vllm") is None:
    collect_ignore_glob = ["test_*.py"]

ROLLOUT = RolloutConfig(max_num_seqs=64, max_model_len=256)
QUESTION = "Tom has {} apples and buys {} more. How many apples does he have?"


def settings_of(path: str | Path, rollout: RolloutConfig = ROLLOUT) -> EngineSettings:
    return EngineSettings(model_path=str(path), dtype="float32", device="cpu", rollout=rollout)


def tokens_of(policy: Policy) -> TokenSide:
    return TokenSide(
        tokenizer=policy.tokenizer, path=policy.path, eos_token_ids=policy.eos_token_ids
    )


@contextmanager
def opened(policy: Policy, **options) -> Iterator[Engine]:
    with warnings.catch_warnings(action="ignore"):  # vLLM's own
        engine = open_engine(settings_of(policy.path), tokens_of(policy), **options)
    try:
        yield engine
    finally:
        engine.close()


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """Of the starter model, for all tests of a file: each begins with a sync."""
    policy = load_policy(starter_model_path(), device=torch.device("cpu"))
    with opened(policy) as engine:
        yield engine


@pytest.fixture
def opened_engine():
    """Opens an engine of its own for a policy, and closes it."""
    return opened


@pytest.fixture
def starter() -> Policy:
    """The starter model, tied, with weights of its own for this test."""
    return load_policy(starter_model_path(), device=torch.device("cpu"))


@pytest.fixture
def perturb():
    """Changes every weight of a policy by a random share of its spread."""

    def change(policy: Policy, *, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in policy.model.parameters():
                noise = torch.randn(parameter.shape, generator=generator)
                scale = parameter.std() if parameter.ndim > 1 else parameter.abs().mean()
                parameter.add_(0.1 * scale * noise)

    return change


@pytest.fixture
def requests_for():
    """Requests of different questions, seeds 0, 1, 2, ..."""

    def make(policy: Policy, num: int, *, temperature: float = 1.0, budget: int = 24):
        tokenizer = policy.tokenizer
        prompts = [
            tokenizer.apply_chat_template(
                [{"role": "user", "content": QUESTION.format(i % 9 + 1, i // 9 + 1)}],
                add_generation_prompt=True,
                return_dict=True,
            )["input_ids"]
            for i in range(num)
        ]
        params = SamplingParams(max_new_tokens=budget, temperature=temperature)
        return [
            GenerateRequest(prompt_token_ids=tuple(prompt), params=params, seed=seed)
            for seed, prompt in enumerate(prompts)
        ]

    return make


@pytest.fixture
def largest_difference():
    """How far completions' log-probs are from the learner's, at most: one row at a time."""

    def measure(
        policy: Policy, requests: list[GenerateRequest], completions: list[Completion]
    ) -> float:
        apart = []
        for request, completion in zip(requests, completions, strict=True):
            ids = torch.tensor([[*request.prompt_token_ids, *completion.token_ids]])
            with torch.no_grad():
                logits = policy.model(input_ids=ids, use_cache=False).logits
            found = token_logprobs(
                logits.double() / (request.params.temperature or 1.0),
                ids,
                mask=torch.ones_like(ids, dtype=torch.bool),
            )
            ours = found[0, len(request.prompt_token_ids) :]
            apart.append(float((ours - torch.tensor(completion.logprobs)).abs().max()))
        return max(apart)

    return measure
