"""`rlgym-train` as a person runs it: real model, real steps, in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from rlgym_llm_trainers.cli import main
from rlgym_llm_trainers.learner.batch import collate
from rlgym_llm_trainers.learner.batch_logprobs import batch_logprobs
from rlgym_llm_trainers.learner.sample import sample_from_rollout
from rlgym_llm_trainers.models.policy import load_policy

from rlgym_llm.config import load_config
from rlgym_llm.store import read_rollouts

SMALL = {
    "--data.train_batch_size": "4",
    "--rollout.n": "4",
    "--data.val_max_samples": "8",
    "--trainer.total_training_steps": "2",
    "--trainer.num_threads": "1",
}


def command(output: Path, *flags: str, **over: str) -> list[str]:
    words = [sys.executable, "-m", "rlgym_llm_trainers.cli", "--output", str(output)]
    for key, value in {**SMALL, **over}.items():
        words += [key, value]
    return [*words, *flags]


def run(output: Path, *flags: str, **over: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(output, *flags, **over),
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=output.parent,
        check=False,
    )


def read_metrics(output: Path) -> list[dict[str, float | None]]:
    lines = (output / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def untimed(rows: list[dict[str, float | None]]) -> list[dict[str, float | None]]:
    def is_timing(key: str) -> bool:
        return key.startswith("timing_s/") or key in ("perf/throughput", "perf/time_per_step")

    return [{k: v for k, v in row.items() if not is_timing(k)} for row in rows]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    flags = [
        "--trainer.test_freq=1",
        "--trainer.log_val_generations=1",
        "--actor.use_kl_loss=true",
        "--actor.ppo_mini_batch_size=2",
        f"--trainer.rollout_data_dir={folder}/rollouts",
        f"--trainer.validation_data_dir={folder}/validations",
    ]
    done = run(folder / "out", *flags)
    assert done.returncode == 0, done.stderr
    return folder, done, flags


def test_the_first_line_says_that_these_are_starter_problems(finished):
    _, done, _ = finished
    assert done.stdout.splitlines()[0].startswith("starter problems: ")
    assert "not GSM8K" in done.stdout.splitlines()[0]
    assert "\x1b" not in done.stdout, "a pipe gets no colours"
    assert done.stderr == ""


def test_metrics_are_one_object_a_step_under_verls_names(finished):
    folder, _, _ = finished
    rows = read_metrics(folder / "out")
    assert [row["step"] for row in rows] == [0, 1, 2]
    for row in rows:
        assert 0 <= row["val-core/rlgym/starter/acc/mean@1"] <= 1
        assert 0 <= row["val-aux/rlgym/starter/lenient/mean@1"] <= 1
    for key in (
        "actor/pg_loss",
        "actor/pg_clipfrac",
        "actor/ppo_kl",
        "actor/kl_loss",
        "actor/entropy",
        "actor/grad_norm",
        "actor/lr",
        "critic/rewards/mean",
        "response_length/mean",
        "response_length/clip_ratio",
        "rewards/math/mean",
        "scoring/error_rate",
        "timing_s/gen",
        "training/global_step",
        "training/rollout_probs_diff_max",
    ):
        assert isinstance(rows[1][key], float | int), key
    # On the first mini-batch of a step generator and learner are the same policy.
    assert rows[1]["training/rollout_ratio_diff_max"] < 1e-4
    # The second mini-batch learns from a policy one update old.
    assert rows[2]["actor/ppo_kl"] != 0
    assert rows[1]["scoring/error_rate"] == 0


def test_validation_before_and_after_stands_at_the_end(finished):
    _, done, _ = finished
    for name in ("acc", "lenient", "format"):
        assert f"validation {name}/mean@1 on rlgym/starter: " in done.stdout
    assert "points)" in done.stdout


def test_the_curve_is_drawn_and_saved(finished):
    folder, done, _ = finished
    assert "┤" in done.stdout
    assert (folder / "out" / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_the_same_seed_gives_the_same_bits(finished):
    folder, _, flags = finished
    again = run(folder / "again", *[flag for flag in flags if "data_dir" not in flag])
    assert again.returncode == 0
    assert untimed(read_metrics(folder / "again")) == untimed(read_metrics(folder / "out"))
    first = (folder / "out" / "model" / "model.safetensors").read_bytes()
    assert (folder / "again" / "model" / "model.safetensors").read_bytes() == first


def test_the_saved_model_gives_the_log_probs_that_the_trainer_had(finished):
    folder, _, _ = finished
    stored = read_rollouts(folder / "validations" / "2.jsonl")
    assert len(stored.records) == 8
    saved = load_policy(folder / "out" / "model", device=torch.device("cpu"))
    for record in stored.records:
        sample = sample_from_rollout(record.rollout)
        batch = collate([sample], saved.pad_token_id)
        with torch.no_grad():
            found, _ = batch_logprobs(saved.model, batch, temperature=1.0)
        assert found[0].tolist() == pytest.approx(sample.rollout_logprobs, abs=2e-5)


def test_rollouts_are_dumped_one_file_a_step(finished):
    folder, _, _ = finished
    for step in (1, 2):
        records = read_rollouts(folder / "rollouts" / f"{step}.jsonl").records
        assert len(records) == 16
        assert {record.step for record in records} == {step}
        versions = {record.rollout.max_policy_version for record in records}
        assert versions == {step - 1}


def test_the_written_config_runs_again(finished):
    folder, _, _ = finished
    config = load_config(["--config", str(folder / "out" / "config.yaml")])
    assert config.data.train_batch_size == 4
    assert config.actor.use_kl_loss is True


def test_a_folder_in_use_is_refused_before_anything_is_touched(finished):
    folder, _, _ = finished
    before = (folder / "out" / "metrics.jsonl").read_bytes()
    done = run(folder / "out")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "the folder is in use" in done.stderr
    assert (folder / "out" / "metrics.jsonl").read_bytes() == before


def test_stop_strings_end_responses_of_training_and_validation(tmp_path):
    dumps = tmp_path / "train", tmp_path / "val"
    stop = "answer is"  # which the starter model says often, in tokens that end so
    flags = ["--rollout.stop", f'["{stop}"]', "--trainer.test_freq=1"]
    flags += [f"--trainer.rollout_data_dir={dumps[0]}", f"--trainer.validation_data_dir={dumps[1]}"]
    done = run(tmp_path / "out", *flags)
    assert done.returncode == 0, done.stderr
    for files in dumps:
        paths = sorted(files.glob("*.jsonl"))
        texts = [record.rollout.text for path in paths for record in read_rollouts(path).records]
        stopped = [text for text in texts if stop in text]
        assert stopped
        assert all(text.endswith(stop) for text in stopped)


def test_val_only_trains_nothing_and_saves_no_model(tmp_path):
    done = run(tmp_path / "out", "--trainer.val_only")
    assert done.returncode == 0
    assert [row["step"] for row in read_metrics(tmp_path / "out")] == [0]
    assert not (tmp_path / "out" / "model").exists()
    assert "validation acc/mean@1 on rlgym/starter: " in done.stdout


def test_ctrl_c_ends_after_the_step_with_the_model_saved(tmp_path):
    output = tmp_path / "out"
    over = {"--trainer.total_training_steps": "10000"}
    process = subprocess.Popen(
        command(output, "--trainer.val_before_train=false", **over),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    metrics = output / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while not (metrics.exists() and metrics.read_text().count("\n") >= 2):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "no step within two minutes"
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.startswith("ending after this step")
    assert err.count("\n") == 1
    assert load_policy(output / "model", device=torch.device("cpu")).num_parameters > 500_000
    assert len(read_metrics(output)) < 10000


BAD_INPUT = [
    (["--env", "math-gsm9k"], "did you mean 'math-gsm8k'"),
    (["--reward", "mth=1.0"], "did you mean 'math'"),
    (["--rolout.n", "4"], "rollout.n"),
    (["--rollout.n", "four"], "--rollout.n"),
    (["--data.train", "absent.jsonl"], "absent.jsonl"),
    (["--model", "/no/such/folder"], "--model /no/such/folder: no such folder"),
    (["--actor.ppo_mini_batch_size", "3"], "--actor.ppo_mini_batch_size 3 does not divide"),
    (["--rollout.top_p", "0"], "top_p"),
    (["--data.max_prompt_length", "4"], "at most 4 tokens"),
    (["--data.max_response_length", "100000"], "positions"),
    (["--rollout.max_model_len", "5"], "positions, but --rollout.max_model_len is 5"),
    (["--rollout.max_model_len", "100000"], "max_model_len 100000: the model"),
    (["--trainer.device", "cuda:7"], "--trainer.device cuda:7"),
    (["--config", "absent.yaml"], "absent.yaml"),
    (["--plugin", "absent.py"], "absent.py"),
]


@pytest.mark.parametrize(("flags", "says"), BAD_INPUT, ids=[" ".join(f) for f, _ in BAD_INPUT])
def test_bad_input_is_one_line_and_exit_code_two(tmp_path, capsys, flags, says):
    output = tmp_path / "out"
    assert main([*command(output)[3:], *flags]) == 2
    stderr = capsys.readouterr().err
    assert says in stderr
    assert stderr.count("\n") == 1
    assert stderr.startswith("rlgym-train: ")
    assert not output.exists(), "nothing is left behind"


def test_a_malformed_data_file_is_named_with_its_line(tmp_path, capsys):
    rows = ['{"question": "1 + 1?", "answer": "#### 2"}', '{"question": "no answer"}']
    (tmp_path / "train.jsonl").write_text("\n".join(rows) + "\n")
    argv = [*command(tmp_path / "out")[3:], "--data.train", str(tmp_path / "train.jsonl")]
    assert main(argv) == 2
    stderr = capsys.readouterr().err
    assert "train.jsonl:2: " in stderr
    assert "'answer'" in stderr
    assert stderr.count("\n") == 1
