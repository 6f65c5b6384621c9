"""TextEnv: the Gymnasium contract, seeds and options, and what a step says."""

import pickle
import random

import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlgym_llm.env import TextEnv, TurnOutcome
from rlgym_llm.errors import ConfigError, UserError
from rlgym_llm.scores import CardStatus, Component, ScoreCard, ScoreStatus
from rlgym_llm.tasks import ListTasks
from rlgym_llm.types import Action, FinishReason, Message, Task

TASKS = ListTasks(
    Task(prompt=(Message(role="user", content=f"{i} + 1 = ?"),), answer=str(i + 1), id=f"t{i}")
    for i in range(4)
)


class FakeComposer:
    """1.0 where the last turn ends in the answer, 0.0 elsewhere, none for 'unscorable'."""

    seen = []  # noqa: RUF012

    def __call__(self, rollouts):
        type(self).seen.extend(rollouts)
        return [self.card(rollout) for rollout in rollouts]

    def card(self, rollout):
        is_scored = rollout.text != "unscorable"
        raw = float(rollout.text.endswith(rollout.task.answer)) if is_scored else None
        component = Component(
            raw=raw,
            weight=1.0,
            transformed=raw,
            contribution=raw,
            status=ScoreStatus.OK if is_scored else ScoreStatus.ERROR,
            seconds=random.random(),
        )
        return ScoreCard(
            rollout_id=rollout.id,
            reward=raw,
            status=CardStatus.SCORED if is_scored else CardStatus.FAILED_REWARD,
            components={"exact": component},
        )

    def close(self):
        pass


class Guess(TextEnv):
    """Three guesses at a hidden number, drawn at reset."""

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed, options=options)
        self.secret = int(self.np_random.integers(10))
        return observation, info

    def advance(self, action):
        if action.text == str(self.secret):
            return TurnOutcome(env_reward=np.float32(1), terminated=np.True_)
        return TurnOutcome(reply=(Message(role="user", content="no"),), env_reward=0)


@pytest.fixture(autouse=True)
def composer(monkeypatch):
    monkeypatch.setattr("rlgym_llm.compose_cache.lend", lambda *_: FakeComposer())
    monkeypatch.setattr(FakeComposer, "seen", [])
    return FakeComposer


@pytest.fixture
def env():
    return TextEnv(tasks=TASKS)


def drawn(env, num_tasks, **first):
    return [env.reset(**(first if i == 0 else {}))[1]["index"] for i in range(num_tasks)]


def test_a_right_answer_ends_the_episode_with_its_reward(env):
    observation, info = env.reset(options={"index": 2})
    assert observation == (Message(role="user", content="2 + 1 = ?"),)
    assert info == {"task_id": "t2", "index": 2}
    observation, reward, terminated, truncated, info = env.step("2 + 1 = 3")
    assert observation[1:] == (Message(role="assistant", content="2 + 1 = 3"),)
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert info["components"] == {"exact": 1.0}
    assert info["score"].reward == 1.0
    assert info["unscored"] is False
    assert info["reply"] == ()
    assert info["env_reward"] is None


def test_string_prompts_give_string_observations():
    env = TextEnv(tasks=ListTasks([Task(prompt="1 + 1 =", answer="2")]))
    assert env.reset()[0] == "1 + 1 ="
    assert env.step(" 2")[0] == "1 + 1 = 2"


@pytest.mark.data
def test_types_are_pythons_own_and_none_is_unscored(env, bug_report):
    right = bug_report("env-reward_and_flag_types")["right"]["values"]["types"]
    env = Guess(tasks=ListTasks([Task(prompt="guess", answer="7")]), max_turns=3)
    env.reset(seed=0)
    results = [env.step("x"), env.step(str(env.secret))]
    assert [[type(part).__name__ for part in result] for result in results] == [right, right]
    assert [result[4]["env_reward"] for result in results] == [0.0, 1.0]
    assert type(results[1][4]["env_reward"]) is float
    env = TextEnv(tasks=TASKS)
    env.reset()
    _, reward, _, _, info = env.step("unscorable")
    assert (reward, info["unscored"], info["components"]) == (0.0, True, {"exact": None})
    assert info["score"].reward is None


@pytest.mark.parametrize("reason", [FinishReason.LENGTH, FinishReason.ABORT])
def test_a_cut_completion_truncates_and_does_not_terminate(env, reason):
    env.reset(options={"index": 0})
    _, reward, terminated, truncated, _ = env.step(Action(text="0 + 1 = 1", finish_reason=reason))
    assert (reward, terminated, truncated) == (1.0, False, True)
    assert FakeComposer.seen[0].truncated
    assert not FakeComposer.seen[0].terminated


def test_a_completion_that_disagrees_with_itself_is_refused(env):
    for wrong in ({"token_ids": (5, 6), "logprobs": (-0.1,)}, {"finish_reason": "long"}):
        env.reset(options={"index": 0})
        with pytest.raises(ValueError, match=r"1 logprobs|long"):
            env.step(Action(text="2", **wrong))


def test_a_turn_limit_truncates_and_the_reward_comes_once():
    env = Guess(tasks=TASKS, max_turns=3)
    env.reset(seed=1, options={"index": 0})
    steps = [env.step("x") for _ in range(3)]
    assert [(step[2], step[3]) for step in steps] == [(False, False), (False, False), (False, True)]
    assert [step[4]["unscored"] for step in steps] == [False] * 3
    assert [step[4]["score"] is None for step in steps] == [True, True, False]
    assert [message.content for message in steps[2][0]] == ["0 + 1 = ?", *("x", "no") * 3]
    (rollout,) = FakeComposer.seen
    assert [turn.env_reward for turn in rollout.turns] == [0.0] * 3
    assert rollout.seed == 1


