"""vLLM's own four calls in a worker, by a transport of this test that hands tensors over."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from rlgym_llm_trainers.generators.vllm_engine import engine as module
from rlgym_llm_trainers.generators.vllm_engine.arguments import EngineSettings, engine_arguments
from rlgym_llm_trainers.generators.vllm_engine.worker import VLLMWorker
from rlgym_llm_trainers.generators.weight_sync.canary import (
    canary_sequences,
    disagreement,
    learner_scores,
)
from rlgym_llm_trainers.generators.weight_sync.source import policy_weights
from rlgym_llm_trainers.models.policy import load_policy
from transformers import LlamaConfig, LlamaForCausalLM

from rlgym_llm.config_rollout import RolloutConfig
from rlgym_llm.errors import ConfigError
from rlgym_llm.generate import SamplingParams
from rlgym_llm.types import Completion

pytestmark = pytest.mark.filterwarnings("ignore")

TOLERANCE = 1e-3
WAIT_S = 120


def register_handing_over() -> None:
    from vllm.distributed.weight_transfer.base import (
        WeightTransferEngine,
        WeightTransferInitInfo,
        WeightTransferUpdateInfo,
    )
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
    from vllm.model_executor.model_loader.reload import (
        finalize_layerwise_reload,
        initialize_layerwise_reload,
    )

    @dataclass
    class Init(WeightTransferInitInfo):
        greeting: str

    @dataclass
    class Update(WeightTransferUpdateInfo):
        weights: list[Any]

    class HandingOver(WeightTransferEngine):
        """As the NCCL and IPC engines, which differ in how tensors come."""

        init_info_cls, update_info_cls = Init, Update

        def init_transfer_engine(self, init_info):
            assert init_info.greeting == "hello"

        def start_weight_update(self):
            initialize_layerwise_reload(self.model)

        def receive_weights(self, update_info):
            self.model.load_weights(update_info.weights)

        def finish_weight_update(self):
            finalize_layerwise_reload(self.model, self.model_config)

        def shutdown(self):
            pass

    WeightTransferEngineFactory.register_engine("handing-over", HandingOver)


def test_what_is_in_flight_goes_on_under_the_weights_that_were_sent(
    opened_engine, starter, requests_for, perturb, monkeypatch, tmp_path
) -> None:
    """Untied: on a CPU vLLM's own reload leaves a tied head as it was."""
    register_handing_over()
    config = LlamaConfig(**{**starter.model.config.to_dict(), "tie_word_embeddings": False})
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    starter.tokenizer.save_pretrained(tmp_path)
    policy = load_policy(tmp_path, device=torch.device("cpu"))
    backend = {"weight_transfer_config": {"backend": "handing-over"}}
    monkeypatch.setattr(
        module, "engine_arguments", lambda *of: {**engine_arguments(*of), **backend}
    )
    (request,) = requests_for(policy, 1)
    long = replace(request, params=SamplingParams(max_new_tokens=200, temperature=1.0))
    short = replace(request, params=SamplingParams(max_new_tokens=2, temperature=1.0))
    canary = canary_sequences(policy.tokenizer)
    opening = opened_engine(policy)
    worker = VLLMWorker(opening.__enter__)
    try:
        worker.transfer("init", {"greeting": "hello"})
        worker.transfer("start")
        worker.transfer("update", {"weights": list(policy_weights(policy.model))})
        worker.transfer("finish", "3")
        before = worker.score(canary)
        assert disagreement(learner_scores(policy, canary), before) < TOLERANCE
        futures = [worker.submit(replace(long, seed=seed)) for seed in range(8)]
        worker.submit(short).result(WAIT_S)  # the others are under way as well now
        perturb(policy, seed=1)
        halves = list(policy_weights(policy.model))
        worker.transfer("start")
        worker.transfer("update", {"weights": halves[:10]})
        worker.transfer("update", {"weights": halves[10:]})
        worker.transfer("finish", "4")
        spans = [future.result(WAIT_S).version_spans for future in futures]
        after = worker.score(canary)
    finally:
        worker.close()
    assert disagreement(learner_scores(policy, canary), after) < TOLERANCE
    assert disagreement(before, after) > TOLERANCE
    assert {version for span in spans for _, _, version in span} == {3, 4}


class Halting:
    """An engine that must not be stepped while its weights come in."""

    policy_version = 0
    has_work = is_loading = False

    def add(self, key, request):
        self.has_work, self.key = True, key

    def start_weight_update(self):
        self.is_loading = True

    def update_weights(self, info):
        pass

    def finish_weight_update(self, weight_version):
        self.is_loading, self.policy_version = False, weight_version

    def reset_prefix_cache(self):
        return True

    def step(self):
        assert not self.is_loading, "stepped with half its weights"
        if not self.policy_version:
            return []
        self.has_work = False
        return [(self.key, Completion(text="", token_ids=(1,), logprobs=(0.0,)))]

    def close(self):
        pass


def test_nothing_is_sampled_between_start_and_finish(starter, requests_for) -> None:
    worker = VLLMWorker(Halting)
    (request,) = requests_for(starter, 1)
    future = worker.submit(request)
    worker.transfer("start")
    for _ in range(100):  # the worker's thread would step in between
        worker.transfer("update", {})
    worker.transfer("finish", "5")
    assert future.result(WAIT_S).token_ids == (1,)
    worker.close()


@pytest.mark.parametrize(
    ("transport", "device", "backend"),
    [
        ("auto", "cuda", None),
        ("shared_memory", "cuda", None),
        ("nccl", "cuda", {"backend": "nccl"}),
        ("ipc", "cuda", {"backend": "ipc"}),
        ("auto", "cpu", None),
    ],
)
def test_an_engine_is_made_for_a_transport_only_where_it_is_asked_for(
    transport, device, backend
) -> None:
    rollout = {"num_workers": 1, "weight_sync": {"transport": transport}}
    settings = EngineSettings(
        model_path="m", dtype="float32", device=device, rollout=RolloutConfig(**rollout)
    )
    assert engine_arguments(settings, {}).get("weight_transfer_config") == backend


def test_the_transport_has_a_key_of_its_own() -> None:
    rollout = RolloutConfig(engine_kwargs={"weight_transfer_config": {"backend": "nccl"}})
    settings = EngineSettings(model_path="m", dtype="float32", device="cuda", rollout=rollout)
    with pytest.raises(ConfigError, match="weight_transfer_config: is set by the run itself"):
        engine_arguments(settings, {})
