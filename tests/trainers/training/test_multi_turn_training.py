"""Any environment trains: several turns, tools, prompts and sources of its own."""

from __future__ import annotations

import json

import pytest
from rlgym_llm_trainers.cli import main
from rlgym_llm_trainers.generators.hf_generator import HFGenerator
from rlgym_llm_trainers.learner.sample import sample_from_rollout
from rlgym_llm_trainers.training.environments import Openings, make_env, uses_starter_problems
from rlgym_llm_trainers.training.preparation import episode_limits, fitting_tasks, turn_batching
from rlgym_llm_trainers.training.run_rewards import success

from rlgym_llm.config import parse_command
from rlgym_llm.errors import DataError
from rlgym_llm.scores import CardStatus, Component, ScoreCard, ScoreStatus
from rlgym_llm.scripted_generator import ScriptedGenerator
from rlgym_llm.store import read_rollouts

SMALL = [
    *("--data.train_batch_size", "2", "--rollout.n", "2", "--data.max_response_length", "40"),
    *("--trainer.total_training_steps", "2", "--trainer.num_threads", "1"),
    *("--data.val_max_samples", "2", "--rollout.temperature", "1.0"),
]
PLUGIN = """
    from typing import Literal

    from rlgym_llm import TextEnv, hookimpl
    from rlgym_llm.multi_turn import MultiTurnEnv
    from rlgym_llm.specs import EnvSpec
    from rlgym_llm.tasks import ListTasks
    from rlgym_llm.tool_env import ToolEnv
    from rlgym_llm.types import Message, Task

    def add(a: int, b: int) -> int:
        'Adds.'
        return a + b

    TASKS = ListTasks([Task(prompt=(Message(role="user", content=f"{i} + 1 = ?"),), answer=str(i))
                       for i in range(6)])

    class Chatty(MultiTurnEnv[int]):
        'Answers every turn, whatever is said.'

        def __init__(self, *, source: Literal["books", "films"] = "books", **options):
            self.source = source
            super().__init__(tasks=TASKS, max_turns=3, **options)

        def begin(self, task):
            self.greeting = f"It is {self.source}."
            super().begin(task)

        def opening(self, task):
            return (Message(role="system", content=self.greeting), *task.prompt)

        def respond(self, state, action):
            return "Go on."

    class Tooled(ToolEnv):
        def __init__(self, *, split="train", **options):
            super().__init__(tasks=TASKS, tools=[add], tool_prompt="template", **options)

    class Ending(TextEnv):
        def __init__(self, **options):
            super().__init__(tasks=TASKS, **options)

    @hookimpl
    def rlgym_register(kind):
        if kind != "env":
            return []
        names = ("Chatty", "Tooled", "Ending")
        return [EnvSpec(name=n.lower(), entry_point=f"{__name__}:{n}") for n in names] + [
            EnvSpec(name="guess", entry_point="rlgym_llm_envs.guess_number:GuessNumberEnv"),
            EnvSpec(name="calc", entry_point="rlgym_llm_envs.gsm8k_calculator:Gsm8kCalculatorEnv"),
        ]
"""


@pytest.fixture
def plugin(plugin_file):
    return plugin_file(PLUGIN)


@pytest.mark.parametrize("env", ["guess", "calc"])
def test_two_steps_on_turns_and_tools_with_masks_on_what_was_sampled(tmp_path, plugin, env):
    out, dump = tmp_path / "out", tmp_path / "rollouts"
    assert (
        main(
            [
                *("--env", env, "--output", str(out), "--plugin", plugin, *SMALL),
                *("--trainer.rollout_data_dir", str(dump)),
            ]
        )
        == 0
    )
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["step"] == 2
    assert rows[-1]["response/aborted_ratio"] == 0
    # What was read again in training has the log-probs that it was sampled with, turn by turn.
    assert rows[1]["training/rollout_probs_diff_max"] < 1e-4
    assert any(key.startswith("val-core/") for key in rows[-1])
    rollouts = [record.rollout for record in read_rollouts(dump / "1.jsonl").records]
    if env == "guess":
        assert max(rollout.num_turns for rollout in rollouts) > 1
    for rollout in rollouts:
        sample = sample_from_rollout(rollout)
        trained = [t for t, m in zip(sample.token_ids, sample.loss_mask, strict=True) if m]
        sampled = [t for turn in rollout.turns for t in turn.completion.token_ids]
        assert trained == sampled
        assert len(sampled) <= 40  # data.max_response_length is of the whole episode


