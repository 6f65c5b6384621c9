"""The weights are those that save_pretrained writes: names, bits, tied ones once, shards whole."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from rlgym_llm_trainers.generators.weight_sync.source import (
    WeightMeta,
    policy_weights,
    tied_weights,
    weight_metas,
)
from safetensors.torch import load_file
from torch import nn
from transformers import MixtralConfig, MixtralForCausalLM

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def saved(model, folder):
    model.save_pretrained(folder)
    return load_file(folder / "model.safetensors")


@pytest.mark.parametrize("tied", [True, False])
def test_the_weights_are_those_of_the_saved_folder(llama, tmp_path, tied):
    model = llama(tied=tied)
    found = dict(policy_weights(model))
    expected = saved(model, tmp_path)
    assert set(found) == set(expected)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert (HEAD in found) is not tied
    assert tied_weights(model) == ({HEAD: EMBEDDING} if tied else {})


def test_the_order_is_that_of_the_modules(llama):
    names = [name for name, _ in policy_weights(llama(tied=False, num_layers=1))]
    assert names == [
        EMBEDDING,
        "model.layers.0.self_attn.q_proj.weight",
        "model.layers.0.self_attn.k_proj.weight",
        "model.layers.0.self_attn.v_proj.weight",
        "model.layers.0.self_attn.o_proj.weight",
        "model.layers.0.mlp.gate_proj.weight",
        "model.layers.0.mlp.up_proj.weight",
        "model.layers.0.mlp.down_proj.weight",
        "model.layers.0.input_layernorm.weight",
        "model.layers.0.post_attention_layernorm.weight",
        "model.norm.weight",
        HEAD,
    ]


def test_a_plain_weight_is_no_copy_and_has_no_gradient(llama):
    model = llama()
    name, tensor = next(policy_weights(model))
    assert name == EMBEDDING
    assert not tensor.requires_grad
    assert tensor.data_ptr() == model.model.embed_tokens.weight.data_ptr()


def test_an_untied_head_that_the_config_calls_tied_is_sent(llama):
    model = llama(tied=True)
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach() + 1)
    found = dict(policy_weights(model))
    assert torch.equal(found[HEAD], found[EMBEDDING] + 1)
    assert tied_weights(model) == {}


def test_persistent_buffers_and_nested_heads_are_sent():
    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.lm_head = nn.Linear(2, 3, bias=False)

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.mtp = Inner()
            self.register_buffer("scale", torch.tensor(2))
            self.register_buffer("scratch", torch.zeros(4), persistent=False)

        def get_extra_state(self):
            return {"no": "tensor"}

        def set_extra_state(self, state):
            pass

    assert weight_metas(Outer()) == [
        WeightMeta("scale", torch.int64, ()),
        WeightMeta("mtp.lm_head.weight", torch.float32, (3, 2)),
    ]


def test_what_a_model_never_saves_is_not_sent(llama, tmp_path):
    model = llama()
    model._keys_to_ignore_on_save = ["model.norm.weight"]
    assert set(dict(policy_weights(model))) == set(saved(model, tmp_path))
    assert "model.norm.weight" not in dict(policy_weights(model))


def test_metas_are_what_comes(llama):
    model = llama().to(torch.bfloat16)
    came = [WeightMeta(n, t.dtype, tuple(t.shape)) for n, t in policy_weights(model)]
    assert weight_metas(model) == came
    assert came[0] == WeightMeta(EMBEDDING, torch.bfloat16, (33, 16))


def test_experts_come_as_their_folder_has_them_a_layer_at_a_time(tmp_path):
    config = MixtralConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        num_local_experts=3,
    )
    model = MixtralForCausalLM(config)
    expected = saved(model, tmp_path)
    found = list(policy_weights(model))
    assert len(found) == len(expected)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in found)
    assert "model.layers.1.block_sparse_moe.experts.2.w1.weight" in expected
    layers = [name.split(".")[2] for name, _ in found if ".layers." in name]
    assert layers == sorted(layers)
    assert found[0][0] == EMBEDDING
    assert weight_metas(model) == [WeightMeta(n, t.dtype, tuple(t.shape)) for n, t in found]


RANK = """
import datetime, shutil, sys
from pathlib import Path
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from transformers import LlamaForCausalLM
from rlgym_llm.errors import WeightSyncError
from rlgym_llm_trainers.generators.weight_sync import files
from rlgym_llm_trainers.generators.weight_sync.source import (
    policy_weights,
    tied_weights,
    weight_metas,
)

folder, rank = Path(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(1)
dist.init_process_group(
    "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2,
    timeout=datetime.timedelta(seconds=100),
)
mesh = init_device_mesh("cpu", (2,))
gathered, gather = [], DTensor.full_tensor
DTensor.full_tensor = lambda self: gathered.append(1) or gather(self)


def take_part(model):
    gathered.clear()
    for number, _ in enumerate(policy_weights(model), start=1):
        assert len(gathered) == number, "more than one weight was gathered at once"


def publish(model, name):
    with files.WeightFiles(folder) as published:
        usage = files.shutil.disk_usage
        files.shutil.disk_usage = lambda path: usage(path)._replace(free=0)
        try:
            published.publish(model, 3)
        except WeightSyncError as error:
            assert "no room" in str(error)
        else:
            raise AssertionError("published without room")
        files.shutil.disk_usage = usage
        shutil.copy(published.publish(model, 3), folder / f"{name}.gathered")


for name in sys.argv[3:]:
    model = LlamaForCausalLM.from_pretrained(folder / name)
    whole = weight_metas(model), tied_weights(model)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    assert isinstance(model.lm_head.weight, DTensor)
    assert (weight_metas(model), tied_weights(model)) == whole
    take_part(model)
    if rank == 0:
        publish(model, name)
    else:
        take_part(model)
        take_part(model)
    dist.barrier()
dist.destroy_process_group()
"""


def test_two_ranks_gather_bit_for_bit_and_a_failed_write_leaves_none_waiting(llama, tmp_path):
    # A vocabulary of 33 does not divide by two ranks.
    expected = {
        name: saved(llama(tied=name == "tied"), tmp_path / name) for name in ("tied", "untied")
    }
    (tmp_path / "rank.py").write_text(RANK)
    ranks = [
        subprocess.Popen(
            [sys.executable, str(tmp_path / "rank.py"), str(tmp_path), str(rank), *expected],
            env=dict(os.environ, OMP_NUM_THREADS="1"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [process.communicate(timeout=250)[0] for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    assert [process.returncode for process in ranks] == [0, 0], "\n".join(said)
    for name, weights in expected.items():
        found = load_file(tmp_path / f"{name}.gathered")
        assert set(found) == set(weights)
        assert all(torch.equal(found[key], weights[key]) for key in weights)


@pytest.mark.data
def test_tied_head_case(bug_report, policy, llama, engine_of):
    case = bug_report("sync-tied_head")
    given = case["input"]
    assert policy.model.config.tie_word_embeddings == given["tie_word_embeddings"]
    named = [name for name, _ in policy_weights(policy.model)]
    assert [name for name in named if name in given["engine_has"]] == given["sent"]
    engine = engine_of(policy)
    with torch.no_grad():
        policy.model.model.embed_tokens.weight.mul_(1.5)
    engine.pause()
    engine.start_weight_update()
    engine.update_weights(policy_weights(policy.model))
    held, ours = engine.policy.model.state_dict(), policy.model.state_dict()
    are_equal = all(torch.equal(held[name], ours[name]) for name in given["engine_has"])
    assert are_equal == case["right"]["values"]["equal"]
    assert HEAD in dict(policy_weights(llama(tied=False)))
