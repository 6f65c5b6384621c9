"""The tokenizer and the configuration of a model, wherever it lies and whoever wrote its code."""

from __future__ import annotations

import json
import sys

import pytest
from rlgym_llm_trainers.models.model_path import check_model_path
from rlgym_llm_trainers.models.policy import save_policy
from rlgym_llm_trainers.models.token_side import load_token_side, read_model_config

from rlgym_llm.errors import UserError

CODE = """
from transformers import LlamaConfig


class OwnConfig(LlamaConfig):
    model_type = "own"
"""


@pytest.fixture
def own_code(policy, tmp_path, monkeypatch):
    """A model whose configuration is a class in a file of its own."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    folder = tmp_path / "model"
    save_policy(policy, folder)
    (folder / "own.py").write_text(CODE)
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), "model_type": "own"}
    path.write_text(json.dumps({**config, "auto_map": {"AutoConfig": "own.OwnConfig"}}))
    yield folder
    for name in [name for name in sys.modules if name.startswith("transformers_modules")]:
        del sys.modules[name]


def test_the_code_of_a_model_runs_where_it_is_trusted(policy, own_code):
    config = read_model_config(own_code, trust_remote_code=True)
    assert (config["model_type"], config["hidden_size"]) == ("own", 32)
    tokens = load_token_side(own_code, trust_remote_code=True)
    assert (tokens.num_ids, tokens.max_positions) == (len(policy.tokenizer), 256)


@pytest.mark.parametrize("load", [load_token_side, read_model_config])
def test_and_nowhere_else(own_code, load):
    says = r"^--model .*: brings code of its own; .* --model.trust_remote_code true$"
    with pytest.raises(UserError, match=says) as caught:
        load(own_code)
    assert "\n" not in str(caught.value)
    assert "transformers_modules.model.own" not in sys.modules


def test_a_tilde_is_the_home_folder(policy, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    save_policy(policy, tmp_path / "model")
    check_model_path("~/model")
    assert read_model_config("~/model")["hidden_size"] == 32
    tokens = load_token_side("~/model")
    assert tokens.path == str(tmp_path / "model")
    assert tokens.tokenizer.get_vocab() == policy.tokenizer.get_vocab()
