"""What the words of `rlgym eval` amount to."""

from __future__ import annotations

import pytest
from rlgym_llm_trainers.commands.eval_cli import eval_parser, main
from rlgym_llm_trainers.commands.eval_settings import read_settings

from rlgym_llm.config import format_config, parse_command

SAMPLES = ["rollout.val_kwargs.do_sample=true", "--rollout.val_kwargs.temperature=0.5"]


def settings(*words):
    return read_settings(*eval_parser().parse_known_args(words))


def sampling(*words):
    wanted = settings(*words).config.rollout.val_kwargs
    return wanted.n, wanted.do_sample, wanted.temperature


def test_one_response_is_greedy_and_several_are_sampled():
    assert sampling() == (1, False, 0.0)
    assert sampling("--n", "4") == (4, True, 1.0)
    assert sampling("--n", "4", "--temperature", "0.6") == (4, True, 0.6)
    assert sampling("--temperature", "0.6") == (1, True, 0.6)


def test_all_tasks_unless_fewer_are_wanted():
    assert settings().config.data.val_max_samples is None
    assert settings("--max-tasks", "7").config.data.val_max_samples == 7


def test_k_is_1_and_n_unless_given():
    assert settings().ks == (1,)
    assert settings("--n", "4").ks == (1, 4)
    assert settings("--n", "4", "--k", "2,1,2").ks == (1, 2)


def test_the_starter_model_is_no_model_and_brings_its_settings():
    for words in (["--model", "starter"], ["--model=starter"]):
        config = settings(*words).config
        assert config.model.path is None
        assert config.data.max_response_length == 96
    assert settings("--model", "./starter").config.model.path == "./starter"


def test_the_configuration_of_a_training_run_is_taken_as_it_is(tmp_path):
    file = tmp_path / "config.yaml"
    words = ["--actor.optim.lr", "1e-5", "--rollout.val_kwargs.n", "2"]
    words += ["--rollout.val_kwargs.do_sample", "true", "--rollout.val_kwargs.temperature", "0.7"]
    file.write_text(format_config(parse_command(words).config))
    given = ["--config", str(file)]
    assert sampling(*given) == (2, True, 0.7)
    assert sampling(*given, "--n", "8") == (8, True, 0.7)
    assert settings(*given).config.data.val_max_samples == 200
    assert settings(*given, "--max-tasks", "3").config.data.val_max_samples == 3


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--n", "4", "--k", "8"], "--k 8 needs 8 responses a task, --n is 4"),
        (["--n", "4", "--temperature", "0"], "--n 4 at --temperature 0 is 4 times the same"),
        (["--n", "0"], "argument --n: must be at least 1, got 0"),
        (["--n", "four"], "argument --n: invalid number value: 'four'"),
        (["--k", "1;4"], "argument --k: invalid list of numbers value"),
        (["--rollout.n", "4"], "--rollout.n is a key of training, rlgym eval does not read it"),
        (["--rollout.n", "4"], "see --n"),
        (["actor.optim.lr=1"], "actor.optim.lr is a key of training"),
        (["--n", "4", *SAMPLES], "rollout.val_kwargs.temperature is given twice"),
        (["--data.vall", "x"], "did you mean --data.val?"),
        (["--top-p", "0.9"], "top_p has no effect without do_sample"),
        (["--model", "nowhere/at/all"], "no such folder"),
        (["--env", "math-gsm9k"], "did you mean 'math-gsm8k'"),
        (["--rollout.name", "vlm"], "unknown generator 'vlm'"),
    ],
)
def test_mistakes_are_one_line(words, says, capsys, tmp_path):
    assert main([*words, "--output", str(tmp_path / "out")]) == 2
    stderr = capsys.readouterr().err
    assert stderr.startswith("rlgym eval: ")
    assert stderr.count("\n") == 1
    assert says in stderr
    assert not (tmp_path / "out").exists()
