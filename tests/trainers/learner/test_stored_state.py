"""Weights and optimizer on disk: the same bits back, other models refused, nothing executed."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from pathlib import Path

import pytest
import torch
from rlgym_llm_trainers.learner.stored_state import load_state, save_state
from safetensors import safe_open
from torch import nn

from rlgym_llm.errors import DataError, RlgymError


class Tied(nn.Module):
    """A head that is the embedding, a frozen layer, and a weight of one number."""

    def __init__(self, *, width: int = 4) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, width)
        self.frozen = nn.Linear(width, width).requires_grad_(False)
        self.head = nn.Linear(width, 7, bias=False)
        self.head.weight = self.embed.weight
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, ids):
        return self.scale * self.head(self.frozen(self.embed(ids)))


def made(seed: int, **options):
    torch.manual_seed(seed)
    module = Tied(**options)
    return module, torch.optim.AdamW(module.parameters(), lr=0.1, fused=True)


def train(module, optimizer, num_steps: int) -> None:
    for _ in range(num_steps):
        optimizer.zero_grad(set_to_none=True)
        module(torch.tensor([1, 2, 5])).square().mean().backward()
        optimizer.step()


def test_a_trained_module_goes_on_as_if_it_had_never_been_stored(tmp_path):
    module, optimizer = made(0)
    train(module, optimizer, 3)
    save_state(tmp_path / "a", module, optimizer, {"updates_done": 3})
    train(module, optimizer, 3)

    torch.manual_seed(0)
    again, its_optimizer = made(0)
    with torch.no_grad():
        again.embed.weight.add_(1.0)
    train(again, its_optimizer, 1)  # what it had learned is put away
    assert load_state(tmp_path / "a", again, its_optimizer) == {"updates_done": 3}
    train(again, its_optimizer, 3)
    for one, other in zip(module.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)
    assert again.head.weight is again.embed.weight


def test_an_optimizer_that_has_not_stepped_is_as_new_again(tmp_path):
    module, optimizer = made(0)
    save_state(tmp_path / "a", module, optimizer, {})
    train(module, optimizer, 1)
    load_state(tmp_path / "a", module, optimizer)
    assert not optimizer.state
    assert torch.equal(module.embed.weight, made(0)[0].embed.weight)


def test_tied_weights_are_stored_once_and_the_logits_are_the_same(tmp_path, bug_report):
    right = bug_report("ckpt-tied_weights_safetensors")["right"]["values"]
    module, optimizer = made(0)
    train(module, optimizer, 1)
    save_state(tmp_path / "a", module, optimizer, {})
    (path,) = (tmp_path / "a").glob("*.safetensors")
    with safe_open(path, framework="pt") as file:
        weights = {name for name in file.keys() if name.startswith("weight.")}  # noqa: SIM118
    assert (weights == {"weight.embed.weight", "weight.scale"}) is right["saved"]
    other, its_optimizer = made(0)
    load_state(tmp_path / "a", other, its_optimizer)
    ids = torch.tensor([0, 3])
    assert torch.equal(module(ids), other(ids)) is right["equal_logits"]


def test_another_model_is_refused_by_the_name_of_a_parameter(tmp_path):
    save_state(tmp_path / "a", *made(0), {})
    with pytest.raises(DataError, match=r"embed.weight is 7 x 4 x torch.float32, here 7 x 6"):
        load_state(tmp_path / "a", *made(0, width=6))
    module, optimizer = made(0)
    module.extra = nn.Parameter(torch.zeros(2))
    with pytest.raises(DataError, match=r"weight\.extra is absent, here 2"):
        load_state(tmp_path / "a", module, optimizer)


def test_a_cut_file_and_an_empty_folder_are_refused(tmp_path):
    save_state(tmp_path / "a", *made(0), {})
    (path,) = (tmp_path / "a").glob("*.safetensors")
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(DataError, match=str(tmp_path)):
        load_state(tmp_path / "a", *made(0))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="is absent, here"):
        load_state(tmp_path / "empty", *made(0))


def test_what_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RlgymError, match="weights that cannot be written"):
        save_state(tmp_path / "file" / "a", *made(0), {})


class Malicious:
    """Unpickled, it makes a folder."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


def test_files_that_would_run_code_are_refused_and_run_nothing(tmp_path, bug_report):
    right = bug_report("ckpt-unsafe_pickle")["right"]["values"]
    marker = tmp_path / "pwned"
    payload = pickle.dumps(Malicious(marker))
    zipped = io.BytesIO()  # as torch.save writes it
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("archive/data.pkl", payload)
    module, optimizer = made(0)

    for name in (".metadata", "rng_state.pt", "optimizer.pt"):
        folder = tmp_path / f"beside{name}"
        save_state(folder, module, optimizer, {"updates_done": 1})
        (folder / name).write_bytes(payload if name == ".metadata" else zipped.getvalue())
        assert load_state(folder, module, optimizer) == {"updates_done": 1}  # never looked at

    for number, content in enumerate((payload, zipped.getvalue())):
        folder = tmp_path / f"instead{number}"
        save_state(folder, module, optimizer, {})
        (path,) = folder.glob("*.safetensors")
        path.write_bytes(content)
        with pytest.raises(DataError):
            load_state(folder, module, optimizer)
    assert marker.exists() is right["executed"]
    pickle.loads(payload)
    assert marker.exists(), "the payload itself works"
