"""The adapters' logic on small stand-ins; the real packages are in test_adapters_real.py."""

import copy
import dataclasses
import json
import pickle
import random
import sys
import threading
import types

import gymnasium
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlgym_llm_envs.adapters.entry_json import from_json, to_json
from rlgym_llm_envs.adapters.gem import GemEnv
from rlgym_llm_envs.adapters.gymnasium_text import GymnasiumTextEnv
from rlgym_llm_envs.adapters.own_random import OwnRandom
from rlgym_llm_envs.adapters.reasoning_gym import ReasoningGymEnv, answer_in_tags
from rlgym_llm_envs.adapters.verifiers import VerifiersEnv

from rlgym_llm.check_env import check_env
from rlgym_llm.errors import ConfigError, DataError, UnknownNameError, UserError
from rlgym_llm.shims.gem import to_gem
from rlgym_llm.shims.verifiers import to_verifiers
from rlgym_llm.types import Task

# Entries as JSON

leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
keys = st.text() | st.integers() | st.tuples(st.integers(), st.text())
entries = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(keys, inner)
        | st.dictionaries(st.sampled_from(["__tuple__", "__set__", "__items__"]), inner)
    ),
    max_leaves=12,
)


@given(entries)
def test_an_entry_comes_back_from_json_as_it_was(entry):
    stored = json.loads(json.dumps(to_json(entry)))
    assert repr(from_json(stored)) == repr(entry)


def test_a_set_comes_back_and_is_stored_in_one_order():
    assert to_json({10, 9}) == to_json({9, 10}) == {"__set__": [10, 9]}
    assert from_json(to_json(({"b", "a"}, frozenset({1})))) == ({"a", "b"}, {1})


def test_numpy_becomes_python_and_an_object_is_refused():
    assert to_json({"n": np.int64(3), "row": np.array([1.5, 2.0])}) == {"n": 3, "row": [1.5, 2.0]}
    with pytest.raises(DataError, match="a Random has no place in a task's data"):
        to_json({"rng": random.Random(1)})


# The global generators


def test_a_borrower_goes_on_where_it_left_off_and_nobody_sees_it():
    random.seed(1)
    np.random.seed(1)
    before = random.getstate(), pickle.dumps(np.random.get_state())
    mine = OwnRandom(seed=7)
    drawn = []
    for _ in range(2):
        with mine.lent():
            drawn.append((random.random(), float(np.random.rand())))
    assert (random.getstate(), pickle.dumps(np.random.get_state())) == before
    with OwnRandom(seed=7).lent():
        assert [(random.random(), float(np.random.rand())) for _ in range(2)] == drawn
    random.seed(7)
    assert drawn[0][0] == random.random()


def test_what_a_borrower_raises_leaves_the_generators_alone():
    before = random.getstate()
    with pytest.raises(ZeroDivisionError), OwnRandom(seed=7).lent():
        random.random() / 0
    assert random.getstate() == before


def test_borrowers_in_threads_do_not_meet():
    def draw(into):
        mine = OwnRandom(seed=5)
        for _ in range(200):
            with mine.lent():
                into.append(random.random())

    lists = [[] for _ in range(4)]
    threads = [threading.Thread(target=draw, args=(into,)) for into in lists]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone = random.Random(5)
    assert lists == [[alone.random() for _ in range(200)]] * 4


# reasoning-gym


@dataclasses.dataclass
class SumsConfig:
    most: int = 9
    size: int = 500
    seed: int | None = None

    def validate(self):
        assert self.most >= 1, "most must be at least 1"


class Sums:
    """A generator that draws globally, keeps tuples and raises on what is no number."""

    def __init__(self, config):
        self.config = config

    def __getitem__(self, index):
        np.random.seed(self.config.seed + index)
        a, b = (int(n) for n in np.random.randint(0, self.config.most + 1, size=2))
        return {"question": f"{a} + {b} = ?", "answer": str(a + b), "metadata": {"terms": (a, b)}}

    def score_answer(self, answer, entry):
        if answer is None:
            return 0.0
        if type(entry["metadata"]["terms"]) is not tuple:
            raise TypeError("the terms are a tuple")
        return float(int(answer) == sum(entry["metadata"]["terms"]))


class Riddles(Sums):
    """A generator without one right answer."""

    def __getitem__(self, index):
        known = {} if index else {"possible_answer": {0: 1}}
        return {"question": "?", "answer": None, "metadata": known}

    def score_answer(self, answer, entry):
        return float(answer == '{"0": 1}')


class Broken(Sums):
    def score_answer(self, answer, entry):
        raise FileNotFoundError("words.txt")


