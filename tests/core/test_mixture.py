"""A mixture plays every member's tasks by the member's own rules."""

from __future__ import annotations

import copy
import pickle
import textwrap

import pytest
from gymnasium.error import ResetNeeded

from rlgym_llm.check_env import check_env
from rlgym_llm.composition.coverage import check_coverage
from rlgym_llm.env_pool import EnvPool
from rlgym_llm.errors import ConfigError, UnknownNameError, UserError
from rlgym_llm.generate import SamplingParams
from rlgym_llm.mixture import Mixture, read_members
from rlgym_llm.plugins import Plugins
from rlgym_llm.reward_config import read_rewards
from rlgym_llm.rollout import run_groups
from rlgym_llm.scripted_generator import ScriptedGenerator
from rlgym_llm.types import Action, FinishReason, Message, Task

PLUGIN = """
    from rlgym_llm import TextEnv, hookimpl
    from rlgym_llm.multi_turn import MultiTurnEnv, Reply
    from rlgym_llm.specs import EnvSpec
    from rlgym_llm.tasks import ListTasks
    from rlgym_llm.tool_env import ToolEnv
    from rlgym_llm.types import Message, Task

    def ask(text):
        return (Message(role="user", content=text),)

    class Copy(TextEnv):
        default_rewards = {"components": {"same": {"reward": "exact_match", "weight": 2.0}}}
        accuracy = "same"

        def __init__(self, *, split="train", seed=0, size=3, **options):
            self.split, self.seed = split, seed
            first = 0 if split == "train" else 100
            tasks = [Task(prompt=ask(f"say {i}"), answer=str(i), data_source="copy",
                          info={"level": i % 2}) for i in range(first, first + size)]
            super().__init__(tasks=ListTasks(tasks), **options)

        def gold_action(self, task):
            return task.answer

    class Die(MultiTurnEnv[int]):
        gold_reward = 1.0

        def __init__(self, **options):
            tasks = [Task(prompt=ask("guess the die"), id="die", info={"round": i})
                     for i in range(2)]
            super().__init__(tasks=ListTasks(tasks), max_turns=4, **options)

        def start(self, task):
            return int(self.np_random.integers(1000))

        def respond(self, state, action):
            if action.text == str(state):
                return Reply(reward=1.0, terminated=True)
            return "higher" if action.text < str(state) else "lower"

        def gold_action(self, task):
            return str(self.state)

    class Asked(ToolEnv):
        def __init__(self, **options):
            def double(n: int) -> int:
                return 2 * n
            super().__init__(tools=[double], tasks=ListTasks([Task(prompt=ask("2 * 4?"))]),
                             tool_prompt="template", **options)

    class Plain(TextEnv):
        def __init__(self, **options):
            super().__init__(tasks=ListTasks([Task(prompt="text")]), **options)

    class Strict(Copy):
        default_rewards = {"components": {"same": {"reward": "exact_match"}},
                           "on_truncated": "zero"}

    @hookimpl
    def rlgym_register(kind):
        if kind != "env":
            return []
        names = ("Copy", "Die", "Asked", "Plain", "Strict")
        return [EnvSpec(name=n.lower(), entry_point=f"{__name__}:{n}") for n in names] + [
            EnvSpec(name="mix", entry_point="rlgym_llm.mixture:Mixture")]
"""
CALL = '<tool_call>{"name": "double", "arguments": {"n": 4}}</tool_call>'


@pytest.fixture(scope="module")
def plugins(tmp_path_factory):
    path = tmp_path_factory.mktemp("plugins") / "members.py"
    path.write_text(textwrap.dedent(PLUGIN))
    return Plugins.discover([str(path)])


@pytest.fixture
def mixture(plugins):
    return Mixture(envs={"copy": 3, "die": 1}, plugins=plugins)


def test_the_tasks_are_those_of_the_members_one_after_the_other(mixture):
    tasks = [mixture.tasks[index] for index in range(len(mixture.tasks))]
    assert [task.info["env"] for task in tasks] == ["copy"] * 3 + ["die"] * 2
    assert [task.id for task in tasks[3:]] == ["die/die", "die/die"]
    assert tasks[1].answer == "1"
    assert tasks[1].data_source == "copy"
    assert mixture.tasks.span("die") == range(3, 5)
    assert [mixture.member_of(task) for task in tasks[2:4]] == ["copy", "die"]
    with pytest.raises(IndexError):
        mixture.tasks[5]
    with pytest.raises(UserError, match=r"info\['env'\] is None, none of copy, die"):
        mixture.reset(options={"task": Task(prompt="?")})


