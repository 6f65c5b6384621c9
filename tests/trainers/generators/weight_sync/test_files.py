"""Weight files are whole or not there, their bits are right, and memory is reused unread only."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections import namedtuple

import pytest
import torch
from rlgym_llm_trainers.generators.weight_sync import files as module
from rlgym_llm_trainers.generators.weight_sync.files import WeightFiles, open_weights, read_weights
from rlgym_llm_trainers.generators.weight_sync.source import policy_weights
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from rlgym_llm.errors import UserError, WeightSyncError

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def files(tmp_path):
    with WeightFiles(tmp_path) as made:
        yield made


def filled(number):
    """One weight of two pages, so that a file is more than its header."""
    return [("w", torch.full((2048,), float(number)))]


def held(path):
    return dict(read_weights(path))["w"]


class Pinned:
    """A file that stays known, so that another is never taken for it by a number used again."""

    def __init__(self, path):
        self.file = path.open("rb")

    def __eq__(self, other):
        return os.path.samestat(os.fstat(self.file.fileno()), os.stat(other))

    __hash__ = None


@pytest.fixture
def pin():
    """Remembers a file, without a lock: ``pin(path) == other`` says whether it is that one."""
    with contextlib.ExitStack() as stack:

        def remember(path):
            pinned = Pinned(path)
            stack.callback(pinned.file.close)
            return pinned

        yield remember


@pytest.mark.parametrize("tied", [True, False])
def test_a_model_comes_back_bit_for_bit(files, llama, tied):
    model = llama(tied=tied)
    path = files.publish(model, 3)
    assert path.name == "v3.safetensors"
    opened = open_weights(path, version=3)
    assert opened.version == 3
    assert opened.tied == ({"lm_head.weight": "model.embed_tokens.weight"} if tied else {})
    expected = list(policy_weights(model))
    assert [name for name, _ in opened.weights] == [name for name, _ in expected]
    assert all(torch.equal(a, b) for (_, a), (_, b) in zip(opened.weights, expected, strict=True))


def test_safetensors_reads_every_dtype_and_shape(files):
    weights = {
        "flag": torch.tensor([True, False, True]),
        "byte": torch.arange(5, dtype=torch.uint8),
        "half": torch.randn(7, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16),
        "empty": torch.empty(0, 4),
        "scalar": torch.tensor(1.5),
        "across": torch.arange(6.0).view(2, 3).T,
        "wide": torch.tensor([2**40]),
    }
    path = files.publish(weights.items(), 12)
    for found in (load_file(path), dict(read_weights(path))):
        assert set(found) == set(weights)
        for name, tensor in weights.items():
            assert found[name].dtype == tensor.dtype
            assert torch.equal(found[name], tensor), name
    with safe_open(path, "pt") as opened:
        assert opened.metadata() == {
            "format": "pt",
            "schema": "1",
            "policy_version": "12",
            "tied": "{}",
        }


def test_a_reader_copies_nothing_and_changes_no_file(files):
    path = files.publish(filled(1), 0)
    held(path).add_(5)
    assert held(path)[0] == 1


def test_no_name_is_there_before_its_file_is_whole(files):
    first = files.publish(filled(0), 0)
    model = torch.nn.Module()
    model.w = torch.nn.Parameter(torch.ones(2048))
    seen = []

    class Watching(torch.nn.Module):
        def state_dict(self, **options):
            return model.state_dict(**options)

    gather = module.policy_weights

    def watched(watched_model):
        for pair in gather(watched_model):
            seen.append(sorted(path.name for path in first.parent.iterdir()))
            assert held(first)[0] == 0
            yield pair

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "policy_weights", watched)
        files.publish(Watching(), 1)
    assert seen == [["new0.partial", "v0.safetensors"]]


def test_memory_of_a_version_given_up_is_written_again(files, pin):
    first = pin(files.publish(filled(0), 0))
    second = pin(files.publish(filled(1), 1))
    files.forget_before(1)
    path = files.publish(filled(2), 2)
    assert first == path
    assert held(path)[0] == 2
    files.forget_before(2)
    path = files.publish(filled(3), 3)
    assert second == path
    assert {p.name for p in path.parent.iterdir()} == {"v2.safetensors", "v3.safetensors"}
    assert held(path)[-1] == 3
    assert load_file(path)["w"][0] == 3


def test_memory_that_is_still_read_is_left_alone(files, pin):
    path = files.publish(filled(0), 0)
    first = pin(path)
    reading = held(path)  # the tensor alone keeps the lock
    files.publish(filled(1), 1)
    files.forget_before(1)
    again = files.publish(filled(2), 2)
    assert first != again
    assert reading.unique().tolist() == [0]
    assert held(again)[0] == 2
    assert len(list(again.parent.iterdir())) == 2


def test_memory_read_by_another_process_is_left_alone(files, pin):
    path = files.publish(filled(0), 0)
    code = (
        "import sys; from rlgym_llm_trainers.generators.weight_sync.files import read_weights\n"
        "w = dict(read_weights(sys.argv[1]))['w']; print('open', flush=True)\n"
        "sys.stdin.readline(); print(w.unique().tolist())"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as reader:
        assert reader.stdout.readline().strip() == "open"
        first = pin(path)
        files.publish(filled(1), 1)
        files.forget_before(1)
        assert first != files.publish(filled(2), 2)
        said, _ = reader.communicate("\n", timeout=60)
    assert said.strip() == "[0.0]"


def test_weights_of_another_size_take_new_memory(files, pin):
    first = pin(files.publish(filled(0), 0))
    files.publish(filled(1), 1)
    files.forget_before(1)
    path = files.publish([("w", torch.ones(10))], 2)
    assert first != path
    assert held(path).tolist() == [1.0] * 10


def test_the_newest_is_never_given_up_and_the_one_before_only_when_told(files):
    paths = [files.publish(filled(number), number) for number in range(3)]
    assert [held(path)[0].item() for path in paths] == [0, 1, 2]
    files.forget_before(2)
    files.forget_before(99)
    assert held(paths[2])[0] == 2
    for path in paths[:2]:
        with pytest.raises(WeightSyncError, match="no such weight file"):
            open_weights(path)
    assert len(list(paths[2].parent.iterdir())) == 2  # it, and one to write into


def test_a_version_may_be_published_again(files):
    path = files.publish(filled(0), 0)
    reading = held(path)
    assert files.publish(filled(5), 0) == path
    assert held(path)[0] == 5
    assert reading[0] == 0


def test_a_failure_leaves_earlier_versions_and_nothing_else(files, llama, monkeypatch):
    first = files.publish(llama(), 0)

    def broken(model):
        yield next(policy_weights(model))
        raise RuntimeError("a rank died")

    with monkeypatch.context() as patch:
        patch.setattr(module, "policy_weights", broken)
        with pytest.raises(WeightSyncError, match="version 1 cannot be published: a rank died"):
            files.publish(llama(), 1)
    assert [path.name for path in first.parent.iterdir()] == ["v0.safetensors"]
    assert open_weights(first).version == 0
    assert open_weights(files.publish(llama(), 1)).version == 1


def test_what_was_announced_must_come(files, llama, monkeypatch):
    for wrong in (lambda pairs: pairs[1:], lambda pairs: pairs[:-1], lambda pairs: pairs + pairs):

        def other(model, wrong=wrong):
            return iter(wrong(list(policy_weights(model))))

        monkeypatch.setattr(module, "policy_weights", other)
        with pytest.raises(WeightSyncError, match="announced"):
            files.publish(llama(), 0)


def free(monkeypatch, num_bytes):
    def usage(path):
        return Usage(0, 0, num_bytes(path) if callable(num_bytes) else num_bytes)

    monkeypatch.setattr(module.shutil, "disk_usage", usage)


def test_no_room(files, tmp_path, monkeypatch):
    first = files.publish(filled(0), 0)
    free(monkeypatch, 4_000)
    with pytest.raises(WeightSyncError) as caught:
        files.publish([("w", torch.zeros(500_000))], 1)
    assert str(caught.value) == (
        f"no room in {tmp_path} for weights of 2 MB (0 MB are free); "
        "make room or name another folder as rollout.weight_sync.folder"
    )
    assert [path.name for path in first.parent.iterdir()] == ["v0.safetensors"]


def test_room_that_goes_while_the_file_is_made(files, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    files.publish(filled(0), 0)
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(WeightSyncError, match="no room"):
        files.publish(filled(1), 1)
    monkeypatch.undo()
    path = files.publish(filled(1), 1)
    assert len(list(path.parent.iterdir())) == 2


@pytest.mark.parametrize(("room", "name"), [(40_000, "shared"), (20_000, "other")])
def test_shared_memory_where_it_has_room_for_two_versions(tmp_path, monkeypatch, room, name):
    for folder in ("shared", "other"):
        (tmp_path / folder).mkdir()
    monkeypatch.setattr(module, "_SHARED_MEMORY", tmp_path / "shared")
    monkeypatch.setattr(module.tempfile, "gettempdir", lambda: str(tmp_path / "other"))
    shared = str(tmp_path / "shared")
    free(monkeypatch, lambda path: room if str(path).startswith(shared) else 10**9)
    with WeightFiles() as made:
        assert made.publish(filled(0), 0).parents[1].name == name  # 12 kB


def test_a_folder_of_the_users_has_room_for_two_versions_or_is_refused_at_once(
    files, tmp_path, monkeypatch
):
    free(monkeypatch, 20_000)
    with pytest.raises(WeightSyncError, match=f"no room in {tmp_path} for weights of"):
        files.publish(filled(0), 0)  # 12 kB: the second one would end the run
    assert list(tmp_path.iterdir()) == []
    free(monkeypatch, 40_000)
    assert files.publish(filled(0), 0).exists()


def test_without_shared_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_SHARED_MEMORY", tmp_path / "none")
    monkeypatch.setattr(module.tempfile, "gettempdir", lambda: str(tmp_path))
    with WeightFiles() as made:
        assert made.publish(filled(0), 0).parents[1] == tmp_path


def test_a_folder_that_cannot_be_used(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"rollout\.weight_sync\.folder .*file: cannot be used"):
        WeightFiles(tmp_path / "file")
    with WeightFiles(tmp_path / "new" / "one") as made:
        assert held(made.publish(filled(1), 0))[0] == 1


def test_what_cannot_be_opened_is_one_line(files, tmp_path):
    path = files.publish(filled(0), 4)
    whole = path.read_bytes()
    torn = tmp_path / "torn.safetensors"
    for length in (0, 4, 200, len(whole) - 1):
        torn.write_bytes(whole[:length])
        with pytest.raises(WeightSyncError, match=r"torn\.safetensors: the file is torn"):
            open_weights(torn)
    save_file({"w": torch.ones(1)}, torn)
    with pytest.raises(WeightSyncError, match="no weight file of this library"):
        open_weights(torn)
    with pytest.raises(WeightSyncError, match="holds version 4 and not 5"):
        read_weights(path, version=5)
    with pytest.raises(WeightSyncError, match="cannot be opened: Is a directory"):
        open_weights(tmp_path)


def test_a_name_that_goes_while_it_is_opened(files, monkeypatch):
    path = files.publish(filled(0), 0)
    files.publish(filled(1), 1)
    lock = module.fcntl.flock

    def late(file, how):
        monkeypatch.undo()
        files.forget_before(1)
        files.publish(filled(2), 2)  # into the file that was opened
        lock(file, how)

    monkeypatch.setattr(module.fcntl, "flock", late)
    with pytest.raises(WeightSyncError, match="no such weight file"):
        open_weights(path)


def test_closing_removes_the_folder_and_readers_keep_theirs(tmp_path):
    made = WeightFiles(tmp_path)
    reading = held(made.publish(filled(7), 0))
    made.publish(filled(8), 1)
    made.forget_before(1)
    made.close()
    made.close()
    assert list(tmp_path.iterdir()) == []
    assert reading[0] == 7