@pytest.fixture
def reasoning_gym(monkeypatch):
    """The package as far as the adapter uses it."""
    package = types.ModuleType("reasoning_gym")
    kinds = {"sums": Sums, "riddles": Riddles, "broken": Broken}
    package.factory = types.SimpleNamespace(
        DATASETS={name: (kind, SumsConfig) for name, kind in kinds.items()}
    )

    def create_dataset(name, **options):
        config = SumsConfig(**options)
        config.validate()
        return kinds[name](config)

    package.create_dataset = create_dataset
    monkeypatch.setitem(sys.modules, "reasoning_gym", package)
    monkeypatch.setitem(sys.modules, "reasoning_gym.composite", types.ModuleType("composite"))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer>4</answer> or <answer>\n 5 </answer>.", "5"),
        ("<answer>4", None),
        ("4</answer>", None),
        ("</answer><answer>4", None),
        ("<answer>a <answer>b</answer>", "b"),
        ("<answer></answer>", ""),
        ("", None),
        ("<answer>" * 100_000, None),
    ],
)
def test_the_answer_is_what_stands_in_the_last_tags(text, answer):
    assert answer_in_tags(text) == answer


@pytest.mark.usefixtures("reasoning_gym")
def test_a_generator_is_an_environment_that_keeps_the_contract():
    env = ReasoningGymEnv(dataset="sums", size=4, seed=3)
    check_env(env)
    np.random.seed(4)  # seed 3 and entry 1
    a, b = (int(n) for n in np.random.randint(0, 10, size=2))
    task = env.tasks[1]
    assert task.prompt[-1].content == f"{a} + {b} = ?"
    assert task.answer == str(a + b)
    assert task.data_source == "reasoning-gym/sums"
    assert json.loads(json.dumps(dict(task.info))) == task.info
    assert env.gold_action(task) == f"<answer>{a + b}</answer>"


@pytest.mark.usefixtures("reasoning_gym")
@pytest.mark.parametrize(
    ("mode", "text", "reward"),
    [
        ("tags", "it is <answer> {gold} </answer>", 1.0),
        ("tags", "{gold}", 0.0),
        ("tags", "<answer>many</answer>", 0.0),  # the scorer raises on it
        ("tags", "<answer>-1</answer>", 0.0),
        ("text", " {gold}\n", 1.0),
        ("text", "it is {gold}", 0.0),
    ],
)
def test_the_reward_is_the_generators_score_of_the_answer(mode, text, reward):
    env = ReasoningGymEnv(dataset="sums", size=2, answer=mode)
    env.reset(options={"index": 0})
    _, found, terminated, truncated, info = env.step(text.format(gold=env.task.answer))
    assert (found, terminated, truncated) == (reward, True, False)
    assert info["env_reward"] == reward


@pytest.mark.usefixtures("reasoning_gym")
def test_a_stored_task_is_scored_as_the_one_that_was_made():
    env = ReasoningGymEnv(dataset="sums", size=2)
    info = json.loads(json.dumps(dict(env.tasks[1].info)))
    env.reset(options={"task": dataclasses.replace(env.tasks[1], info=info)})
    assert env.step(env.gold_action(env.task))[1] == 1.0


@pytest.mark.usefixtures("reasoning_gym")
def test_a_scorer_that_raises_on_the_right_answer_too_is_not_the_answers_fault():
    env = ReasoningGymEnv(dataset="broken", size=1)
    env.reset()
    with pytest.raises(FileNotFoundError):
        env.step("<answer>4</answer>")


@pytest.mark.usefixtures("reasoning_gym")
def test_an_entry_without_an_answer_gives_the_one_it_knows_or_none():
    env = ReasoningGymEnv(dataset="riddles", size=2)
    assert env.gold_action(env.tasks[0]) == '<answer>{"0": 1}</answer>'
    assert env.gold_action(env.tasks[1]) is None
    env.reset(options={"index": 0})
    assert env.step(env.gold_action(env.task))[1] == 1.0


@pytest.mark.usefixtures("reasoning_gym")
def test_splits_and_options_reach_the_generator():
    def prompts(**options):
        tasks = ReasoningGymEnv(dataset="sums", **options).tasks
        return [tasks[n].prompt[-1].content for n in range(len(tasks))]

    assert len(prompts()) == 500
    assert len(prompts(split="val")) == 100
    assert prompts(size=5, seed=10**6) == prompts(size=5, split="val")
    assert set(prompts(size=20, most=1)) <= {f"{a} + {b} = ?" for a in (0, 1) for b in (0, 1)}
    assert prompts(size=20, config={"most": 1}) == prompts(size=20, most=1)


