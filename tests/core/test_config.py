from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlgym_llm.config import (
    describe_config,
    format_config,
    load_config,
    parse_command,
)
from rlgym_llm.config_keys import config_keys, nearest_key
from rlgym_llm.config_schema import TrainConfig
from rlgym_llm.errors import ConfigError

DOC = Path(__file__).parents[2] / "docs" / "configuration.md"
Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def _write(text: str, name: str = "run.yaml") -> str:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    return _write


def error_of(*argv: str) -> str:
    with pytest.raises(ConfigError) as wrong:
        load_config(argv)
    message = str(wrong.value)
    assert "\n" not in message
    return message


# Values


def test_no_arguments_are_the_defaults() -> None:
    assert load_config([]) == TrainConfig()


def test_the_ways_to_write_a_flag() -> None:
    for argv in (["--rollout.n", "4"], ["--rollout.n=4"], ["rollout.n=4"], ["+rollout.n=4"]):
        assert load_config(argv).rollout.n == 4


def test_numbers() -> None:
    for text, lr in (("1e-6", 1e-6), ("1E-06", 1e-6), ("0.5", 0.5), (".5", 0.5), ("1", 1.0)):
        assert load_config(["--actor.optim.lr", text]).actor.optim.lr == lr
    assert load_config(["--trainer.test_freq", "-1"]).trainer.test_freq == -1
    assert load_config(["--data.val_max_samples", "null"]).data.val_max_samples is None
    assert load_config(["--actor.optim.betas", "[0.9, 0.95]"]).actor.optim.betas == (0.9, 0.95)


def test_text_is_taken_as_it_stands() -> None:
    for text in ("42", "no", "on", "1e-6", "true", "a: b # c", "[x", "2024-01-01", "=", "~"):
        assert load_config([f"--trainer.experiment_name={text}"]).trainer.experiment_name == text
    assert load_config(["--trainer.experiment_name", "null"]).trainer.experiment_name is None


def test_a_flag_alone_switches_on() -> None:
    config = load_config(
        ["--trainer.val_only", "rollout.n=4", "--actor.shuffle", "--data.shuffle=no"]
    )
    assert (config.trainer.val_only, config.actor.shuffle, config.data.shuffle) == (
        True,
        True,
        False,
    )
    assert config.rollout.n == 4


def test_open_keys_take_what_comes() -> None:
    config = load_config(
        ["--env.kwargs.few_shot", "4", "--env.kwargs.style=no", "--env.kwargs.note", "Answer: yes"]
    )
    assert config.env.kwargs == {"few_shot": 4, "style": "no", "note": "Answer: yes"}
    nested = load_config(["--env.kwargs", "{a: {b: 1e-3}, c: [x]}", "--env.kwargs.a.d", "2"])
    assert nested.env.kwargs == {"a": {"b": 1e-3, "d": 2}, "c": ["x"]}


def test_short_forms(write: Write) -> None:
    config = load_config(["--env", "mine", "--model", "m", "--output", "o", "--seed", "3"])
    assert (config.env.id, config.model.path) == ("mine", "m")
    assert (config.trainer.output, config.trainer.seed) == ("o", 3)
    assert load_config(["--config", write("env: mine\nmodel: m\nseed: 3")]).env.id == "mine"


def test_starter_is_no_model_of_a_users_wherever_it_stands(write: Write) -> None:
    for argv in (
        ["--model", "starter"],
        ["--model=starter"],
        ["model.path=starter"],
        ["--config", write("model: {path: starter}")],
    ):
        assert load_config(argv).model.path is None
    assert load_config(["--model", "./starter"]).model.path == "./starter"


def test_the_critic_of_the_starter_is_not_that_of_the_model() -> None:
    flags = ["--model", "m", "--algorithm.adv_estimator", "gae"]
    assert load_config(flags).critic.model.path is None
    assert load_config([*flags, "--critic.model.path", "starter"]).critic.model.path == "starter"


