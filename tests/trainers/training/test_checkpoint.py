"""A checkpoint is whole or is not taken, holds all that a run goes on with, and runs nothing."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import pickle
import random
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rlgym_llm_trainers.training.buffer import BufferState, LeftOut, Offer
from rlgym_llm_trainers.training.checkpoint import (
    Progress,
    is_whole,
    read_progress,
    save_checkpoint,
)
from rlgym_llm_trainers.training.checkpoints import Checkpoints
from rlgym_llm_trainers.training.collector import CollectorState
from rlgym_llm_trainers.training.past import read_rows
from rlgym_llm_trainers.training.random_state import load_random_state, random_state
from rlgym_llm_trainers.training.saver import seconds_left

from rlgym_llm.errors import DataError, RlgymError, UserError
from rlgym_llm.kept_sets import KeptSets
from rlgym_llm.scores import CardStatus, Component, ScoreCard, ScoreStatus

TESTED = {
    "ckpt-full_state_dict_collective": "learner/test_sharded_state.py",
    "ckpt-interrupted_save": "training/test_checkpoint.py",
    "ckpt-mid_epoch_position": "training/test_stored_groups.py",
    "ckpt-tied_weights_safetensors": "learner/test_stored_state.py",
    "ckpt-unsafe_pickle": "learner/test_stored_state.py",
}
"""Public bug reports of the peers, and the files that test them."""


def test_every_public_bug_report_about_checkpoints_is_tested(test_data):
    lines = (test_data / "cases" / "bug_reports.jsonl").read_text().splitlines()
    reported = [found["id"] for found in map(json.loads, lines) if found["area"] == "ckpt"]
    assert sorted(reported) == sorted(TESTED)
    for name, file in TESTED.items():
        text = (Path(__file__).parents[1] / file).read_text(encoding="utf-8")
        assert f'bug_report("{name}")' in text


class Weights:
    """A learner whose state is a number in a file."""

    updates_done = 0

    def __init__(self, number=7, *, fails=False):
        self.number = number
        self.fails = fails

    def save(self, folder):
        folder.mkdir()
        (folder / "number").write_text(str(self.number))
        if self.fails:
            raise OSError(28, "No space left on device")

    def load(self, folder):
        self.number = int((folder / "number").read_text())


@pytest.fixture
def files(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n')
    (tmp_path / "config.yaml").write_text("seed: 0\n")
    return {"metrics": tmp_path / "metrics.jsonl", "config": tmp_path / "config.yaml"}


def progress_of(step, **changes):
    given = {
        "step": step,
        "policy_version": step,
        "kl_coef": 0.1 + 0.2,
        "sampler": {"observed": {"level 1": [1 / 3, 1.0]}},
        "random": random_state(),
        "collector": CollectorState(num_begun=step),
    }
    return Progress(**{**given, **changes})


def save(folder, step, files, **options):
    save_checkpoint(folder, progress_of(step), {"actor": Weights(**options)}, **files)


def test_progress_is_read_back_equal_with_the_waiting_groups_and_their_kept_sets(
    tmp_path, files, group_of
):
    plain, cut = group_of(3, 4, name="a"), group_of(4, name="b")
    (turn,) = cut.rollouts[0].turns
    kept = replace(turn.completion, kept_token_ids=KeptSets.of([(2, 9)]))
    rollout = replace(cut.rollouts[0], turns=(replace(turn, completion=kept),))
    cut = replace(cut, rollouts=(rollout,))
    card = ScoreCard(
        rollout_id=rollout.id,
        components={
            "right": Component(
                raw=1 / 3, weight=1.0, transformed=1 / 3, contribution=1 / 3, status=ScoreStatus.OK
            )
        },
        reward=1.0,
        status=CardStatus.SCORED,
    )
    greedy = group_of(4, name="greedy").rollouts[0]
    left_out = LeftOut(indices=(7, 9), successes=(None, 1 / 3), metrics={"evicted": 2.0})
    offers = (
        Offer(step=5, place=1, index=31, group=cut, greedy=greedy, cards=(card,)),
        Offer(step=5, place=0, index=30, group=plain, left_out=left_out),
    )
    collector = CollectorState(
        num_begun=6,
        buffer=BufferState(
            offers=offers, missing={6: frozenset({0, 2})}, num_dropped=2, num_taken=8
        ),
        indices={6: (40, 41, 40)},
    )
    tasks = {"count": 9, "digest": "0123456789abcdef"}
    progress = progress_of(4, collector=collector, tasks=tasks)
    save_checkpoint(tmp_path / "step_4", progress, {"actor": Weights()}, **files)
    assert read_progress(tmp_path / "step_4") == progress
    assert is_whole(tmp_path / "step_4")


def test_random_generators_draw_on_where_they_were():
    state = json.loads(json.dumps(random_state()))

    def draw():
        return (
            random.random(),
            random.gauss(0, 1),
            np.random.standard_normal(3).tolist(),
            torch.rand(3),
        )

    random.gauss(0, 1)  # leaves a second number for the next call
    state = json.loads(json.dumps(random_state()))
    first = draw()
    draw()
    load_random_state(state)
    again = draw()
    assert again[:3] == first[:3]
    assert torch.equal(again[3], first[3])


@pytest.mark.parametrize(
    "lost", ["manifest.json", "progress.json", "actor/number", "metrics.jsonl"]
)
@pytest.mark.parametrize("how", ["gone", "cut"])
def test_a_folder_that_lacks_a_file_or_a_byte_is_not_whole(tmp_path, files, lost, how):
    save(tmp_path / "step_1", 1, files)
    path = tmp_path / "step_1" / lost
    content = path.read_bytes()
    path.unlink()
    if how == "cut":
        path.write_bytes(content[:-1])
    assert not is_whole(tmp_path / "step_1")


def test_a_save_that_was_interrupted_is_never_taken(tmp_path, files, bug_report):
    case = bug_report("ckpt-interrupted_save")
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    save(checkpoints.folder(10), 10, files)
    with pytest.raises(RlgymError, match="No space left"):
        save(checkpoints.folder(20), 20, files, fails=True)
    # What a kill leaves: the folder beside its place, and, of a copy, one without a manifest.
    (checkpoints.path / "step_20.partial" / "actor").mkdir(parents=True)
    (checkpoints.path / "step_20").mkdir()
    (newest,) = checkpoints.whole()
    assert newest.name == f"step_{case['right']['values']['resume_from']}"
    assert [folder.name for folder in checkpoints.broken()] == ["step_20"]
    checkpoints.remove_unfinished()
    assert not list(checkpoints.path.glob("*.partial"))
    checkpoints.keep_last(1)
    assert checkpoints.whole() == [newest], "the last whole one stays"
    save(checkpoints.folder(20), 20, files)  # in the place of what was left
    assert checkpoints.whole()[-1].name == "step_20"


def test_the_newest_are_kept_and_the_newest_is_that_of_the_latest_step(tmp_path, files):
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    assert checkpoints.whole() == []
    for step in (9, 10, 100):
        save(checkpoints.folder(step), step, files)
    (checkpoints.path / "notes").mkdir()
    assert [folder.name for folder in checkpoints.whole()] == ["step_9", "step_10", "step_100"]
    checkpoints.keep_last(2)
    assert [folder.name for folder in checkpoints.whole()] == ["step_10", "step_100"]
    assert (checkpoints.path / "notes").is_dir()


def test_a_kill_while_an_older_one_is_deleted_leaves_nothing_that_stays(
    tmp_path, files, monkeypatch
):
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    for step in (1, 2):
        save(checkpoints.folder(step), step, files)

    def killed(folder, **options):
        if folder.exists():
            (folder / "manifest.json").unlink()
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            checkpoints.keep_last(1)
    assert checkpoints.broken() == []
    checkpoints.remove_unfinished()
    assert [path.name for path in checkpoints.path.iterdir()] == ["step_2"]


def test_the_folders_of_the_learners_are_on_the_disk_before_the_manifest(
    tmp_path, files, monkeypatch
):
    names = []

    def fsync(file):
        names.append(Path(os.readlink(f"/proc/self/fd/{file}")).name)

    monkeypatch.setattr(os, "fsync", fsync)
    save(tmp_path / "step_1", 1, files)
    assert names.index("actor") < names.index("manifest.json") < names.index("step_1.partial")


@pytest.mark.parametrize(("key", "value"), [("step", 2), ("format", 2)])
def test_a_manifest_of_another_step_or_layout_makes_no_whole_checkpoint(
    tmp_path, files, key, value
):
    save(tmp_path / "step_1", 1, files)
    path = tmp_path / "step_1" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    assert not is_whole(tmp_path / "step_1")


def test_a_disk_without_locks_is_not_taken_for_another_run(tmp_path, monkeypatch):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", no_locks)
    with (
        pytest.raises(UserError, match="cannot be locked: No locks available"),
        Checkpoints(tmp_path / "checkpoints").locked(),
    ):
        pass


def test_two_runs_do_not_write_in_one_folder(tmp_path):
    hold = (
        "import sys\nfrom pathlib import Path\n"
        "from rlgym_llm_trainers.training.checkpoints import Checkpoints\n"
        "with Checkpoints(Path(sys.argv[1])).locked():\n"
        "    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    path = tmp_path / "checkpoints"
    other = subprocess.Popen(
        [sys.executable, "-c", hold, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with other:
        assert other.stdout.readline() == "held\n"
        with (
            pytest.raises(UserError, match="another run is writing there"),
            Checkpoints(path).locked(),
        ):
            pass
        other.kill()  # the lock goes with its process
    with Checkpoints(path).locked():
        pass


def test_a_checkpoint_of_another_layout_is_refused_by_its_number(tmp_path, files):
    save(tmp_path / "step_1", 1, files)
    path = tmp_path / "step_1" / "progress.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(DataError, match="of format 2; this version reads 1"):
        read_progress(tmp_path / "step_1")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"step": -3}, "step: Input should be greater than or equal to 0"),
        ({"step": 2}, "is of step 2, in the folder step_1"),
        ({"step": "1"}, "step: Input should be a valid integer"),
        ({"policy_version": 1.5}, "policy_version: Input should be a valid integer"),
        ({"kl_coef": None}, "kl_coef: Input should be a valid number"),
        ({"sampler": []}, "sampler: Input should be a valid dict"),
        ({"random": 7}, "random: Input should be a valid dict"),
        ({"tasks": "many"}, "tasks: Input should be a valid dict"),
        ({"collector": {}}, "num_begun: Field required"),
    ],
)
def test_progress_of_another_kind_is_refused_with_its_file_and_key(tmp_path, files, changes, says):
    save(tmp_path / "step_1", 1, files)
    path = tmp_path / "step_1" / "progress.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(DataError) as caught:
        read_progress(tmp_path / "step_1")
    assert str(caught.value).startswith(f"{path}: ")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["python", "numpy", "torch"])
@pytest.mark.parametrize("value", [None, [], "zz", {}])
def test_a_random_state_that_is_none_is_refused_with_its_file(key, value):
    state = random_state()
    with pytest.raises(DataError, match=r"^progress.json: random: no state of generators"):
        load_random_state({**state, key: value}, path=Path("progress.json"))
    with pytest.raises(DataError, match="no state of generators: KeyError"):
        load_random_state({})
    load_random_state(state)


@pytest.mark.parametrize("line", ['{"step": 2, "acto', "7", "[]", '{"actor/lr": 1}', "\udcff"])
def test_a_torn_row_of_metrics_is_refused_with_its_line(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step": 1}}\n{line}\n', encoding="utf-8", errors="surrogateescape")
    with pytest.raises(DataError) as caught:
        read_rows(path)
    assert str(caught.value) == f"{path}:2: no metrics of a step"


class Malicious:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("name", ["progress.json", "manifest.json", "buffer.jsonl"])
def test_pickles_in_the_place_of_plain_files_run_nothing(tmp_path, files, group_of, name):
    offer = Offer(step=2, place=0, index=0, group=group_of(1))
    state = CollectorState(buffer=BufferState(offers=(offer,)))
    save_checkpoint(
        tmp_path / "step_1", progress_of(1, collector=state), {"actor": Weights()}, **files
    )
    marker = tmp_path / "pwned"
    (tmp_path / "step_1" / name).write_bytes(pickle.dumps(Malicious(marker)))
    assert not is_whole(tmp_path / "step_1")
    if name != "manifest.json":
        with pytest.raises(DataError):
            read_progress(tmp_path / "step_1")
    assert not marker.exists()


@pytest.mark.parametrize(
    ("environ", "left"),
    [
        ({}, None),
        ({"MLP_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP": "1030.5"}, 30.5),
        ({"SAGEMAKER_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP": "990"}, -10.0),
        ({"MLP_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP": "soon"}, None),
    ],
)
def test_the_announced_end_of_a_machine_is_read_from_its_environment(environ, left):
    assert seconds_left(environ, now=1000.0) == left