def test_a_reply_is_read_and_never_trained_on(tmp_path, plugin):
    dump = tmp_path / "rollouts"
    flags = ["--plugin", plugin, "--env", "chatty", "--output", str(tmp_path / "out")]
    code = main([*flags, *SMALL, "--trainer.rollout_data_dir", str(dump)])
    # Every reward is the same (none), so nothing is learned, and that is said.
    assert code != 0
    rollouts = [record.rollout for record in read_rollouts(dump / "1.jsonl").records]
    assert {message.content for r in rollouts for t in r.turns for message in t.reply} <= {"Go on."}
    for rollout in rollouts:
        sample = sample_from_rollout(rollout)
        assert sum(sample.loss_mask) == rollout.num_tokens
        num_read = sum(len(turn.new_prompt_token_ids) for turn in rollout.turns)
        assert len(sample.token_ids) == rollout.num_tokens + num_read


def test_the_budgets_of_the_configuration_reach_the_runner(policy):
    config = parse_command(
        [
            *("--rollout.max_turns", "2", "--rollout.max_seconds", "7.5"),
            *("--rollout.step_timeout_s", "null", "--data.max_response_length", "31"),
            *("--rollout.batching.max_size", "5", "--rollout.batching.linger_s", "0"),
        ]
    ).config
    limits = episode_limits(config, policy)
    assert (limits["max_turns"], limits["max_seconds"]) == (2, 7.5)
    assert limits["step_timeout_s"] is None
    assert limits["max_rollout_tokens"] == 31
    batching = turn_batching(config, HFGenerator(policy))
    assert (batching.max_size, batching.linger_s, batching.max_in_flight) == (5, 0.0, 1)


def test_max_turns_cuts_the_episodes_of_a_run(tmp_path, plugin):
    dump = tmp_path / "rollouts"
    flags = ["--plugin", plugin, "--env", "guess", "--output", str(tmp_path / "out")]
    flags += ["--rollout.max_turns", "1", "--trainer.rollout_data_dir", str(dump)]
    main([*flags, *SMALL])
    rollouts = [record.rollout for record in read_rollouts(dump / "1.jsonl").records]
    assert {rollout.num_turns for rollout in rollouts} == {1}


def test_prompts_are_measured_as_an_episode_opens_with_them(plugin, run_settings):
    config, plugins = run_settings(plugin, "--env", "chatty", "--data.max_prompt_length", "30")
    env = make_env(config, plugins, role="train")
    assert [m.role for m in Openings(env)(env.tasks[0])[0]] == ["system", "user"]
    generator, notes = ScriptedGenerator(["x"]), []
    # "user: 0 + 1 = ?" alone fits; with "system: It is books." before it it does not.
    assert len(generator.encode_prompt(env.tasks[0].prompt)) <= 30
    with pytest.raises(DataError, match="the shortest has 3"):
        fitting_tasks(config, env.tasks, generator, notes.append, env=env)
    config, _ = run_settings(plugin, "--data.max_prompt_length", "60")
    assert len(fitting_tasks(config, env.tasks, generator, notes.append, env=env)) == 6


def test_prompts_are_measured_with_the_tools_that_a_template_writes(plugin, run_settings):
    class Counting(ScriptedGenerator):
        def encode_prompt(self, prompt, tools=()):
            return (*super().encode_prompt(prompt), *(0 for _ in str(tools[0]) if tools))

    config, plugins = run_settings(plugin, "--env", "tooled", "--data.max_prompt_length", "60")
    env = make_env(config, plugins, role="train")
    assert env.tools[0]["function"]["name"] == "add"
    with pytest.raises(DataError, match="no training task has a prompt"):
        fitting_tasks(config, env.tasks, Counting(["x"]), [].append, env=env)


def test_only_what_has_starter_problems_is_given_them(plugin, run_settings):
    config, plugins = run_settings(plugin, "--env", "chatty")
    assert not uses_starter_problems(config, plugins)  # its sources are other ones
    assert make_env(config, plugins, role="train").source == "books"
    for env in ("calc", "math-gsm8k"):
        config, plugins = run_settings(plugin, "--env", env)
        assert uses_starter_problems(config, plugins)
        config, plugins = run_settings(plugin, "--env", env, "--data.train", "mine.jsonl")
        assert not uses_starter_problems(config, plugins)


def test_success_is_the_share_of_the_full_mark():
    def card(reward, raw=None):
        components = {}
        if raw is not None:
            components["right"] = Component(
                raw=raw, weight=1.0, transformed=raw, contribution=raw, status=ScoreStatus.OK
            )
        return ScoreCard(
            rollout_id="r", reward=reward, components=components, status=CardStatus.SCORED
        )

    ranges = {"right": (0.0, 2.0)}
    assert success([card(0.1, 2.0), card(0.1, 1.0)], accuracy="right", ranges=ranges) == 0.75
    assert success([card(1.3), card(-1.0)], accuracy=None, ranges=ranges) == 0.5
    assert success([card(0.1)], accuracy="right", ranges=ranges) is None