# Rewards


def test_reward_flags() -> None:
    config = load_config(["--reward", "math=1.0", "--reward=length=-0.001", "--reward", "format"])
    assert config.rewards is not None
    weights = {name: part.weight for name, part in config.rewards.components.items()}
    assert weights == {"math": 1.0, "length": -0.001, "format": 1.0}
    assert [part.reward for part in config.rewards.components.values()] == [
        "math",
        "length",
        "format",
    ]


def test_reward_flags_beat_a_file_and_keep_the_rest(write: Write) -> None:
    file = write(
        "rewards:\n  components:\n    correct: {reward: math, options: {a: 1}}\n    format: 0.2\n"
    )
    config = load_config(["--reward", "correct=2", "--config", file, "--rewards.clip", "[-1, 2]"])
    assert config.rewards is not None
    correct = config.rewards.components["correct"]
    assert (correct.reward, correct.weight, correct.options) == ("math", 2.0, {"a": 1})
    assert config.rewards.components["format"].weight == 0.2
    assert config.rewards.clip == (-1, 2)


def test_short_sections_of_rewards_merge(write: Write) -> None:
    file = write("rewards: {math: 1.0, on: 0.5}")
    config = load_config(["--config", file, "--rewards.components.no.weight", "3"])
    assert config.rewards is not None
    weights = {name: part.weight for name, part in config.rewards.components.items()}
    assert weights == {"math": 1.0, "on": 0.5, "no": 3}


def test_two_functions_of_one_name_do_not_hide_each_other() -> None:
    message = error_of("--reward", "a.py:score=1", "--reward", "b.py:score=1")
    assert message.startswith(
        "reward 'score' is given twice, as 'a.py:score=1' and as 'b.py:score=1'; keep one"
    )


def test_verl_custom_reward_function(write: Write) -> None:
    expected = {"path": "my.py:good"}
    for argv in (
        ["custom_reward_function.path=my.py", "custom_reward_function.name=good"],
        ["--config", write("custom_reward_function: {path: my.py, name: good}")],
    ):
        config = load_config(argv)
        assert config.rewards is not None
        assert list(config.rewards.components) == ["good"]
        component = config.rewards.components["good"]
        assert (component.reward, component.weight) == ("function", 1.0)
        assert component.options == expected
    argv = ["custom_reward_function.path=my.py", "+custom_reward_function.reward_kwargs.x=2"]
    rewards = load_config(argv).rewards
    assert rewards is not None
    assert rewards.components["compute_score"].options == {
        "path": "my.py:compute_score",
        "kwargs": {"x": 2},
    }
    assert load_config(["custom_reward_function.path=null"]).rewards is None
    assert "needs custom_reward_function.path" in error_of("custom_reward_function.name=good")


# Files and precedence


def test_later_beats_earlier_in_any_order_of_arguments(write: Write) -> None:
    first = write("rollout: {n: 2, temperature: 0.5}\nactor: {clip_ratio: 0.1}", "first.yaml")
    second = write("rollout: {n: 3}\ntrainer:", "second.yaml")
    files = ["--config", first, "--config", second]
    for argv in ([*files, "--rollout.n", "4"], ["--rollout.n", "4", *files]):
        config = load_config(argv)
        assert (config.rollout.n, config.rollout.temperature, config.actor.clip_ratio) == (
            4,
            0.5,
            0.1,
        )
    assert load_config(files).rollout.n == 3
    assert load_config(["--rollout.n", "4", "--rollout.n", "5"]).rollout.n == 5


def test_files_take_verl_spellings_and_dotted_keys(write: Write) -> None:
    file = write(
        "actor_rollout_ref:\n  actor: {optim: {lr: 1e-5}}\n  rollout: {n: 5}\n"
        "data: {train_files: a.parquet}\nactor.clip_ratio: 0.3\nenv.kwargs.x: 1\n"
    )
    config = load_config(["--config", file])
    assert (config.actor.optim.lr, config.rollout.n, config.data.train) == (1e-5, 5, "a.parquet")
    assert (config.actor.clip_ratio, config.env.kwargs) == (0.3, {"x": 1})