def test_deferred_scoring_leaves_the_reward_open():
    env = TextEnv(tasks=TASKS, defer_scoring=True)
    env.reset()
    _, reward, terminated, _, info = env.step("x")
    assert (reward, terminated, info["score"], info["unscored"]) == (0.0, True, None, True)
    assert FakeComposer.seen == []


def test_stepping_before_reset_and_after_the_end_raises(env):
    with pytest.raises(ResetNeeded, match="reset first"):
        env.step("x")
    env.reset()
    env.step("x")
    with pytest.raises(ResetNeeded, match="is over"):
        env.step("x")
    with pytest.raises(UserError, match="takes a str or an Action, got int"):
        env.reset() and env.step(5)


@pytest.mark.data
def test_seed_and_options_are_honoured(env, bug_report):
    row = bug_report("env-seed_and_options_forwarded")["right"]["values"]["row"]
    assert drawn(env, 4, seed=5) == drawn(env, 4, seed=5)
    assert env.reset(options={"index": np.int64(row)})[1]["index"] == row
    for options, message in [
        ({"row": row}, "unknown reset option 'row'"),
        ({"indx": row}, "did you mean 'index'"),
        ({"index": 4}, "indices are 0 to 3"),
        ({"index": -1}, "indices are 0 to 3"),
        ({"index": 1.5}, "must be an int, got float"),
        ({"task": "t1"}, "must be a Task, got str"),
        ({"task": TASKS[0], "index": 0}, "not both"),
        ({"task": Task(prompt="a string")}, "not in Conversation"),
    ]:
        with pytest.raises(UserError, match=message):
            env.reset(options=options)


def test_a_task_of_ones_own(env):
    task = Task(prompt=(Message(role="user", content="5 + 5 = ?"),), answer="10")
    assert env.reset(options={"task": task})[1] == {"task_id": task.id, "index": None}
    assert env.step("10")[1] == 1.0


@pytest.mark.data
def test_draws_come_from_the_environments_own_stream(bug_report):
    case = bug_report("env-global_rng")["input"]
    first, second = TextEnv(tasks=TASKS), TextEnv(tasks=TASKS)
    expected = drawn(first, 20, seed=case["env_a_seed"])
    before = (random.getstate(), pickle.dumps(np.random.get_state()))
    got = drawn(second, 10, seed=case["env_b_seed"])
    assert (random.getstate(), pickle.dumps(np.random.get_state())) == before
    np.random.rand(case["global_draws_between"])
    assert got + drawn(second, 10) == expected
    assert len(set(expected)) > 1, "reset without a seed goes on, it does not start again"


@pytest.mark.data
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_a_vector_env_skips_no_task(bug_report, mode):
    num_episodes = bug_report("env-self_reset_inside_step")["input"]["episodes"]
    expected = drawn(TextEnv(tasks=TASKS), num_episodes, seed=3)
    vector = SyncVectorEnv([lambda: TextEnv(tasks=TASKS)], autoreset_mode=mode)
    seen = [vector.reset(seed=3)[1]["index"][0]]
    while len(seen) < num_episodes:
        *_, info = vector.step(("x",))
        if mode is AutoresetMode.NEXT_STEP:
            *_, info = vector.step(("ignored",))
        seen.append(info["index"][0])
    assert seen == expected


def test_sync_vector_env_batches_text():
    vector = SyncVectorEnv([lambda: TextEnv(tasks=TASKS)] * 3)
    observations, info = vector.reset(options={"index": 1})
    assert observations == (TASKS[1].prompt,) * 3
    assert list(info["task_id"]) == ["t1"] * 3
    observations, rewards, terminated, truncated, info = vector.step(("2", "3", "1 + 1 = 2"))
    assert rewards.tolist() == [1.0, 0.0, 1.0]
    assert terminated.all()
    assert not truncated.any()
    assert observations[2][-1].content == "1 + 1 = 2"
    assert info["components"]["exact"].tolist() == [1.0, 0.0, 1.0]


@pytest.mark.data
def test_a_copy_pickled_in_mid_episode_goes_on_alike(bug_report):
    right = bug_report("env-pickle_and_spawn")["right"]["values"]
    env = Guess(tasks=TASKS, max_turns=3)
    env.reset(seed=4)
    env.step("x")
    env._composer = lambda: None  # stands for clients and locks: does not pickle
    copied = pickle.loads(pickle.dumps(env))
    env._composer = None
    steps = [(one.step("y"), one.step("z"), one.reset()) for one in (env, copied)]
    assert (steps[0] == steps[1]) is right["roundtrip_equal"]


def test_render_and_close(env):
    shown = TextEnv(tasks=TASKS, render_mode="ansi")
    shown.reset(options={"index": 0})
    shown.step("1")
    assert shown.render() == "[user] 0 + 1 = ?\n[assistant] 1"
    shown.close()
    shown.close()
    env.reset()
    assert env.render() is None


def test_bad_arguments_are_refused():
    with pytest.raises(UserError, match="at least one task"):
        TextEnv(tasks=ListTasks([]))
    with pytest.raises(UserError, match="max_turns"):
        TextEnv(tasks=TASKS, max_turns=0)
    with pytest.raises(ConfigError, match="did you mean 'weight'"):
        TextEnv(tasks=TASKS, rewards={"components": {"math": {"wieght": 1}}})


@pytest.mark.parametrize("value", [float("nan"), np.inf])
def test_an_environments_reward_is_finite(value):
    with pytest.raises(ValueError, match="finite or None"):
        TurnOutcome(env_reward=value)
