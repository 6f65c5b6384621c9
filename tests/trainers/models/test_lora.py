"""Adapters: what is trained, and that merged weights do what weights with adapters do."""

from __future__ import annotations

import copy

import pytest
import torch
from rlgym_llm_trainers.learner.publish import publish
from rlgym_llm_trainers.models import lora
from rlgym_llm_trainers.models.lora import add_lora, check_lora

from rlgym_llm.config import load_config
from rlgym_llm.config_schema import ModelConfig
from rlgym_llm.errors import ConfigError

pytest.importorskip("peft")


def logits(model):
    with torch.no_grad():
        return model(input_ids=torch.tensor([[7, 8, 9, 10]])).logits


def adapted(policy, **settings):
    model = copy.deepcopy(policy.model)
    add_lora(model, ModelConfig(lora_rank=2, **settings), seed=0)
    return model


def test_new_adapters_change_nothing_and_are_all_that_is_trained(policy):
    model = adapted(policy, target_modules=("q_proj", "v_proj"))
    assert torch.equal(logits(model), logits(policy.model))
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert trained == {
        f"model.layers.{layer}.self_attn.{module}.lora_{side}.default.weight"
        for layer in (0, 1)
        for module in ("q_proj", "v_proj")
        for side in "AB"
    }


def test_what_is_published_has_the_adapters_merged(exact_policy):
    model = adapted(exact_policy, lora_alpha=3.0)
    before = exact_policy.model.model.layers[0].self_attn.q_proj.weight.clone()
    layer = model.model.layers[0].self_attn.q_proj
    for name, parameter in model.named_parameters():
        if ".lora_B." in name:
            torch.nn.init.normal_(parameter)
    publish(model, exact_policy.model)
    for _ in range(2):  # a second time adds nothing
        publish(model, exact_policy.model)
        down, up = layer.lora_A["default"].weight, layer.lora_B["default"].weight
        found = exact_policy.model.model.layers[0].self_attn.q_proj.weight
        assert torch.allclose(found, before + 3.0 / 2 * up @ down, atol=1e-6)
        assert torch.allclose(logits(exact_policy.model), logits(model), atol=1e-3)


def test_the_same_seed_draws_the_same_adapters(policy):
    one, other = adapted(policy).state_dict(), adapted(policy).state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_unknown_modules_are_refused(policy):
    with pytest.raises(ConfigError, match=r"--model\.target_modules \('no_such',\)"):
        adapted(policy, target_modules=("no_such",))


def test_adapters_without_peft_are_refused(monkeypatch):
    monkeypatch.setattr(lora.importlib.util, "find_spec", lambda name: None)
    check_lora(ModelConfig())
    with pytest.raises(ConfigError, match=r"--model\.lora_rank 8: peft is not installed; pip"):
        check_lora(ModelConfig(lora_rank=8))


def test_keys_of_adapters_have_no_effect_without_a_rank():
    with pytest.raises(ConfigError, match="lora_alpha has no effect without lora_rank"):
        load_config(["--model.lora_alpha", "8"])


@pytest.mark.parametrize(
    ("modules", "said"),
    [
        (("q_proj", "v_porj"), "no module v_porj"),
        (("q_proj", "embed_tokens"), "embed_tokens is no linear layer"),
        (("q_proj", "lm_head"), "lm_head is no linear layer with weights of its own"),
    ],
)
def test_every_target_is_there_and_can_be_merged(policy, modules, said):
    with pytest.raises(ConfigError, match=said):
        adapted(policy, target_modules=modules)


def test_target_modules_that_are_no_regular_expression_are_one_line(policy):
    with pytest.raises(ConfigError, match=r"--model\.target_modules \[: unterminated character"):
        adapted(policy, target_modules="[")
