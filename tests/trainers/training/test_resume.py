"""A run that was ended, in whatever way, goes on to the bits of one that was left alone."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from types import SimpleNamespace

import pytest
from rlgym_llm_trainers.cli import main
from rlgym_llm_trainers.training import collector
from rlgym_llm_trainers.training import step as step_module
from rlgym_llm_trainers.training.resume import Start, taken
from rlgym_llm_trainers.training.run_folder import RunFolder
from safetensors.torch import load_file, save_file

from rlgym_llm.config import load_config
from rlgym_llm.errors import RlgymError, UserError

ROWS = [
    {"question": f"Tom has {n} pens and buys {n} more. How many?", "answer": f"#### {2 * n}"}
    for n in (3, 4, 5, 6)
]
NUM_STEPS = 4  # of two tasks each: step 3 opens the second epoch
A_STEP = 8  # rollouts
PLUGIN = """
    import copy
    import os
    import signal

    from rlgym_llm import hookimpl, reward
    from rlgym_llm.specs import EnvSpec, GeneratorSpec, RewardSpec
    from rlgym_llm_trainers.generators.hf_generator import HFGenerator
    from rlgym_llm_trainers.models.policy import Policy

    @reward("ending", range=(0, 1))
    def ending(completion):
        # Ends the run in the middle of a step, where it is told to.
        done = int(os.environ.get("SCORED", "0")) + 1
        os.environ["SCORED"] = str(done)
        if done >= int(os.environ.get("ERROR_AT", "1000")):
            raise ConnectionError("the judge is down")
        if str(done) == os.environ.get("CTRL_C_AT"):
            os.kill(os.getpid(), signal.SIGINT)
        return len(completion) % 7 / 7

    class Copying(HFGenerator):
        # Samples from weights of its own, so that it may run ahead of the learner.
        has_own_weights = True

        @classmethod
        def from_config(cls, policy, config):
            model = copy.deepcopy(policy.model)
            made = cls(Policy(**{**FIELDS(policy), "model": model}))
            made.learned = policy.model
            return made

        def sync(self, version):
            self._policy.model.load_state_dict(self.learned.state_dict())
            return super().sync(version)

    def FIELDS(policy):
        return {name: getattr(policy, name) for name in policy.__dataclass_fields__}

    sync_to_disk, kill_at = os.fsync, int(os.environ.get("KILL_AT_FSYNC", "0"))
    if kill_at:
        synced = []

        def fsync(descriptor):
            sync_to_disk(descriptor)
            synced.append(descriptor)
            if len(synced) == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

        os.fsync = fsync

    @hookimpl
    def rlgym_register(kind):
        made = {
            "env": EnvSpec(name="sums", entry_point="rlgym_llm_envs.arithmetic:ArithmeticEnv"),
            "reward": RewardSpec(name="ending", entry_point=f"{__name__}:ending"),
            "generator": GeneratorSpec(
                name="copying", entry_point=f"{__name__}:Copying.from_config"
            ),
        }
        return [made[kind]] if kind in made else []