def test_rewards_are_the_members_each_for_its_own_tasks(mixture):
    components = mixture.rewards.components
    assert {name: (c.weight, dict(c.when)) for name, c in components.items()} == {
        "copy/same": (2.0, {"env": "copy"}),
        "die/env": (1.0, {"env": "die"}),
    }
    assert mixture.accuracies == {"copy": "copy/same"}
    check_coverage(mixture.rewards, [mixture.tasks[i] for i in range(5)])
    mixture.reset(options={"index": 1})
    _, reward, terminated, truncated, info = mixture.step("1")
    assert (reward, terminated, truncated) == (2.0, True, False)
    assert info["components"]["copy/same"] == 1.0
    assert info["components"].get("die/env") is None
    assert info["index"] == 1


def test_a_multi_turn_member_keeps_its_turns_state_and_limit(mixture):
    _, info = mixture.reset(seed=5, options={"index": 3})
    assert info == {"task_id": "die/die", "index": 3}
    observation, reward, terminated, truncated, info = mixture.step("0")
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert info["reply"] == (Message(role="user", content="higher"),)
    assert [message.role for message in observation] == ["user", "assistant", "user"]
    gold = mixture.gold_action(mixture.task)
    assert mixture.step(gold)[1:3] == (1.0, True)
    assert len(mixture.turns) == 2
    with pytest.raises(ResetNeeded):
        mixture.step(gold)
    mixture.reset(seed=5, options={"index": 3})
    ends = [mixture.step("x")[2:4] for _ in range(4)]
    assert ends == [(False, False)] * 3 + [(False, True)]  # the member's max_turns


def test_an_episode_is_the_same_as_in_the_member_alone(mixture):
    mixture.reset(seed=11, options={"index": 3})
    alone = mixture.members["die"].fresh()
    alone.reset(seed=11, options={"index": 0})
    assert mixture.gold_action(mixture.task) == alone.gold_action(alone.task)


def test_tools_and_counters_of_a_member_are_told(plugins):
    mixture = Mixture(envs={"copy": 1, "asked": 1}, plugins=plugins)
    assert "tools" not in mixture.reset(options={"index": 0})[1]
    _, info = mixture.reset(options={"index": 3})
    assert info["tools"][0]["function"]["name"] == "double"
    info = mixture.step(CALL)[4]
    assert info["reply"][0].content == "8"
    assert (info["num_tool_calls"], info["num_tool_errors"]) == (1, 0)


def test_a_completion_that_was_cut_truncates(mixture):
    mixture.reset(options={"index": 0})
    cut = Action(text="0", finish_reason=FinishReason.LENGTH)
    assert mixture.step(cut)[2:4] == (False, True)


def test_reset_without_an_index_draws_the_member_by_weight(plugins):
    mixture = Mixture(envs={"copy": 3, "die": 1}, plugins=plugins)
    mixture.reset(seed=0)
    drawn = [mixture.reset()[1]["index"] for _ in range(2000)]
    assert 0.72 < sum(index < 3 for index in drawn) / 2000 < 0.78
    assert set(drawn) == set(range(5))


def test_state_is_cloned_saved_and_pickled_mid_episode(mixture):
    mixture.reset(seed=3, options={"index": 4})
    mixture.step("0")
    state = mixture.get_state()
    others = [mixture.clone(), copy.deepcopy(mixture), pickle.loads(pickle.dumps(mixture))]
    restored = mixture.fresh()
    restored.set_state(state)
    gold = mixture.gold_action(mixture.task)
    mixture.step("0")
    for other in (*others, restored):
        assert len(other.turns) == 1
        assert other.step(gold)[1:3] == (1.0, True)
    assert mixture.step(gold)[1:3] == (1.0, True)
    assert len(mixture.turns) == 3


def test_the_checker_finds_nothing(mixture):
    check_env(mixture)