def test_yaml_surprises(write: Write) -> None:
    file = write("trainer: {project_name: on, experiment_name: 1:30}\ndata: {shuffle: off}")
    config = load_config(["--config", file])
    assert (config.trainer.project_name, config.trainer.experiment_name) == ("on", "1:30")
    assert config.data.shuffle is False


def test_files_that_cannot_be_used(write: Write, tmp_path: Path) -> None:
    file = write("rollout:\n  n: 4\n  temperature: [1\n")
    assert error_of("--config", file).startswith(f"{file}:4: ")
    file = write("rollout:\n  n: 4\n  top_k: -1\n  n: 5\n")
    assert error_of("--config", file) == f"{file}:4: key 'n' is given twice"
    assert "expected keys and values, got a list" in error_of("--config", write("- a\n- b\n"))
    absent = str(tmp_path / "none.yaml")
    assert error_of("--config", absent) == f"{absent}: there is no such file"
    assert "cannot be read" in error_of("--config", str(tmp_path))
    (tmp_path / "latin.yaml").write_bytes(b"trainer: {experiment_name: \xe9}")
    assert "is no UTF-8 text" in error_of("--config", str(tmp_path / "latin.yaml"))
    assert "could not determine a constructor" in error_of(
        "--config", write("a: !!python/name:os.system")
    )
    assert load_config(["--config", write("# nothing\n")]) == TrainConfig()


def test_anchors_and_merge_keys_work(write: Write) -> None:
    file = write("env: {kwargs: {base: &b {x: 1, y: 2}, more: {<<: *b, y: 3}}}")
    assert load_config(["--config", file]).env.kwargs["more"] == {"x": 1, "y": 3}


def test_plugins_add_up(write: Write) -> None:
    file = write("plugins: [a.py]")
    assert load_config(["--config", file, "--plugin", "b.py"]).plugins == ("a.py", "b.py")
    assert "expected a list" in error_of("--config", write("plugins: a.py"), "--plugin", "b.py")


# Errors


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("--actor.optim.lr fast", "--actor.optim.lr: expected a number, got 'fast'"),
        ("--actor.optim.lr -1", "--actor.optim.lr: expected at least 0, got -1"),
        ("--actor.optim.lr .nan", "--actor.optim.lr: expected a finite number, got .nan"),
        ("--actor.optim.betas [0.9]", "--actor.optim.betas: too few values, got [0.9]"),
        ("--rollout.n 8.0", "--rollout.n: expected an integer, got 8.0"),
        ("--rollout.n true", "--rollout.n: expected an integer, got true"),
        ("--rollout.n null", "--rollout.n: expected an integer, got null"),
        ("--trainer.val_only maybe", "--trainer.val_only: expected true or false, got 'maybe'"),
        ("--trainer.logger wandb", "--trainer.logger: expected a list, got 'wandb'"),
        (
            "--trainer.logger [wandbb]",
            "--trainer.logger: expected 'console', 'jsonl', 'tensorboard' or 'wandb', "
            "got 'wandbb'; did you mean 'wandb'?",
        ),
        ("--env.kwargs 3", "--env.kwargs: expected a mapping, got 3"),
        ("--rollout.nn 3", "unknown key --rollout.nn; did you mean --rollout.n?"),
        ("--trainer.val-only", "unknown key --trainer.val-only; did you mean --trainer.val_only?"),
        ("learning_rate=1", "unknown key learning_rate; did you mean actor.optim.lr?"),
        ("--zzz 1", "unknown key --zzz; rlgym-train --help lists all keys"),
        (
            "--reward_model.model.path m",
            "this version does not support --reward_model.model.path yet: reward models",
        ),
        ("--actor 3", "--actor is a section: give one of its keys, such as actor.optim.lr"),
        ("--rollout.n", "--rollout.n needs a value (null for none)"),
        ("--model=", "--model needs a value (null for none)"),
        ("hello", "unexpected argument 'hello': give keys as --KEY VALUE"),
        (
            "--rollout.n 4 actor_rollout_ref.rollout.n=5",
            "rollout.n is given twice, as --rollout.n and as actor_rollout_ref.rollout.n; keep one",
        ),
        (
            "--reward math --reward math=2",
            "reward 'math' is given twice, as 'math' and as 'math=2'; keep one, or give each a "
            "name of its own in a YAML file",
        ),
        (
            "--seed 1 --trainer.seed 1",
            "trainer.seed is given twice, as --seed and as --trainer.seed; keep one",
        ),
        (
            "--rewards.components.math.wieght 3",
            "rewards.components.math: unknown key 'wieght'; did you mean 'weight'? "
            "(keys: reward, weight, options, eval_weight, gate, transform, schedule, when, "
            "placement, gamma, backend, timeout_s, memory_mb, concurrency, combine)",
        ),
    ],
)
def test_one_line_that_says_the_way_out(argv: str, message: str) -> None:
    assert error_of(*argv.split()) == message


