"""A run is put together, or refused, before its first step."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import textwrap

import pytest
from rlgym_llm_trainers.cli import main
from rlgym_llm_trainers.training import loggers
from rlgym_llm_trainers.training.dumps import dump

from rlgym_llm.errors import RlgymError

ROWS = [
    {"question": f"Tom has {n} pens and buys {n} more. How many?", "answer": f"#### {2 * n}"}
    for n in range(3, 15)
]
SMALL = [
    *("--data.train_batch_size", "2", "--rollout.n", "2", "--data.max_response_length", "16"),
    *("--trainer.total_training_steps", "1", "--trainer.num_threads", "1"),
]
PLUGIN = """
    from rlgym_llm import TextEnv, hookimpl
    from rlgym_llm.specs import EnvSpec
    from rlgym_llm.tasks import ListTasks
    from rlgym_llm.types import Task

    class NoSplit(TextEnv):
        accuracy = "exact_match"
        default_rewards = {"components": {"right": {"reward": "exact_match"}}}

        def __init__(self, *, breaks=False, **options):
            tasks = [Task(prompt=f"{i} + 0 =", answer=str(i)) for i in range(8)]
            self.breaks = breaks
            super().__init__(tasks=ListTasks(tasks), **options)

        def reset(self, **given):
            if self.breaks:
                raise OSError("the simulator is down")
            return super().reset(**given)

    class Split(NoSplit):
        def __init__(self, *, split="train", **options):
            super().__init__(**options)

    @hookimpl
    def rlgym_register(kind):
        if kind != "env":
            return []
        return [
            EnvSpec(name="nosplit", entry_point=f"{__name__}:NoSplit"),
            EnvSpec(name="split", entry_point=f"{__name__}:Split"),
        ]
