"""Models of other kinds in vLLM, each with an engine of its own."""

from dataclasses import replace

import pytest
import torch
from rlgym_llm_trainers.generators.hf_generator import HFGenerator
from rlgym_llm_trainers.generators.vllm_engine.generator import VLLMGenerator
from rlgym_llm_trainers.generators.weight_sync.files import WeightFiles
from rlgym_llm_trainers.generators.weight_sync.guard import CanaryGuard
from rlgym_llm_trainers.models.policy import load_policy, save_policy
from transformers import LlamaConfig, LlamaForCausalLM

from rlgym_llm.errors import UserError, WeightSyncError

pytestmark = pytest.mark.filterwarnings("ignore")

TOLERANCE = 1e-3  # of a log-prob in float32, as weight_sync.canary_tolerance has it


def test_an_untied_model_is_synced_too(
    opened_engine, starter, requests_for, perturb, largest_difference, tmp_path
) -> None:
    config = LlamaConfig(**{**starter.model.config.to_dict(), "tie_word_embeddings": False})
    model = LlamaForCausalLM(config)
    model.generation_config.eos_token_id = sorted(starter.eos_token_ids)
    model.save_pretrained(tmp_path / "untied")
    starter.tokenizer.save_pretrained(tmp_path / "untied")
    policy = load_policy(tmp_path / "untied", device=torch.device("cpu"))
    assert policy.model.lm_head.weight is not policy.model.model.embed_tokens.weight
    requests = requests_for(policy, 64)
    with opened_engine(policy) as engine, WeightFiles() as files:
        generator = VLLMGenerator(policy, engine, files=files, canary=CanaryGuard(policy))
        for version in (0, 1):
            generator.sync(version)
            completions = generator.generate(requests)
            assert largest_difference(policy, requests, completions) < TOLERANCE
            perturb(policy, seed=version)


@pytest.mark.data
def test_a_head_that_stays_old_is_caught_by_the_canary_and_seen_without_it(
    opened_engine, starter, requests_for, perturb, largest_difference, bug_report
) -> None:
    assert bug_report("sync-tied_head")["right"]["values"]["equal"] is True
    requests = requests_for(starter, 16)
    with opened_engine(starter, packs_heads=False) as engine, WeightFiles() as files:
        guarded = VLLMGenerator(starter, engine, files=files, canary=CanaryGuard(starter))
        unguarded = VLLMGenerator(starter, engine, files=files)
        unguarded.sync(0)  # the weights that it was opened with
        assert largest_difference(starter, requests, unguarded.generate(requests)) < TOLERANCE
        perturb(starter, seed=1)
        with pytest.raises(WeightSyncError, match=r"vllm .* version 1 .* tied head"):
            guarded.sync(1)
        unguarded.sync(2)
        assert largest_difference(starter, requests, unguarded.generate(requests)) > TOLERANCE


def test_a_folder_that_a_run_saved_is_served_as_it_is(
    opened_engine, starter, requests_for, perturb, tmp_path
) -> None:
    perturb(starter, seed=7)
    save_policy(starter, tmp_path / "model")
    saved = load_policy(tmp_path / "model", device=torch.device("cpu"))
    requests = requests_for(saved, 16, temperature=0.0)
    expected = [c.text for c in HFGenerator(saved).generate(requests)]
    with opened_engine(saved) as engine:
        served = VLLMGenerator(saved, engine).generate(requests)
    assert [completion.text for completion in served] == expected


def test_a_model_that_vllm_cannot_load_is_one_line(opened_engine, starter, tmp_path) -> None:
    save_policy(starter, tmp_path / "cut")
    weights = tmp_path / "cut" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    broken = replace(starter, path=str(tmp_path / "cut"))
    with (
        pytest.raises(UserError, match=r"--model .*cut: vLLM does not load it: ") as raised,
        opened_engine(broken),
    ):
        pass
    assert "\n" not in str(raised.value)