def test_errors_in_files_name_file_and_key(write: Write) -> None:
    file = write("rollout:\n  n: many\n")
    assert error_of("--config", file) == f"{file}: rollout.n: expected an integer, got 'many'"
    file = write("rollout:\n  nn: 3\nreward_model: {a: 1, b: 2}\nfoo: {}\n")
    assert error_of("--config", file) == (
        f"unknown key {file}: rollout.nn; did you mean rollout.n?; "
        f"this version does not support {file}: reward_model.a yet: reward models; "
        f"this version does not support {file}: reward_model.b yet: reward models; "
        "and 1 more like these"
    )
    file = write("rollout: {n: 3}\nactor_rollout_ref: {rollout: {n: 4}}")
    message = error_of("--config", file)
    assert f"{file}: rollout.n and as {file}: actor_rollout_ref.rollout.n" in message
    assert "actor is a section" in error_of("--config", write("actor: 3"))


def test_two_spellings_may_meet_across_layers(write: Write) -> None:
    file = write("actor_rollout_ref: {rollout: {n: 4}}")
    assert load_config(["--config", file, "--rollout.n", "5"]).rollout.n == 5


def test_training_may_cut_the_distribution() -> None:
    assert not load_config([]).rollout.is_cut
    for argv in (["--rollout.top_p", "0.9"], ["--rollout.top_k", "50"]):
        assert load_config(argv).rollout.is_cut
    assert "top_k must be -1 (all) or at least 1" in error_of("--rollout.top_k", "0")


def test_every_misspelt_key_finds_its_own() -> None:
    for name in config_keys():
        misspelt = f"{name}s" if len(name) > 12 else f"{name}_"
        assert nearest_key(misspelt) == name


# Printing


def test_print_config_shows_sources_and_the_clip_that_counts(write: Write) -> None:
    file = write("actor: {clip_ratio_high: 0.28}")
    command = parse_command(["--config", file, "--rollout.n", "4", "--print-config"])
    assert command.print_config
    lines = format_config(command.config, command.sources).splitlines()
    assert "  n: 4  # --rollout.n" in lines
    assert f"  clip_ratio_high: 0.28  # {file}: actor.clip_ratio_high" in lines
    own = "the policy loss's own"
    assert f"  clip_ratio: null  # lower: {own}, upper: 0.28" in lines
    assert f"  clip_ratio: null  # {own}" in format_config(load_config([])).splitlines()
    both = load_config(["--actor.use_kl_loss", "--algorithm.use_kl_in_reward"])
    assert "the KL counts twice" in format_config(both)


def test_a_masked_secret_is_not_taken_for_one(write: Write) -> None:
    config = load_config(["--rewards.components.judge.options.api_key", "KEY-abc123"])
    text = format_config(config)
    assert "KEY-abc123" not in text
    assert "*** stands for a secret" in error_of("--config", write(text))


plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
names = st.text(min_size=1)
values = st.recursive(
    plain, lambda inner: st.lists(inner) | st.dictionaries(names, inner), max_leaves=8
)


@st.composite
def configs(draw: st.DrawFn) -> TrainConfig:
    unit = st.floats(0, 0.99)
    maybe_text = st.none() | st.text()
    return TrainConfig.model_validate(
        {
            "env": {"id": draw(st.text()), "kwargs": draw(st.dictionaries(names, values))},
            "model": {"path": draw(maybe_text), "trust_remote_code": draw(st.booleans())},
            "data": {
                "train": draw(maybe_text),
                "seed": draw(st.none() | st.integers(0, 2**63 - 1)),
            },
            "actor": {
                "optim": {"lr": draw(st.floats(0, 1)), "betas": draw(st.tuples(unit, unit))},
                "clip_ratio_low": draw(st.none() | unit),
                "clip_ratio": draw(unit),
            },
            "rewards": draw(
                st.none()
                | st.fixed_dictionaries(
                    {
                        "components": st.dictionaries(
                            names.filter(lambda name: name == name.strip() and "." not in name),
                            st.fixed_dictionaries(
                                {
                                    "reward": names,
                                    "weight": st.floats(-1e9, 1e9),
                                    "options": st.dictionaries(names, values),
                                }
                            ),
                        )
                    }
                )
            ),
            "trainer": {
                "logger": draw(st.lists(st.sampled_from(["console", "jsonl", "wandb"]))),
                "experiment_name": draw(maybe_text),
            },
            "plugins": draw(st.lists(st.text())),
        }
    )


@given(config=configs())
def test_what_is_printed_loads_back(config: TrainConfig, tmp_path_factory: Any) -> None:
    path = tmp_path_factory.mktemp("config") / "run.yaml"
    text = format_config(config)
    if "***" in text:
        return  # a masked secret is the one thing that does not come back
    path.write_text(text, encoding="utf-8", newline="")
    assert load_config(["--config", str(path)]) == config


# Help and documentation


def test_help_lists_every_key_and_reads_nothing_else() -> None:
    command = parse_command(["--nonsense", "--help"])
    assert command.help is not None
    for name, key in config_keys().items():
        assert f"--{name} " in command.help, key
    assert max(map(len, command.help.splitlines())) <= 100
    assert command.config == TrainConfig()


def test_every_key_is_explained() -> None:
    for line in describe_config().splitlines():
        assert not line.endswith("|  |"), line


def test_the_documentation_is_the_schema() -> None:
    assert DOC.read_text(encoding="utf-8").endswith(describe_config()), (
        "docs/configuration.md must end with what rlgym_llm.config.describe_config() returns"
    )


def test_help_is_quick_and_light() -> None:
    program = (
        "import sys; from rlgym_llm.config import parse_command; parse_command(['--help']);"
        "assert not {'torch', 'transformers', 'datasets', 'ray'} & set(sys.modules)"
    )
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", program], check=True)
        seconds.append(time.perf_counter() - started)
    assert min(seconds) < 2.0  # 0.5 s on a quiet machine; the bound leaves room for a busy one


# Public bug reports

BugReport = Callable[[str], dict[str, Any]]


@pytest.mark.data
def test_config_bool_string(bug_report: BugReport, write: Write) -> None:
    case = bug_report("config-bool_string")
    *off, maybe = [case["input"]["args"][1], *case["input"]["more"]]
    key = "--actor.use_kl_loss"
    for text in off:
        assert load_config([key, text]).actor.use_kl_loss is case["right"]["values"]["use_kl"]
        file = write(f"actor: {{use_kl_loss: '{text}'}}")
        assert load_config(["--config", file]).actor.use_kl_loss is False
    assert error_of(key, maybe) == f"{key}: expected true or false, got '{maybe}'"