"""


@pytest.fixture
def plugin(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(textwrap.dedent(PLUGIN))
    return str(path)


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return str(path)


def run(tmp_path, *flags):
    return main(["--output", str(tmp_path / "out"), *SMALL, *flags])


def last_row(tmp_path):
    return json.loads((tmp_path / "out" / "metrics.jsonl").read_text().splitlines()[-1])


def refused(tmp_path, capsys, *flags):
    assert run(tmp_path, *flags) == 2
    stderr = capsys.readouterr().err
    assert stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
    return stderr


def test_val_only_needs_no_training_data(tmp_path, data):
    assert (
        run(tmp_path, "--trainer.val_only", "--data.val", data, "--env.kwargs.source", "auto") == 0
    )
    assert last_row(tmp_path)["step"] == 0


def test_training_data_alone_means_no_validation_and_says_so(tmp_path, data, capsys):
    assert run(tmp_path, "--data.train", data) == 0
    assert "no validation: --data.train is given without --data.val" in capsys.readouterr().out
    assert not any(key.startswith("val-") for key in last_row(tmp_path))


def test_validation_prompts_that_are_too_long_are_left_out_aloud(tmp_path, data, capsys):
    longer = tmp_path / "longer.jsonl"
    long_row = {"question": "Tom has 3 pens. " * 60, "answer": "#### 3"}
    longer.write_text(json.dumps(long_row) + "\n" + json.dumps(ROWS[0]) + "\n")
    flags = ["--data.train", data, "--data.val", str(longer), "--data.max_prompt_length", "100"]
    assert run(tmp_path, *flags, "--trainer.log_val_generations", "5") == 0
    out = capsys.readouterr().out
    assert "1 validation tasks left out: prompt over 100 tokens" in out
    assert "12 training and 1 validation problems" in out


def test_an_environment_without_validation_tasks_is_not_validated_on_its_training_tasks(
    tmp_path, plugin, capsys
):
    assert run(tmp_path, "--plugin", plugin, "--env", "nosplit") == 0
    assert "no validation: environment nosplit has no validation tasks" in capsys.readouterr().out


def test_accuracy_is_found_by_its_reward_under_another_name(tmp_path, plugin):
    assert run(tmp_path, "--plugin", plugin, "--env", "split") == 0
    assert "val-core/unknown/acc/mean@1" in last_row(tmp_path)


def test_episodes_that_fail_end_the_run(tmp_path, plugin, capsys):
    flags = ["--plugin", plugin, "--env", "nosplit", "--env.kwargs.breaks", "true"]
    assert run(tmp_path, *flags) == 1
    stderr = capsys.readouterr().err
    assert "step 1: 4 of 4 episodes failed" in stderr
    assert "the simulator is down" in stderr
    assert not (tmp_path / "out" / "model").exists()


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--env.kwargs.split", "test"], "--env.kwargs.split: "),
        (["--env.kwargs.few_shot", "abc"], "few_shot must be a whole number, got 'abc'"),
        (["--env.kwargs.max_turns", "abc"], "--env.kwargs: math-gsm8k does not take them"),
        (["--rollout.n", "1"], "--rollout.n 1: grpo compares"),
        (["--trainer.rollout_data_dir", "."], "the folder is in use"),
        (["--trainer.rollout_data_dir", "/dev/null/x"], "/dev/null is no folder"),
        (["--seed", "99999999999999999999"], "--seed"),
        (["--env.kwargs.few_shot", "true"], "few_shot must be a whole number"),
        (["--algorithm.adv_estimator", "grop"], "did you mean 'grpo'"),
    ],
)
def test_what_cannot_work_is_refused_first(tmp_path, capsys, flags, says):
    assert says in refused(tmp_path, capsys, *flags)


def test_rules_alone_leave_the_environments_rewards_in_place(tmp_path):
    assert run(tmp_path, "--rewards.on_error", "raise", "--data.val_max_samples", "2") == 0
    assert "rewards/math/mean" in last_row(tmp_path)


def test_an_answer_without_a_number_is_found_when_the_file_is_read(tmp_path, capsys):
    path = tmp_path / "train.jsonl"
    path.write_text(json.dumps({"question": "2 + 3?", "answer": "#### five"}) + "\n")
    assert "train.jsonl:1: " in refused(tmp_path, capsys, "--data.train", str(path))


@pytest.fixture
def no_wandb(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "wandb" else find(name, *a)
    )


def test_a_logger_that_is_not_installed_leaves_nothing_behind(tmp_path, capsys, no_wandb):
    assert "wandb" in refused(tmp_path, capsys, "--trainer.logger", "[wandb]")


def test_dumps_of_training_and_validation_in_one_folder_are_refused(tmp_path, capsys):
    flags = ["--trainer.rollout_data_dir", str(tmp_path / "dumps")]
    flags += ["--trainer.validation_data_dir", str(tmp_path / "other" / ".." / "dumps")]
    assert "is the folder of --trainer.rollout_data_dir" in refused(tmp_path, capsys, *flags)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (
            ["--algorithm.filter_groups.enable", "true", "--algorithm.filter_groups.metric", "mth"],
            "mth: there is no such reward",
        ),
        (
            ["--algorithm.adv_estimator", "remax", "--reward", "ranked=1", "--plugin", "RANKED"],
            "a reward of scope group compares siblings, and the greedy response",
        ),
        (["--rollout.stale", "drop"], "--rollout.stale drop has no effect"),
        (["--rollout.name", "vlm"], "did you mean 'vllm'"),
        (["--data.train", "ROWS", "--data.val", "./none.jsonl"], "none.jsonl"),
        (["--trainer.rollout_data_dir", "."], "the folder is in use"),
        (["--trainer.logger", "[wandb]"], "wandb: the package is not installed"),
        (["--output", "."], "--output .: the folder is in use"),
        (
            ["--trainer.resume_mode=resume_path", "--trainer.resume_from_path=./step_1"],
            "step_1: there is no such folder",
        ),
        (["--actor.policy_loss", "gsp"], "did you mean 'gspo'"),
        (["--critic.model.path", "./none"], "--critic.model.path ./none: no such folder"),
        (
            ["--algorithm.rollout_correction.rollout_is_threshold", "3"],
            "rollout_is_threshold 3: has no effect",
        ),
    ],
)
@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_the_dry_run_refuses_what_the_run_refuses(
    tmp_path, capsys, plugin_file, data, no_wandb, flags, says, dry
):
    ranked = plugin_file("""
        from rlgym_llm import hookimpl
        from rlgym_llm.rewards import Reward
        from rlgym_llm.specs import RewardSpec

        class Ranked(Reward):
            name = "ranked"
            scope = "group"

            def score_group(self, rollouts, ctx):
                return [float(i) for i in range(len(rollouts))]

        @hookimpl
        def rlgym_register(kind):
            if kind != "reward":
                return []
            return [RewardSpec(name="ranked", entry_point=f"{__name__}:Ranked")]
    """)
    words = [{"RANKED": ranked, "ROWS": data}.get(word, word) for word in flags]
    assert says in refused(tmp_path, capsys, *words, *dry)


def test_a_run_that_begins_again_begins_its_loggers_again(tmp_path, data, monkeypatch, capsys):
    opened = []
    make = loggers.open_loggers

    def watched(names, **how):
        opened.append(how["last_step"])
        return make(names, **how)

    monkeypatch.setattr(loggers, "open_loggers", watched)
    flags = ["--data.train", data, "--data.val", data, "--trainer.save_freq", "1"]
    assert run(tmp_path, *flags) == 0
    for name in ("checkpoints", "model"):  # as if it had been killed before the first of them
        shutil.rmtree(tmp_path / "out" / name)
    assert run(tmp_path, *flags) == 0
    assert "holds this run: beginning again" in capsys.readouterr().out
    assert opened == [None, -1]
    rows = (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(row)["step"] for row in rows] == [0, 1]


def test_a_model_of_less_than_a_step_does_not_keep_a_run_from_beginning_again(
    tmp_path, data, capsys
):
    flags = ["--data.train", data, "--data.val", data, "--trainer.save_freq", "1"]
    assert run(tmp_path, *flags) == 0
    metrics = tmp_path / "out" / "metrics.jsonl"
    shutil.rmtree(tmp_path / "out" / "checkpoints")
    assert run(tmp_path, *flags) == 2
    assert "the folder is in use" in capsys.readouterr().err
    metrics.write_text(metrics.read_text().splitlines()[0] + "\n")  # as if step 1 had broken off
    assert run(tmp_path, *flags) == 0
    assert "holds this run: beginning again" in capsys.readouterr().out


def test_ctrl_c_ends_a_step_that_would_draw_on_and_on(tmp_path, capfd, plugin_file):
    flat = plugin_file("""
        import os
        import signal

        from rlgym_llm import hookimpl, reward
        from rlgym_llm.specs import RewardSpec

        asked = []

        @reward("flat", range=(0, 1))
        def flat(completion):
            asked.append(completion)
            if len(asked) == 1:
                os.kill(os.getpid(), signal.SIGINT)
            return 1.0

        @hookimpl
        def rlgym_register(kind):
            if kind != "reward":
                return []
            return [RewardSpec(name="flat", entry_point=f"{__name__}:flat")]
    """)
    flags = ["--plugin", flat, "--reward", "flat=1", "--algorithm.filter_groups.enable", "true"]
    flags += ["--algorithm.filter_groups.max_num_gen_batches", "50"]
    assert run(tmp_path, *flags, "--trainer.val_before_train", "false") == 130
    assert "ending after this step" in capfd.readouterr().err
    assert (tmp_path / "out" / "metrics.jsonl").read_text() == ""
    assert not (tmp_path / "out" / "model").exists()


def test_the_dry_run_imports_no_torch_and_writes_nothing(tmp_path, data):
    words = ["--data.train", data, "--data.val", data, "--output", str(tmp_path / "out"), *SMALL]
    words += ["--trainer.rollout_data_dir", str(tmp_path / "dumps"), "--dry-run"]
    code = (
        "import sys\nfrom rlgym_llm_trainers.cli import main\n"
        f"code = main({words})\nsys.exit(code or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "run          1 step" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


def test_the_dry_run_goes_by_the_run_that_is_to_go_on(tmp_path, data, capsys):
    dumps = ["--trainer.rollout_data_dir", str(tmp_path / "dumps")]
    flags = ["--data.train", data, "--trainer.save_freq", "1", *dumps]
    assert run(tmp_path, *flags) == 0
    assert run(tmp_path, *flags, "--dry-run") == 0
    assert run(tmp_path, *flags, "--dry-run", "--actor.optim.lr", "1e-3") == 2
    assert "holds a run with other settings (actor.optim.lr: " in capsys.readouterr().err


def test_a_validation_that_is_older_than_the_model_is_said(tmp_path, data, capsys, plugin_file):
    stop = plugin_file("""
        import os
        import signal

        from rlgym_llm import hookimpl, reward
        from rlgym_llm.specs import RewardSpec

        asked = []

        @reward("stop", range=(0, 1))
        def stop(completion):
            asked.append(completion)
            if len(asked) == 3:  # one of validation, four of step 1
                os.kill(os.getpid(), signal.SIGINT)
            return len(completion) % 2

        @hookimpl
        def rlgym_register(kind):
            if kind != "reward":
                return []
            return [RewardSpec(name="stop", entry_point=f"{__name__}:stop")]
    """)
    flags = ["--plugin", stop, "--reward", "stop=1", "--data.train", data, "--data.val", data]
    flags += ["--data.val_max_samples", "1", "--trainer.total_training_steps", "2"]
    assert main(["--output", str(tmp_path / "out"), *SMALL[:6], *flags]) == 130
    assert "the last validation is of step 0, the model of 1\n" in capsys.readouterr().out


def test_rollouts_that_cannot_be_written_name_their_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RlgymError, match=r"sub/3.jsonl: cannot be written: Not a directory"):
        dump(str(tmp_path / "file" / "sub"), 3, [], None)


def test_a_folder_for_rollouts_on_a_read_only_disk_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    flags = ["--trainer.validation_data_dir", str(tmp_path / "dumps")]
    assert f"dumps: {tmp_path} is not writable; name another folder" in refused(
        tmp_path, capsys, *flags
    )