@pytest.mark.usefixtures("reasoning_gym")
@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"dataset": "sum"}, UnknownNameError, "did you mean 'sums'"),
        ({"dataset": "sums", "mots": 3}, ConfigError, "no option 'mots'; did you mean 'most'"),
        ({"dataset": "sums", "most": 0}, ConfigError, "most must be at least 1"),
        ({"dataset": "sums", "size": 0}, UserError, "size must be 1 or more, got 0"),
        ({"dataset": "sums", "seed": -1}, UserError, "seed must be 0 or more, got -1"),
        ({"dataset": "sums", "split": "dev"}, UserError, "split must be one of"),
        ({"dataset": "sums", "answer": "box"}, UserError, "answer must be one of tags, text"),
    ],
)
def test_a_wrong_argument_is_one_line(options, error, words):
    with pytest.raises(error, match=words):
        ReasoningGymEnv(**options)


# Environments with reset(seed) and step: GEM and plain Gymnasium


class Coins:
    """Heads or tails, as GEM's games are: global generators, both flags at the end."""

    def __init__(self, rounds=2):
        self.rounds = rounds
        self.reset()

    def reset(self, seed=None):
        if seed is not None:
            random.seed(seed)
        self.left = self.rounds
        self.side = random.choice(["heads", "tails"])
        return f"{self.rounds} coins.\n", {"suffix": "Heads or tails?"}

    def step(self, action):
        reward = float(self.side in action)
        self.side = random.choice(["heads", "tails"])
        self.left -= 1
        is_over = self.left == 0
        return f"It was worth {reward}.", reward, is_over, is_over, {"suffix": "Next?"}


def test_a_game_of_gems_kind_keeps_the_contract():
    env = GemEnv(env=Coins, num_tasks=3, seed=5)
    check_env(env)
    prompt, _ = env.reset(options={"index": 0})
    assert prompt[0].content == "2 coins.\nHeads or tails?"
    sides = random.Random(5)
    first, second = (sides.choice(["heads", "tails"]) for _ in range(2))
    *_, info = env.step(first)
    assert info["reply"][0].content == "It was worth 1.0.\nNext?"
    assert info["env_reward"] == 1.0
    _, reward, terminated, truncated, _ = env.step(second)
    assert (reward, terminated, truncated) == (
        2.0,
        True,
        False,
    )  # both turns, and no budget ran out
    assert env.tasks[0].info == {"seed": 5}
    assert env.tasks[0].data_source == "gem/Coins"


def test_the_steps_of_two_games_do_not_meet():
    env = GemEnv(env=Coins, kwargs={"rounds": 9}, num_tasks=2)
    other = env.fresh()
    episodes = []
    for is_beside in (False, True):
        env.reset(options={"index": 0})
        other.reset(options={"index": 1})
        replies = []
        for _ in range(8):
            replies.append(env.step("heads")[4]["reply"])
            if is_beside:
                other.step("heads")
                random.random()
        episodes.append(replies)
    assert episodes[0] == episodes[1]


def test_a_game_goes_on_in_a_copy():
    env = GemEnv(env=Coins, kwargs={"rounds": 4}, num_tasks=1)
    env.reset()
    env.step("heads")
    copies = [env.clone(), pickle.loads(pickle.dumps(env)), copy.deepcopy(env)]
    rest = [env.step("tails")[4]["env_reward"] for _ in range(3)]
    for one in copies:
        assert [one.step("tails")[4]["env_reward"] for _ in range(3)] == rest


def test_a_task_of_ones_own_needs_its_seed_and_its_opening():
    env = GemEnv(env=Coins, num_tasks=1)
    task = env.tasks[0]
    with pytest.raises(UserError, match=r"needs info\['seed'\]"):
        env.reset(options={"task": dataclasses.replace(task, info={})})
    with pytest.raises(UserError, match="opens otherwise"):
        env.reset(options={"task": Task(prompt="Three coins.", info={"seed": 1})})


class Letters(gymnasium.Env):
    """Spell the word backwards, in text."""

    observation_space = gymnasium.spaces.Text(max_length=40, charset="abc Spell:")
    action_space = gymnasium.spaces.Text(max_length=3, charset="abc")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.word = "".join(self.np_random.choice(list("abc"), size=3))
        return f"Spell: {self.word}", {}

    def step(self, action):
        is_right = action == self.word[::-1]
        return self.word, float(is_right), is_right, False, {}


class Lever(gymnasium.Env):
    """Pull a lever by number."""

    observation_space = gymnasium.spaces.Discrete(4)
    action_space = gymnasium.spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.good = int(self.np_random.integers(4))
        return self.good, {}

    def step(self, action):
        return self.good, float(action == self.good), False, action == 3, {}


def say_lever(observation):
    return f"Lever {observation} pays."


def test_a_gymnasium_environment_in_text_keeps_the_contract():
    env = GymnasiumTextEnv(env=Letters, num_tasks=3)
    check_env(env)
    prompt, _ = env.reset(options={"index": 1})
    word = prompt[0].content.removeprefix("Spell: ")
    _, reward, terminated, truncated, _ = env.step(f" {word[::-1]}\n")
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert env.tasks[1].info == {"seed": 1}
    assert env.tasks[1].data_source == "gymnasium/Letters"