def test_episodes_of_several_members_run_side_by_side(plugins):
    mixture = Mixture(envs={"copy": 1, "die": 1}, plugins=plugins)
    tasks = [mixture.tasks[1], mixture.tasks[3]]

    def say(context):
        return "1" if "say 1" in context else "x"

    groups = run_groups(
        tasks,
        group_size=2,
        seed=0,
        make_env=EnvPool(lambda: mixture),
        generator=ScriptedGenerator(say),
        params=SamplingParams(max_new_tokens=8),
    )
    assert [[rollout.num_turns for rollout in group.rollouts] for group in groups] == [
        [1, 1],
        [4, 4],
    ]
    assert not any(rollout.error for group in groups for rollout in group.rollouts)


def test_split_seed_and_val_kwargs_reach_the_members(plugins):
    envs = {"copy": 1, "few": {"id": "copy", "kwargs": {"size": 1, "seed": 9}}, "die": 1}
    mixture = Mixture(envs=envs, plugins=plugins, seed=4)
    assert list(mixture.members) == ["copy", "few", "die"]
    assert [mixture.members[alias].seed for alias in ("copy", "few")] == [4, 9]
    val = Mixture(envs=envs, plugins=plugins, split="val")
    assert list(val.members) == ["copy", "few"]  # all tasks of the die are trained on
    assert val.tasks[0].answer == "100"
    envs["die"] = {"val_kwargs": {}}
    assert "die" in Mixture(envs=envs, plugins=plugins, split="val").members
    with pytest.raises(UserError, match="no environment of the mixture has tasks of the split val"):
        Mixture(envs={"die": 1}, plugins=plugins, split="val")


@pytest.mark.parametrize(
    ("envs", "message"),
    [
        ({}, "a mixture needs envs"),
        ({"copy": 0}, "weight must be a number above 0, got 0"),
        ({"copy": float("nan")}, "weight must be a number above 0"),
        ({"copy": True}, "weight must be a number above 0, got True"),
        ({"copy": {"wieght": 2}}, "did you mean 'weight'"),
        ({"a.b": {"id": "copy"}}, "neither a dot nor a slash"),
        ({"copy": {"kwargs": 3}}, "kwargs must be a mapping"),
    ],
)
def test_a_mistake_in_envs_is_told_in_one_line(envs, message):
    with pytest.raises(ConfigError, match=message):
        read_members(envs)


def test_members_that_do_not_fit_together_are_refused(plugins):
    with pytest.raises(UnknownNameError, match="did you mean 'copy'"):
        Mixture(envs={"coppy": 1}, plugins=plugins)
    with pytest.raises(UserError, match="prompts of one kind, text or messages"):
        Mixture(envs={"copy": 1, "plain": 1}, plugins=plugins)
    starter = {"math-gsm8k": {"kwargs": {"source": "starter"}}}
    nested = {"id": "mix", "kwargs": {"envs": starter}}
    with pytest.raises(UserError, match="a mixture holds no mixture"):
        Mixture(envs={"copy": 1, "inner": nested}, plugins=plugins)
    with pytest.raises(UserError, match=r"copy and strict differ in rewards\.on_truncated"):
        Mixture(envs={"copy": 1, "strict": 1}, plugins=plugins)


def test_rules_bind_the_members_and_components_replace_them(plugins):
    envs = {"copy": 1, "strict": 1}
    mixture = Mixture(envs=envs, plugins=plugins, rewards={"on_truncated": "zero"})
    assert list(mixture.rewards.components) == ["copy/same", "strict/same"]
    assert mixture.rewards.on_truncated == "zero"
    own = Mixture(envs=envs, plugins=plugins, rewards={"exact_match": 1.0})
    assert list(own.rewards.components) == ["exact_match"]
    assert own.accuracies == {}


def test_gates_and_combinations_are_renamed_with_their_components():
    from rlgym_llm.mixed_rewards import mixed_rewards

    section = {
        "components": {
            "right": {"reward": "exact_match"},
            "short": {"reward": "format", "gate": {"on": "right"}},
            "both": {"combine": {"product": ["right", "short"]}},
            "total": {"combine": {"sum": {"right": 1.0, "short": 0.5}}},
            "chosen": {"combine": {"switch": {"on": "level", "cases": {"1": "right"}}}},
        }
    }
    mixed = mixed_rewards({"a": read_rewards(section)})
    components = read_rewards(mixed.model_dump(exclude_none=True)).components
    assert components["a/short"].gate[0].on == "a/right"
    assert components["a/both"].combine.product == ("a/right", "a/short")
    assert components["a/total"].combine.sum == {"a/right": 1.0, "a/short": 0.5}
    assert components["a/chosen"].combine.switch.cases == {"1": "a/right"}
