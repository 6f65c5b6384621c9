"""The environments of several turns train without a model or data being named."""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
import sys
from pathlib import Path

import pytest
import torch
from rlgym_llm_trainers.cli import main
from rlgym_llm_trainers.generators.hf_generator import HFGenerator
from rlgym_llm_trainers.models.chat import reply_ids
from rlgym_llm_trainers.models.policy import load_policy
from rlgym_llm_trainers.models.starter import starter_kit, starter_model_path, starter_run_path
from rlgym_llm_trainers.training.environments import starter_kit_of, uses_starter_run
from rlgym_llm_trainers.training.preparation import find_model

from rlgym_llm.config import over_file, parse_command
from rlgym_llm.env_pool import EnvPool
from rlgym_llm.errors import ConfigError
from rlgym_llm.generate import SamplingParams
from rlgym_llm.plugins import Plugins
from rlgym_llm.rollout import run_groups
from rlgym_llm.tools.parse import parse_tool_calls

NAMES = ["guess-number", "gsm8k-calculator"]
SCRIPTS = Path(__file__).parents[3] / "scripts"
SMALL = [
    *("--data.train_batch_size", "4", "--rollout.n", "4", "--data.val_max_samples", "4"),
    *("--trainer.total_training_steps", "2", "--trainer.num_threads", "1"),
]


def script(name):
    if str(SCRIPTS) not in sys.path:
        sys.path.append(str(SCRIPTS))
    return importlib.import_module(name)


def record():
    return json.loads((starter_kit("guess-number").model / "recipe.json").read_text())


def settings(*flags):
    command = parse_command(list(flags))
    return command, Plugins.discover(command.config.plugins)


@pytest.fixture(scope="module")
def policy():
    return load_policy(starter_kit("guess-number").model, device=torch.device("cpu"))


@pytest.fixture(scope="module")
def play(policy):
    def episodes(name, *, temperature, num_tasks=10):
        env = script("multi_turn_recipe").starter_envs("val", num_tasks)[name]
        groups = run_groups(
            list(env.tasks),
            group_size=1,
            seed=0,
            make_env=EnvPool(lambda: env),
            generator=HFGenerator(policy),
            params=SamplingParams(max_new_tokens=96, temperature=temperature),
            max_context_tokens=policy.max_positions,
        )
        return [rollout for group in groups for rollout in group.rollouts]

    return episodes


def test_the_model_is_the_recipes_and_small():
    folder, build = starter_kit("guess-number").model, script("build_multi_turn_starter")
    shared = script("build_starter")
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 2_500_000
    for part in ("model.safetensors", "tokenizer.json"):
        digest = shared.sha256_of((folder / part).read_bytes())
        assert digest == record()[f"{part.partition('.')[0]}_sha256"]
    recipe = json.loads(json.dumps(dataclasses.asdict(build.MultiTurnRecipe())))
    assert recipe == record()["recipe"]
    assert shared.recipe_sha256(recipe) == record()["recipe_sha256"]


def test_the_model_knows_the_syntax_and_leaves_room():
    measured = record()["measured"]
    for name, most in (("guess-number", 1.0), ("gsm8k-calculator", 1.3)):
        assert measured[f"{name}/greedy_well_formed"] == 1.0
        assert measured[f"{name}/sampled_well_formed"] >= 0.95
        assert measured[f"{name}/greedy_reward"] <= most - 0.3
        assert measured[f"{name}/sampled_reward"] <= most - 0.3


def test_greedy_guesses_are_numbers_of_the_range(play):
    for rollout in play("guess-number", temperature=0.0):
        for turn in rollout.turns:
            assert re.fullmatch(r"\d{1,2}", turn.completion.text)
            assert 1 <= int(turn.completion.text) <= 33


def test_calls_are_written_as_the_environment_reads_them(play):
    rollouts = play("gsm8k-calculator", temperature=1.0, num_tasks=30)
    calls = [
        call
        for rollout in rollouts
        for turn in rollout.turns
        for call in parse_tool_calls(turn.completion.text)[1]
    ]
    assert len(calls) >= 8
    readable = [call for call in calls if call.error is None]
    assert len(readable) >= 0.9 * len(calls)
    assert {call.name for call in readable} == {"calculator"}
    assert all(rollout.terminated for rollout in rollouts)


@pytest.mark.parametrize("name", NAMES)
def test_warm_start_and_play_agree_to_the_token(policy, play, name):
    recipe, build = script("multi_turn_recipe"), script("build_multi_turn_starter")
    env = recipe.starter_envs("val", 10)[name]
    for rollout in play(name, temperature=0.0):
        opening, _ = env.reset(options={"task": rollout.task})
        episode = recipe.Episode(
            opening=opening,
            turns=tuple(
                recipe.Turn(
                    text=turn.completion.text,
                    is_learned=True,
                    reply=turn.reply if place < rollout.num_turns else (),  # nobody reads the last
                )
                for place, turn in enumerate(rollout.turns, start=1)
            ),
        )
        ids, mask = build.episode_row(
            episode,
            policy.tokenizer,
            lambda reply: reply_ids(
                policy.tokenizer, reply, eos_token_ids=policy.eos_token_ids, path="starter"
            ),
        )
        turns = rollout.turns
        assert ids == [i for t in turns for i in (*t.new_prompt_token_ids, *t.completion.token_ids)]
        assert sum(mask) == rollout.num_tokens


@pytest.mark.parametrize("name", NAMES)
def test_two_steps_of_a_run_that_names_nothing(tmp_path, capsys, name):
    out = tmp_path / "out"
    assert main(["--env", name, "--output", str(out), *SMALL]) == 0
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert rows[1]["actor/grad_norm"] > 0
    assert rows[1]["training/rollout_probs_diff_max"] < 1e-4
    assert rows[1]["response/aborted_ratio"] == 0
    assert "multi_turn" in "".join(capsys.readouterr())


@pytest.mark.parametrize("name", NAMES)
def test_the_kit_is_taken_where_neither_model_nor_data_is_named(tmp_path, name):
    command, plugins = settings("--env", name)
    kit = starter_kit_of(command.config, plugins)
    assert (kit.model.name, kit.run.name) == ("multi_turn", f"{name}.yaml")
    assert uses_starter_run(command.config, plugins)
    assert find_model(command.config, plugins).path == kit.model
    assert over_file(command, str(kit.run)).config.trainer.total_training_steps == 40
    named, _ = settings("--env", name, "--model", str(tmp_path))
    assert not uses_starter_run(named.config, plugins)


def test_other_environments_keep_the_starter_model():
    command, plugins = settings()
    kit = starter_kit_of(command.config, plugins)
    assert (kit.model, kit.run) == (starter_model_path(), starter_run_path())
    assert find_model(command.config, plugins).path == starter_model_path()


def test_an_unknown_kit_is_refused_by_name():
    with pytest.raises(ConfigError, match=r"no starter kit 'chess', only guess-number, gsm8k"):
        starter_kit("chess")
