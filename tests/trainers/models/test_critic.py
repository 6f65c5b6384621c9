"""A critic on disk: the body and the head that were saved are those that are loaded."""

from __future__ import annotations

import json

import pytest
import torch
from rlgym_llm_trainers.models.critic import (
    VALUE_HEAD_FILE,
    ValueModel,
    load_value_model,
    save_value_model,
)
from rlgym_llm_trainers.models.policy import load_policy, save_policy
from transformers import AutoModel

from rlgym_llm.errors import RlgymError, UserError

IDS = torch.tensor([[7, 8, 9, 10]])


@pytest.fixture
def folder(policy, tmp_path):
    """The policy as a Hugging Face folder."""
    save_policy(policy, tmp_path / "policy")
    return tmp_path / "policy"


def states_of(body):
    with torch.no_grad():
        return body(input_ids=IDS, use_cache=False).last_hidden_state


def test_a_new_critic_has_the_body_of_the_model_and_says_nothing(policy, folder):
    model = load_value_model(folder, policy=policy, num_positions=8)
    assert not model.training
    states = states_of(policy.model.base_model)
    assert torch.equal(states_of(model.body), states)
    assert model(states[0]).tolist() == [0.0] * 4
    # Its weights are its own: what it learns must not move the policy.
    next(model.body.parameters()).data.zero_()
    assert torch.equal(states_of(policy.model.base_model), states)


def test_what_was_saved_is_loaded(policy, folder, tmp_path):
    model = load_value_model(folder, policy=policy, num_positions=8)
    draw = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data.normal_(generator=draw)
    save_value_model(model, policy, tmp_path / "critic")
    again = load_value_model(tmp_path / "critic", policy=policy, num_positions=8)
    saved, loaded = model.state_dict(), again.state_dict()
    assert saved.keys() == loaded.keys()
    assert all(torch.equal(saved[name], loaded[name]) for name in saved)
    # An ordinary folder for others, with the tokenizer beside it.
    assert torch.equal(
        states_of(AutoModel.from_pretrained(tmp_path / "critic")), states_of(again.body)
    )
    assert (tmp_path / "critic" / "tokenizer.json").is_file()


def test_bfloat16_weights_give_float32_values(policy, folder):
    model = load_value_model(folder, policy=policy, num_positions=8, dtype="bfloat16")
    model.head.bias.data.fill_(1.0)
    model.head.weight.data.fill_(2**-10)
    values = model(torch.ones(1, 32, dtype=torch.bfloat16))
    assert values.tolist() == [1 + 32 * 2**-10]  # 1.03125; the nearest below in bfloat16 is 1.03125
    assert values.dtype == torch.float32
    values = model(torch.full((1, 32), 0.125, dtype=torch.bfloat16))
    assert values.tolist() == [1 + 32 * 2**-13]  # 1.00390625, which bfloat16 has no place for


def test_a_save_that_fails_leaves_the_one_before(policy, folder, tmp_path, monkeypatch):
    model = load_value_model(folder, policy=policy, num_positions=8)
    save_value_model(model, policy, tmp_path / "critic")
    monkeypatch.setattr(policy.tokenizer, "save_pretrained", lambda folder: 1 / 0)
    with pytest.raises(RlgymError, match="the critic cannot be saved in"):
        save_value_model(model, policy, tmp_path / "critic")
    assert (tmp_path / "critic" / VALUE_HEAD_FILE).is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["critic", "policy"]


def test_what_cannot_be_a_critic_of_the_policy_is_one_line(policy, folder, tmp_path):
    def refused(path, **options):
        with pytest.raises(UserError) as error:
            load_value_model(path, policy=policy, **{"num_positions": 8, **options})
        assert "\n" not in str(error.value)
        assert str(error.value).startswith(f"--critic.model.path {path}: ")
        return str(error.value)

    assert "has 256 positions; prompt and response take 257" in refused(folder, num_positions=257)
    assert "no such folder" in refused(tmp_path / "nowhere")
    critic = ValueModel(load_policy(folder, device=torch.device("cpu")).model.base_model)
    save_value_model(critic, policy, tmp_path / "critic")
    (tmp_path / "critic" / VALUE_HEAD_FILE).write_bytes(b"not one")
    assert "value_head.safetensors does not load" in refused(tmp_path / "critic")

    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    words = tokenizer["model"]["vocab"]
    words["a"], words["b"] = words["b"], words["a"]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert "its tokenizer is another one" in refused(folder)