"""
PLAIN = ("--actor.use_kl_loss=true", "--actor.optim.lr_scheduler_type=cosine")
AHEAD = ("--rollout.name=copying", "--rollout.max_staleness=1", "--rollout.top_k=40")


class Folder:
    """Runs of the same settings in several folders."""

    def __init__(self, path):
        self.path = path
        (path / "mine.py").write_text(textwrap.dedent(PLUGIN))
        (path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))

    def words(self, name, *flags):
        return [
            *("--plugin", str(self.path / "mine.py"), "--output", str(self.path / name)),
            *("--data.train", str(self.path / "rows.jsonl"), "--reward", "ending"),
            *("--data.train_batch_size", "2", "--rollout.n", "4", "--trainer.num_threads", "1"),
            *("--data.max_prompt_length", "128", "--data.max_response_length", "24"),
            *("--actor.ppo_mini_batch_size", "1", "--actor.optim.lr", "1e-4"),
            *("--trainer.total_training_steps", str(NUM_STEPS), "--trainer.save_freq", "100"),
            *flags,
        ]

    def run(self, name, *flags):
        os.environ["SCORED"] = "0"
        try:
            return main(self.words(name, *flags))
        finally:
            del os.environ["SCORED"]

    def rows(self, name):
        lines = (self.path / name / "metrics.jsonl").read_text().splitlines()
        return [{k: v for k, v in json.loads(line).items() if not is_time(k)} for line in lines]

    def weights(self, name):
        return (self.path / name / "model" / "model.safetensors").read_bytes()

    def checkpoints(self, name):
        return sorted(path.name for path in (self.path / name / "checkpoints").glob("step_*"))

    def assert_same(self, name, other):
        assert self.rows(name) == self.rows(other)
        assert self.weights(name) == self.weights(other)


def is_time(key):
    return key.startswith(("timing_s/", "timing_per_token_ms/", "perf/")) or "idle_ratio" in key


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """A run that nobody disturbs."""
    folder = Folder(tmp_path_factory.mktemp("runs"))
    assert folder.run("calm", *PLAIN) == 0
    assert folder.checkpoints("calm") == [f"step_{NUM_STEPS}"], "the last step is always saved"
    return folder


@pytest.mark.parametrize(
    ("name", "cause", "scored", "code", "saved"),
    [
        # In the middle of step 3, so that step 2, the end of the epoch, is the last whole one.
        ("judge", "ERROR_AT", 2 * A_STEP + 3, 1, "step_2"),
        # The step that is under way is finished.
        ("ctrl_c", "CTRL_C_AT", 2 * A_STEP + 3, 130, "step_3"),
    ],
)
def test_an_error_and_ctrl_c_leave_a_checkpoint_that_goes_on_to_the_same_bits(
    calm, monkeypatch, capsys, name, cause, scored, code, saved
):
    with monkeypatch.context() as patch:
        patch.setenv(cause, str(scored))
        assert calm.run(name, *PLAIN) == code
    assert calm.checkpoints(name) == [saved]
    capsys.readouterr()
    assert calm.run(name, *PLAIN) == 0
    assert f"holds this run: going on after step {saved[-1]}" in capsys.readouterr().out
    calm.assert_same(name, "calm")


def test_an_error_after_an_update_names_the_checkpoint_that_is_left(calm, monkeypatch, capsys):
    found = step_module.staleness_metrics

    def failing(rollouts, version):
        if version == 2:
            raise RlgymError("the metrics are lost")
        return found(rollouts, version)

    with monkeypatch.context() as patch:
        patch.setattr(step_module, "staleness_metrics", failing)
        assert calm.run("moved", *PLAIN, "--trainer.save_freq=1") == 1
    stderr = capsys.readouterr().err
    assert "the newest checkpoint is of step 2" in stderr
    assert "the model after 3 steps is in" in stderr
    assert calm.checkpoints("moved") == ["step_1", "step_2"]
    assert calm.run("moved", *PLAIN) == 0
    calm.assert_same("moved", "calm")


def test_a_filled_buffer_goes_on_with_the_groups_that_waited(tmp_path, monkeypatch):
    folder = Folder(tmp_path)

    class AtOnce(threading.Thread):
        """Samples before anything else goes on, so that what is sampled under what is certain."""

        def start(self):
            self.run()

        def join(self, timeout=None):
            pass

    monkeypatch.setattr(collector, "threading", SimpleNamespace(Thread=AtOnce))
    dumps = tmp_path / "dumps"
    ahead = [*AHEAD, f"--trainer.rollout_data_dir={dumps}"]
    assert folder.run("calm", *AHEAD) == 0
    with monkeypatch.context() as patch:
        patch.setenv("ERROR_AT", str(2 * A_STEP + 3))
        assert folder.run("ended", *ahead) == 1
    assert sorted(path.name for path in dumps.iterdir()) == ["1.jsonl", "2.jsonl", "3.jsonl"]
    (step_2,) = (tmp_path / "ended" / "checkpoints").glob("step_*")
    assert len((step_2 / "buffer.jsonl").read_text().splitlines()) == A_STEP  # those of step 3
    assert (step_2 / "kept_sets.safetensors").is_file()
    assert folder.run("ended", *ahead) == 0
    folder.assert_same("ended", "calm")
    for step in range(1, NUM_STEPS + 1):  # step 3 once, though it was begun twice
        assert len((dumps / f"{step}.jsonl").read_text().splitlines()) == A_STEP
    assert folder.rows("calm")[-1]["training/off_policy/trajectory_staleness/max"] == 1

    # A new run of another batch size has no use for them, and does not wait for the rest either.
    source = ["--trainer.resume_mode=resume_path", f"--trainer.resume_from_path={step_2}"]
    assert folder.run("wider", *AHEAD, *source, "--data.train_batch_size=4") == 0
    assert [row["step"] for row in folder.rows("wider")] == [1, 2, 3, 4]
    # Nor does one that takes whatever groups are complete.
    assert folder.run("dropping", *AHEAD, *source, "--rollout.stale=drop") == 0
    assert [row["step"] for row in folder.rows("dropping")] == [1, 2, 3, 4]


@pytest.mark.parametrize("left", [None, "metrics.jsonl", "model", "tensorboard"])
def test_a_new_folder_is_given_up_where_nothing_was_learned_in_it(tmp_path, left):
    config = load_config(["--trainer.save_freq=1"])
    run, source = RunFolder(path=tmp_path / "out"), tmp_path / "step_1"
    source.mkdir()
    (source / "metrics.jsonl").write_text("")

    @taken(Start(run=run, checkpoint=source), config, total_steps=1)
    def refused_run():
        if left is not None:
            (run.path / left).write_text("{}")
        raise UserError("refused")

    with pytest.raises(UserError, match="refused"):
        refused_run()
    assert run.config.exists() == (left is not None)
    assert run.path.exists() == (left is not None)


def test_a_machine_that_is_about_to_go_has_every_step_saved(tmp_path, monkeypatch):
    end = "MLP_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP"
    monkeypatch.setenv(end, str(time.time() + 1000))
    folder = Folder(tmp_path)
    flags = ["--trainer.total_training_steps=3"]
    assert folder.run("early", *flags) == 0
    assert folder.checkpoints("early") == ["step_3"]
    assert folder.run("late", *flags, "--trainer.esi_redundant_time=1000") == 0
    assert folder.checkpoints("late") == ["step_1", "step_2", "step_3"]


def test_a_new_run_begins_from_a_checkpoint_of_another(calm, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        patch.setenv("ERROR_AT", str(A_STEP + 1))
        assert calm.run("first", *PLAIN) == 1
    step_1 = calm.path / "first" / "checkpoints" / "step_1"
    source = ["--trainer.resume_mode", "resume_path", "--trainer.resume_from_path", str(step_1)]
    assert calm.run("second", *PLAIN, *source) == 0
    calm.assert_same("second", "calm")
    assert calm.run("third", *PLAIN, *source[:3], str(step_1.parent)) == 2
    stderr = capsys.readouterr().err
    assert f"is no whole checkpoint; in {step_1.parent} these are whole: step_1" in stderr
    assert calm.run("third", *PLAIN, *source[:3], f"{step_1}0") == 2
    stderr = capsys.readouterr().err
    assert f"there is no such folder; in {step_1.parent} these are whole: step_1" in stderr
    assert calm.run("third", *PLAIN, *source, "--model.lora_rank=4") == 2
    stderr = capsys.readouterr().err
    assert "other parameters were trained there (model.lora_rank: 0 -> 4)" in stderr
    assert stderr.count("\n") == 1
    assert not (calm.path / "third").exists()


@pytest.fixture
def step_1(calm, monkeypatch):
    """A checkpoint of another run."""
    path = calm.path / "origin" / "checkpoints" / "step_1"
    if not path.exists():
        with monkeypatch.context() as patch:
            patch.setenv("ERROR_AT", str(A_STEP + 1))
            assert calm.run("origin", *PLAIN) == 1
    return path


def forge(checkpoint, change):
    """Changes something in a checkpoint by hand, and makes its manifest fit."""
    change(checkpoint)
    path = checkpoint / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["files"] = {
        str(file.relative_to(checkpoint)): file.stat().st_size
        for file in checkpoint.rglob("*")
        if file.is_file() and file != path
    }
    path.write_text(json.dumps(manifest))


def lose_weights(checkpoint):
    shutil.rmtree(checkpoint / "actor")


def tear_metrics(checkpoint):
    with (checkpoint / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "actor/pg')


def edit_progress(checkpoint, change):
    path = checkpoint / "progress.json"
    stored = json.loads(path.read_text())
    change(stored)
    path.write_text(json.dumps(stored))


def empty_random(checkpoint):
    edit_progress(checkpoint, lambda stored: stored.update(random={}))


def begin_too_much(checkpoint):
    edit_progress(checkpoint, lambda stored: stored["collector"].update(num_begun=2))


def miss_unknown_places(checkpoint):
    missing = [{"step": 2, "places": [0, 2], "indices": [0, 1]}]
    edit_progress(checkpoint, lambda stored: stored["collector"].update(missing=missing))


def miss_unknown_tasks(checkpoint):
    missing = [{"step": 2, "places": [0, 1], "indices": [0, 4]}]
    edit_progress(checkpoint, lambda stored: stored["collector"].update(missing=missing))


def shrink_weights(checkpoint):
    (shard,) = (checkpoint / "actor").glob("*.safetensors")
    tensors = load_file(shard)
    del tensors[min(name for name in tensors if name.startswith("weight."))]
    (checkpoint / "actor" / "model.safetensors.index.json").unlink(missing_ok=True)
    save_file(tensors, shard)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lose_weights, "actor: no such folder, so there are no weights of the actor"),
        (tear_metrics, "metrics.jsonl:2: no metrics of a step"),
        (empty_random, "progress.json: random: no state of generators"),
        (begin_too_much, "progress.json: collector: lacks groups of step 2"),
        (miss_unknown_places, "progress.json: collector: step 2 misses more groups than it has"),
        (miss_unknown_tasks, "progress.json: collector: holds groups of tasks that are not there"),
        (shrink_weights, "actor: another model was trained there: "),
    ],
)
def test_a_checkpoint_that_was_changed_by_hand_is_one_line_and_takes_no_folder(
    calm, step_1, capsys, change, says
):
    name = change.__name__
    shutil.copytree(step_1.parents[1], calm.path / name)
    shutil.rmtree(calm.path / name / "model")
    forged = calm.path / name / "checkpoints" / "step_1"
    forge(forged, change)
    source = ["--trainer.resume_mode=resume_path", f"--trainer.resume_from_path={forged}"]
    for output, words in ((name, []), ("mended", source)):  # its own run, and another
        assert calm.run(output, *PLAIN, *words) == 2
        stderr = capsys.readouterr().err
        assert f"{forged}/{says}" in stderr
        assert stderr.count("\n") == 1
    assert not (calm.path / "mended").exists()


def test_a_new_run_that_is_killed_before_its_first_checkpoint_begins_there_again(
    calm, step_1, monkeypatch, capsys
):
    source = ["--trainer.resume_mode=resume_path", f"--trainer.resume_from_path={step_1}"]
    # The same words, and the plain ones, which remember where the run began.
    for words in (source, source, [], []):
        with monkeypatch.context() as patch:
            patch.setenv("ERROR_AT", "3")
            assert calm.run("again", *PLAIN, *words) == 1
        assert not (calm.path / "again" / "model").exists(), "it would be that of the other run"
        assert f"going on after step 1 of {step_1}" in capsys.readouterr().out
    assert calm.checkpoints("again") == []
    assert calm.run("again", *PLAIN) == 0
    calm.assert_same("again", "calm")
    assert calm.run("again", *PLAIN, *source) == 0, "its own checkpoint comes first"
    assert f"going on after step {NUM_STEPS}" in capsys.readouterr().out
    assert calm.run("again", *PLAIN, source[0], f"--trainer.resume_from_path={step_1}0") == 2
    assert "the folder is in use" in capsys.readouterr().err


def test_a_run_of_which_no_checkpoint_is_whole_is_refused_and_not_begun_again(calm, capsys):
    shutil.copytree(calm.path / "calm", calm.path / "hurt")
    shutil.rmtree(calm.path / "hurt" / "model")
    name = f"step_{NUM_STEPS}"
    (calm.path / "hurt" / "checkpoints" / name / "progress.json").write_text("{")
    before = calm.rows("hurt")
    assert calm.run("hurt", *PLAIN) == 2
    stderr = capsys.readouterr().err
    assert f"none of its checkpoints is whole ({name}); bring one back" in stderr
    assert stderr.count("\n") == 1
    assert calm.rows("hurt") == before


def test_a_validation_that_fails_costs_no_step(calm, monkeypatch):
    rows = str(calm.path / "rows.jsonl")
    flags = [*PLAIN, f"--data.val={rows}", "--trainer.test_freq=2"]
    flags += ["--trainer.val_before_train=false"]
    with monkeypatch.context() as patch:
        patch.setenv("ERROR_AT", str(2 * A_STEP + 1))  # the first score of the validation
        assert calm.run("validated", *flags) == 1
    assert calm.checkpoints("validated") == ["step_2"]
    assert calm.rows("validated") == calm.rows("calm")[:2]
    assert calm.run("validated", *flags) == 0
    *earlier, last = calm.rows("validated")
    assert earlier == calm.rows("calm")[:3]
    assert {key: last[key] for key in calm.rows("calm")[3]} == calm.rows("calm")[3]
    assert any(key.startswith("val-") for key in last), "one row has all of a step"
    assert calm.weights("validated") == calm.weights("calm")


def test_what_a_checkpoint_of_another_run_has_not_begins_anew_and_is_said(calm, step_1, capsys):
    words = calm.words("other_kind", "--env=sums", "--data.curriculum.type=success")
    place = words.index("--data.train")
    words[place : place + 2] = ["--data.val_max_samples=1"]
    words += ["--trainer.resume_mode=resume_path", f"--trainer.resume_from_path={step_1}"]
    words += ["--algorithm.adv_estimator=gae", "--trainer.total_training_steps=2"]
    assert main(words) == 0
    stdout = capsys.readouterr().out
    assert "the curriculum begins anew: the state is of no curriculum" in stdout
    assert "holds no critic, which begins as in a new run" in stdout
    assert "other training tasks than in the checkpoint (4 then, " in stdout
    assert [row["step"] for row in calm.rows("other_kind")] == [1, 2]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([*ROWS, {**ROWS[0], "answer": "#### 7"}], "(4 then, 5 now)"),
        (ROWS[::-1], "(4 of them, but not the same)"),
    ],
)
def test_a_run_does_not_go_on_with_other_tasks(calm, capsys, rows, says):
    path = calm.path / "rows.jsonl"
    before = path.read_text()
    metrics = calm.path / "calm" / "metrics.jsonl"
    known = metrics.read_text()
    newer = known + json.dumps({"step": NUM_STEPS + 1}) + "\n"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    metrics.write_text(newer)
    try:
        assert calm.run("calm", *PLAIN) == 2
        assert metrics.read_text() == newer  # not even what a run that goes on would do again
    finally:
        path.write_text(before)
        metrics.write_text(known)
    stderr = capsys.readouterr().err
    assert f"the training tasks have changed since step {NUM_STEPS} {says}" in stderr
    assert stderr.count("\n") == 1


def test_a_run_that_is_done_saves_its_model_and_may_be_made_longer(calm, capsys):
    assert calm.run("short", *PLAIN[:1], "--trainer.total_training_steps=2") == 0
    (model,) = (calm.path / "short" / "model").glob("*.safetensors")
    before = model.read_bytes()
    model.unlink()  # as if the run had been killed before
    assert calm.run("short", *PLAIN[:1], "--trainer.total_training_steps=2") == 0
    assert model.read_bytes() == before
    assert len(calm.rows("short")) == 2
    assert calm.run("short", *PLAIN[:1], "--trainer.total_training_steps=1") == 2
    assert "is of step 2, and the run has 1" in capsys.readouterr().err
    keeps = ["--trainer.save_freq=1", "--trainer.max_actor_ckpt_to_keep=2"]
    assert calm.run("short", *PLAIN[:1], *keeps) == 0
    assert "--trainer.total_training_steps: 2 -> 4" in capsys.readouterr().out
    assert calm.checkpoints("short") == ["step_3", "step_4"]
    # With a constant learning rate 2 + 2 steps are 4.
    assert calm.run("long", *PLAIN[:1]) == 0
    calm.assert_same("short", "long")


def test_other_settings_are_named_and_refused_and_nothing_is_touched(calm, capsys):
    before = calm.rows("calm"), calm.weights("calm")
    flags = ["--actor.optim.lr=1e-5", "--trainer.save_freq=50"]
    assert calm.run("calm", *PLAIN, *flags) == 2
    stderr = capsys.readouterr().err
    assert "actor.optim.lr: 0.0001 -> 1e-05" in stderr
    assert "save_freq" not in stderr
    assert stderr.count("\n") == 1
    assert calm.run("calm", *PLAIN, "--trainer.resume_mode=disable") == 2
    assert "the folder is in use" in capsys.readouterr().err
    assert (calm.rows("calm"), calm.weights("calm")) == before


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--output", "~no_such_user_at_all/run"),
        ("--output", "a" * 300),
        ("--trainer.resume_from_path", "~no_such_user_at_all/step_1"),
    ],
)
def test_a_place_that_cannot_be_is_one_line(calm, capsys, flag, value):
    source = ["--trainer.resume_mode=resume_path"] if "resume" in flag else []
    assert calm.run("nowhere", *PLAIN, *source, f"{flag}={value}") == 2
    stderr = capsys.readouterr().err
    assert f"{flag} {value}" in stderr
    assert stderr.count("\n") == 1


def test_a_folder_that_is_no_run_of_this_kind_stays_as_it_is(calm, capsys):
    other = calm.path / "other"
    other.mkdir()
    (other / "config.yaml").write_text("services: {}\n")
    assert calm.run("other", *PLAIN) == 2
    assert "the folder is in use" in capsys.readouterr().err
    assert [path.name for path in other.iterdir()] == ["config.yaml"]
    assert calm.run("unsaved", *PLAIN, "--trainer.save_freq=-1") == 0
    assert not (calm.path / "unsaved" / "checkpoints").exists()
    assert calm.run("unsaved", *PLAIN) == 2
    assert "the folder is in use: it holds a run without checkpoints" in capsys.readouterr().err


def test_kill_9_inside_a_save_and_before_the_first_one_costs_no_bit(calm):
    flags = [*PLAIN, "--trainer.save_freq=1"]
    command = [sys.executable, "-m", "rlgym_llm_trainers.cli", *calm.words("killed", *flags)]
    # A save waits for the disk eight times: weights, actor, config, metrics, progress, manifest,
    # and the two folders around them.
    for kill_at, left in ((5, []), (9, ["step_1"])):
        done = subprocess.run(
            command,
            env={**os.environ, "OMP_NUM_THREADS": "1", "KILL_AT_FSYNC": str(kill_at)},
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == -signal.SIGKILL, done.stderr
        (partial,) = (calm.path / "killed" / "checkpoints").glob("*.partial")
        assert [name for name in calm.checkpoints("killed") if name != partial.name] == left
    assert calm.run("killed", *flags) == 0
    assert calm.checkpoints("killed") == [f"step_{step}" for step in range(1, NUM_STEPS + 1)]
    calm.assert_same("killed", "calm")
