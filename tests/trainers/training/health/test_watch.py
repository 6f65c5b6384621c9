"""The rules together: what is said, what is logged, what ends a run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import pytest
from rlgym_llm_trainers.cli import main
from rlgym_llm_trainers.training.health.rules import RULES
from rlgym_llm_trainers.training.health.watch import Watch

from rlgym_llm.config import load_config
from rlgym_llm.config_health import HealthRule
from rlgym_llm.errors import ConfigError

DOC = Path(__file__).parents[4] / "docs" / "health.md"
CUT = {"response_length/clip_ratio": 0.5, "response_length/max": 96.0, "num_turns/max": 1.0}
MASK = {"training/num_trained_tokens": 3.0, "training/num_sampled_tokens": 2.0}


def watch(*flags):
    return Watch(load_config(["--trainer.health.window", "2", *flags]))


def test_the_starter_run_is_healthy(starter_run):
    watched = Watch(load_config([]))
    assert len(starter_run) == 40
    for row in starter_run:
        assert watched.observe(int(row["step"]), row).findings == ()


def test_every_rule_is_a_name_of_the_configuration_and_of_the_documentation():
    assert tuple(RULES) == get_args(HealthRule)
    assert all(rule.__name__ == name for name, rule in RULES.items())
    rows = re.findall(r"^\| `(\w+)` \|", DOC.read_text("utf-8"), re.MULTILINE)
    assert rows == list(RULES)


def test_a_finding_is_logged_each_step_and_said_once_in_a_while():
    watched = watch("--trainer.health.quiet_steps", "3")
    said, logged = [], []
    for step in range(1, 11):
        checkup = watched.observe(step, CUT)
        said += [step for _ in checkup.news]
        logged.append(checkup.metrics)
    assert said == [2, 6, 10]  # the window is full at 2, then three quiet steps each time
    assert logged == [{}] + [{"health/truncation": 1.0}] * 9


def test_what_is_said_follows_from_the_rows_alone(starter_run):
    rows = [
        row | {"response_length/clip_ratio": step % 3 / 4} for step, row in enumerate(starter_run)
    ]
    whole, resumed = watch(), watch()
    for step, row in enumerate(rows[:20]):
        whole.observe(step, row)
    for step, row in enumerate(rows[:20]):
        resumed.observe(step, json.loads(json.dumps(row)))
    for step, row in enumerate(rows[20:], start=20):
        assert whole.observe(step, row) == resumed.observe(step, row)


@pytest.mark.parametrize(
    ("flags", "fatal"),
    [
        ([], None),
        (["--trainer.health.mode", "stop"], "mask_sanity"),  # an error; the cut is a warning
        (["--trainer.health.stop_on", "[truncation]"], "truncation"),
        (
            ["--trainer.health.mode", "stop", "--trainer.health.ignore", "[mask_sanity]"],
            None,
        ),
    ],
)
def test_what_ends_a_run(flags, fatal):
    watched = watch(*flags)
    watched.observe(1, CUT)
    checkup = watched.observe(2, CUT | MASK)
    assert (checkup.fatal.rule if checkup.fatal else None) == fatal


def test_off_looks_at_nothing():
    watched = watch("--trainer.health.mode", "off")
    for step in range(4):
        assert watched.observe(step, CUT | MASK).findings == ()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--trainer.health.stop_on", "[truncaton]"], "did you mean 'truncation'?"),
        (["--trainer.health.ignore", "[reward_dop]"], "did you mean 'reward_drop'?"),
        (["--trainer.health.mode", "halt"], "expected 'warn', 'stop' or 'off'"),
        (["--trainer.health.window", "1"], "at least 2"),
        (
            ["--trainer.health.mode", "off", "--trainer.health.stop_on", "[kl_spike]"],
            "stop_on has no effect with mode off",
        ),
        (
            ["--trainer.health.ignore", "[kl_spike]", "--trainer.health.stop_on", "[kl_spike]"],
            "kl_spike stands in stop_on and in ignore",
        ),
    ],
)
def test_a_configuration_that_cannot_be_meant_is_refused(flags, words):
    with pytest.raises(ConfigError, match=re.escape(words)):
        load_config(flags)


SMALL = [
    *("--data.train_batch_size", "4", "--rollout.n", "4", "--trainer.total_training_steps", "3"),
    *("--trainer.val_before_train", "false", "--data.val_max_samples", "2"),
    *("--data.max_response_length", "24", "--trainer.num_threads", "1"),
    *("--trainer.health.window", "2", "--rollout.temperature", "0.01"),
]


def run(tmp_path, *flags):
    code = main([*SMALL, "--output", str(tmp_path / "out"), *flags])
    lines = (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()
    return code, [json.loads(line) for line in lines]


def test_a_run_of_siblings_that_are_alike_says_so(tmp_path, capsys):
    code, rows = run(tmp_path)
    assert code == 0
    (line,) = [
        line for line in capsys.readouterr().out.splitlines() if "zero_variance_groups" in line
    ]
    assert line.startswith("health, step 2: zero_variance_groups: ")
    assert "--rollout.temperature" in line
    assert [row.get("health/zero_variance_groups") for row in rows] == [None, 1.0, 1.0]
    assert all(
        row["training/num_trained_tokens"] == row["training/num_sampled_tokens"] for row in rows
    )


def test_a_run_that_is_told_to_stop_does_and_keeps_the_model(tmp_path, capsys):
    code, rows = run(tmp_path, "--trainer.health.stop_on", "[zero_variance_groups]")
    assert code == 1
    stderr = capsys.readouterr().err
    assert stderr.count("\n") == 1
    assert "health, step 2: zero_variance_groups: " in stderr
    assert "the model after 2 steps is in" in stderr
    assert [row["step"] for row in rows] == [1, 2]
    assert (tmp_path / "out" / "model" / "model.safetensors").is_file()
