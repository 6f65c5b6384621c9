"""Loading and saving: an ordinary Hugging Face folder, or one clear line."""

from __future__ import annotations

import json

import pytest
import torch
from rlgym_llm_trainers.generators.hf_generator import HFGenerator
from rlgym_llm_trainers.learner.batch import collate
from rlgym_llm_trainers.learner.batch_logprobs import batch_logprobs
from rlgym_llm_trainers.learner.sample import TrainingSample
from rlgym_llm_trainers.models.policy import load_policy, make_reference, pick_device, save_policy
from rlgym_llm_trainers.models.token_side import load_token_side, read_model_config
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlgym_llm.errors import ConfigError, UserError
from rlgym_llm.generate import GenerateRequest, SamplingParams

CPU = torch.device("cpu")
IDS = [20, 21, 22, 23, 24, 1]


def test_a_saved_folder_loads_with_transformers_and_gives_the_same_log_probs(policy, tmp_path):
    folder = tmp_path / "model"
    save_policy(policy, folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    logits = model(torch.tensor([IDS])).logits[0, :-1]
    expected = torch.log_softmax(logits, -1).gather(-1, torch.tensor(IDS[1:])[:, None])[:, 0]
    sample = TrainingSample(
        token_ids=tuple(IDS),
        loss_mask=(False,) + (True,) * 5,
        rollout_logprobs=(0.0,) * 6,
        policy_versions=(-1,) + (0,) * 5,
        rollout_id="r",
        group_id="g",
        sample_index=0,
    )
    found, _ = batch_logprobs(policy.model, collate([sample], pad_id=0), temperature=1.0)
    assert torch.allclose(found[0, 1:], expected, atol=1e-5)
    assert found[0, 0] == 0
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.chat_template == policy.tokenizer.chat_template


def test_saving_again_replaces_the_folder_and_leaves_nothing_beside_it(policy, tmp_path):
    folder = tmp_path / "model"
    save_policy(policy, folder)
    (folder / "stale").write_text("")
    save_policy(policy, folder)
    assert not (folder / "stale").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_every_end_of_text_id_of_the_generation_config_counts(policy, tmp_path):
    save_policy(policy, tmp_path / "model")
    path = tmp_path / "model" / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "eos_token_id": [1, 5]}))
    loaded = load_policy(tmp_path / "model", device=CPU)
    assert loaded.eos_token_ids == {1, 5}


def test_dropout_is_off_and_the_reference_is_frozen(policy, tmp_path):
    save_policy(policy, tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "attention_dropout": 0.5}))
    loaded = load_policy(tmp_path / "model", device=CPU, gradient_checkpointing=True)
    ids = torch.tensor([IDS])
    assert torch.equal(loaded.model(ids).logits, loaded.model(ids).logits)
    reference = make_reference(loaded)
    assert not any(parameter.requires_grad for parameter in reference.parameters())
    assert all(parameter.requires_grad for parameter in loaded.model.parameters())


@pytest.mark.parametrize(
    "breakage",
    [
        "absent",
        "empty",
        "garbage",
        "not json",
        "a tensor short",
        "another tokenizer",
    ],
)
def test_a_model_that_does_not_load_is_one_line_that_names_the_flag(policy, tmp_path, breakage):
    folder = tmp_path / "model"
    if breakage != "absent":
        folder.mkdir()
    if breakage == "garbage":
        save_policy(policy, folder)
        (folder / "model.safetensors").write_bytes(b"garbage")
    if breakage == "not json":
        (folder / "config.json").write_text("{")
    if breakage == "a tensor short":
        save_policy(policy, folder)
        tensors = load_file(folder / "model.safetensors")
        del tensors["model.layers.0.mlp.down_proj.weight"]
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    if breakage == "another tokenizer":
        save_policy(policy, folder)
        policy.tokenizer.add_tokens(["<new>"])
        policy.tokenizer.save_pretrained(folder)
    with pytest.raises(UserError, match=r"^--model .*model: ") as caught:
        load_policy(folder, device=CPU)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "load", [load_token_side, read_model_config, lambda name: load_policy(name, device=CPU)]
)
def test_a_model_that_only_the_hub_could_have_is_told_so_where_it_cannot_be_asked(
    load, monkeypatch, tmp_path
):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"^--model no-such: is no folder here, .*hub.*starter"):
        load("no-such")


def test_a_device_this_machine_lacks_is_one_line(monkeypatch):
    assert pick_device("cpu") == CPU
    with pytest.raises(ConfigError, match=r"--trainer.device nonsense: not on this machine"):
        pick_device("nonsense")
    with pytest.raises(ConfigError, match=r"--trainer.device meta: not on this machine"):
        pick_device("meta")


def test_checkpointed_layers_change_neither_samples_nor_gradients(policy, tmp_path):
    save_policy(policy, tmp_path / "model")
    plain, saving = (
        load_policy(tmp_path / "model", device=CPU, gradient_checkpointing=is_on)
        for is_on in (False, True)
    )
    request = GenerateRequest(
        prompt_token_ids=tuple(IDS), params=SamplingParams(max_new_tokens=16), seed=0
    )
    saving.model.train()  # as the learner leaves it
    drawn = [HFGenerator(one).generate([request])[0].token_ids for one in (plain, saving)]
    assert drawn[0] == drawn[1]
    gradients = []
    for one in (plain, saving):
        one.model.train()
        one.model(torch.tensor([IDS])).logits.square().mean().backward()
        gradients.append(one.model.model.layers[0].mlp.up_proj.weight.grad)
    assert torch.allclose(gradients[0], gradients[1], atol=1e-6)