@pytest.mark.data
def test_config_unknown_key(bug_report: BugReport, write: Write) -> None:
    case = bug_report("config-unknown_key")
    message = error_of("--config", write(json.dumps(case["input"]["yaml"])))
    assert "train.learnig_rate; did you mean actor.optim.lr?" in message
    assert "kl_coef; did you mean algorithm.kl_ctrl.kl_coef?" in message


@pytest.mark.data
def test_config_precedence(bug_report: BugReport, write: Write) -> None:
    case = bug_report("config-precedence")["input"]
    file = write(f"rollout: {{n: {case['file']}}}")
    flag = ["--rollout.n", str(case["cli"])]
    for argv in (["--config", file, *flag], [*flag, "--config", file]):
        assert load_config(argv).rollout.n == case["cli"]
    also = case["also"]
    message = error_of(
        "--config", write(f"trainer: {also['file']['wandb']}"), "--trainer.seed", "1"
    )
    assert "trainer is a section" in message


@pytest.mark.data
def test_config_dangling_setattr(bug_report: BugReport) -> None:
    [(name, value)] = bug_report("config-dangling_setattr")["input"]["sent"].items()
    assert "unknown key --data.seq_len" in error_of(f"--data.{name}", str(value))


@pytest.mark.data
def test_config_secrets_in_config_dump(bug_report: BugReport) -> None:
    case = bug_report("config-secrets_in_config_dump")["input"]
    wandb_key = case["config"]["logger"]["wandb_key"]
    headers = case["config"]["reward"]["headers"]
    bearer = headers["Authorization"].split()[1]
    assert wandb_key not in error_of(*case["argv"])
    config = TrainConfig.model_validate(
        {
            "env": {"kwargs": {"logger": {"wandb_key": wandb_key}}},
            "rewards": {"components": {"judge": {"options": {"headers": headers}}}},
        }
    )
    for text in (format_config(config), repr(config), config.model_dump_json()):
        assert wandb_key not in text
        assert bearer not in text


def test_a_file_that_refers_to_itself_is_one_line(tmp_path: Any) -> None:
    path = tmp_path / "loop.yaml"
    path.write_text("actor: &a\n  optim: *a\n")
    with pytest.raises(ConfigError, match="an anchor in it refers to itself"):
        load_config(["--config", str(path)])


def test_flat_and_nested_keys_of_one_file_are_given_twice(tmp_path: Any) -> None:
    path = tmp_path / "twice.yaml"
    path.write_text("rollout.n: 3\nrollout: {n: 4}\n")
    with pytest.raises(ConfigError, match=r"rollout\.n is given twice"):
        load_config(["--config", str(path)])


@pytest.mark.parametrize(
    "flags",
    [
        ["--rollout.n", "9" * 26],
        ["--data.train_batch_size", "9" * 18],
        ["--trainer.num_threads", "100000000"],
        ["--actor.optim.lr", "1e38"],
    ],
)
def test_absurd_sizes_are_refused_at_once(flags: list[str]) -> None:
    with pytest.raises(ConfigError, match=flags[0]):
        load_config(flags)


def test_verls_counts_of_machines_are_taken_where_they_are_one(write: Write) -> None:
    argv = ["trainer.nnodes=1", "--trainer.n_gpus_per_node", "1"]
    assert load_config(argv) == load_config([])
    file = write("trainer: {nnodes: 1, n_gpus_per_node: 1}\nrollout: {n: 4}")
    assert load_config(["--config", file]).rollout.n == 4
    for argv in (
        ["trainer.nnodes=2"],
        ["--trainer.n_gpus_per_node", "8"],
        ["trainer.nnodes=1.0"],
        ["--config", write("trainer: {nnodes: 2}")],
        ["--config", write("trainer: {n_gpus_per_node: true}")],
    ):
        with pytest.raises(ConfigError, match=r"does not support .*: several ranks \(torchrun"):
            load_config(argv)