def test_a_text_that_is_no_action_ends_the_episode():
    env = GymnasiumTextEnv(env=Letters, num_tasks=1, invalid_reward=-0.5)
    env.reset()
    _, reward, terminated, truncated, info = env.step("I think it is cba")
    assert (reward, terminated, truncated) == (-0.5, True, False)
    assert info["reply"] == ()


def test_functions_put_other_spaces_into_words():
    env = GymnasiumTextEnv(
        env=Lever, observe=say_lever, action=int, num_tasks=2, max_turns=5, system_prompt="Pull."
    )
    check_env(env)
    prompt, _ = env.reset(options={"index": 0})
    assert [message.role for message in prompt] == ["system", "user"]
    good = int(prompt[1].content.split()[1])
    env.step(str(good if good != 3 else 0))
    *_, terminated, truncated, _ = env.step("3")
    assert (terminated, truncated) == (False, True)
    env.reset(options={"index": 0})
    assert env.step("seven")[2]  # int() finds no action in it
    env.reset(options={"index": 0})
    assert env.step("7")[2]  # it is no lever


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"env": Lever}, r"kind Discrete, not Text: give a function observe"),
        ({"env": Lever, "observe": say_lever}, r"give a function action"),
        ({"env": "NoSuchEnv-v0"}, "cannot be made"),
        ({"env": Letters, "kwargs": {"speed": 2}}, "cannot be made"),
        ({"env": Letters, "observe": "say"}, "observe must be a function, got str"),
        ({"env": Letters, "num_tasks": 0}, "num_tasks must be 1 or more, got 0"),
        ({"env": Letters, "split": "dev"}, "split must be one of"),
    ],
)
def test_a_gymnasium_environment_that_cannot_be_played_is_one_line(options, words):
    with pytest.raises(UserError, match=words):
        GymnasiumTextEnv(**options)


def test_an_adapted_environment_runs_in_a_vector():
    envs = gymnasium.vector.SyncVectorEnv(
        [lambda: GymnasiumTextEnv(env=Letters, num_tasks=4) for _ in range(2)]
    )
    observations, _ = envs.reset(seed=3)
    assert len(observations) == 2
    _, rewards, terminated, *_ = envs.step(tuple(o[0].content[-1:-4:-1] for o in observations))
    assert rewards.tolist() == [1.0, 1.0]
    assert terminated.all()
    envs.close()


# Without the packages


@pytest.mark.parametrize(
    ("make", "module", "pip"),
    [
        (lambda: ReasoningGymEnv(dataset="gcd"), "reasoning_gym", "reasoning-gym"),
        (lambda: GemEnv(env="game:Sudoku-v0-easy"), "gem", "gem-llm"),
        (lambda: VerifiersEnv(env="gsm8k"), "verifiers", "verifiers"),
        (lambda: to_gem("math-gsm8k"), "gem", "gem-llm"),
        (lambda: to_verifiers("math-gsm8k"), "verifiers", "verifiers"),
    ],
)
def test_a_missing_package_is_named_with_its_pip_install(make, module, pip, monkeypatch):
    for name in (module, f"{module}.core", f"{module}.v1"):
        monkeypatch.setitem(sys.modules, name, None)  # an import of it fails
    with pytest.raises(DataError, match=f"pip install {pip}"):
        make()


# Ours as theirs


def test_ours_is_an_environment_of_gem(monkeypatch):
    core = types.ModuleType("gem.core")
    core.Env = type("Env", (), {})
    monkeypatch.setitem(sys.modules, "gem", types.ModuleType("gem"))
    monkeypatch.setitem(sys.modules, "gem.core", core)
    ours = GymnasiumTextEnv(env=Letters, num_tasks=4, system_prompt="Backwards.")
    theirs = to_gem(ours)
    assert isinstance(theirs, core.Env)
    text, info = theirs.reset(seed=2)
    assert text == f"Backwards.\n\n{ours.task.prompt[1].content}"
    word = text[-3:]
    beside = theirs.spawn(same_state=True)
    assert theirs.step("a")[1:4] == (0.0, False, False)
    assert theirs.step("a")[0] == word
    assert beside.env.turns == ()
    assert beside.step(word[::-1])[1:4] == (1.0, True, False)
    assert theirs.spawn().reset(seed=2) == (text, info)
    with pytest.raises(UserError, match="spawn changes no argument"):
        theirs.spawn(seed=3)
    with pytest.raises(UserError, match="takes no more arguments"):
        to_gem(ours, num_tasks=2)
    theirs.close()
