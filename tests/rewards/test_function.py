import asyncio
import pickle
from pathlib import Path
from typing import Any

import pytest
from rlgym_llm_rewards.function import Function

from rlgym_llm.errors import ConfigError, UserError
from rlgym_llm.rewards import Reward, RewardContext, build_reward
from rlgym_llm.score import score_rollouts
from rlgym_llm.scores import Score, ScoreStatus
from rlgym_llm.types import Completion, Rollout, Task, Turn

SOURCE = """
from __future__ import annotations
from dataclasses import dataclass
from rlgym_llm.rewards import reward

@dataclass
class Limit:
    value: int = 4

def brevity(completion, *, limit=Limit().value):
    return len(completion) <= limit

def detailed(completion, level):
    return {"score": 0.5, "level": level}

def scoreless(completion):
    return {"reward": 1.0}

@reward("marked", version=7, range=(0, 5), needs=("level",))
def marked(completion):
    return 5.0

@reward("ranks", scope="group")
def ranks(completions):
    return [{"score": c == max(completions), "n": len(completions)} for c in completions]

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    assert data_source == "sums" and extra_info == {"level": 3}
    return float(solution_str == ground_truth)

def terse(data_source, solution_str, ground_truth, bonus=0.0):
    return {"score": (solution_str == ground_truth) + bonus, "acc": True}

def greedy(data_source, solution_str, ground_truth, **kwargs):
    return len(kwargs)

def needy(data_source, solution_str, ground_truth, judge):
    return 1.0

not_callable = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    return path


def rollout(text: str = "five", rollout_id: str = "r0", answer: str = "five") -> Rollout:
    turn = Turn(new_prompt_token_ids=(), completion=Completion(text=text))
    task = Task(prompt="2 + 3 = ?", answer=answer, data_source="sums", info={"level": 3})
    return Rollout(id=rollout_id, task=task, group_id="g", sample_index=0, seed=0, turns=(turn,))


def build(file: Path, name: str, **kwargs: Any) -> Reward:
    return build_reward(Function, {"path": f"{file}:{name}", "kwargs": kwargs})


def score(file: Path, name: str, text: str = "five", **kwargs: Any) -> Score:
    return score_rollouts(build(file, name, **kwargs), [rollout(text)], RewardContext())[0]


def test_arguments_by_name(file):
    assert score(file, "brevity").value == 1.0
    assert score(file, "brevity", limit=3).value == 0.0


def test_a_dictionary_brings_details(file):
    found = score(file, "detailed")
    assert (found.value, found.info) == (0.5, {"level": 3})


def test_a_dictionary_without_score_is_an_error(file):
    found = score(file, "scoreless")
    assert found.status is ScoreStatus.ERROR
    assert "without 'score' (keys: reward)" in (found.error or "")


def test_a_marked_function_keeps_its_declarations(file):
    built = build(file, "marked")
    assert (built.version, built.range, built.needs) == (7, (0.0, 5.0), ("level",))
    assert score(file, "marked").value == 5.0


def test_a_group_function(file):
    built = build(file, "ranks")
    assert built.scope == "group"
    scores = score_rollouts(built, [rollout("a", "x"), rollout("b", "y")], RewardContext())
    assert [found.value for found in scores] == [0.0, 1.0]
    assert scores[0].info == {"n": 2}


def test_the_signature_of_verl(file):
    assert score(file, "compute_score").value == 1.0
    assert score(file, "compute_score", text="six").value == 0.0
    found = score(file, "terse", bonus=0.5)  # takes no extra_info; a further argument
    assert (found.value, found.info) == (1.5, {"acc": True})
    assert score(file, "greedy").value == 1.0  # extra_info goes to **kwargs
    assert score(file, "greedy", a=1, b=2).value == 3.0


def test_arguments_that_do_not_fit_are_said_at_construction(file):
    with pytest.raises(UserError, match="'needy': missing a required argument: 'judge'"):
        build(file, "needy")
    with pytest.raises(UserError, match="'terse': got an unexpected keyword argument 'bonsu'"):
        build(file, "terse", bonsu=1)
    with pytest.raises(ConfigError, match="no option 'limt'; did you mean 'limit'"):
        build(file, "brevity", limt=1)
    assert score(file, "needy", judge="me").value == 1.0


def test_what_is_missing_is_named(file):
    with pytest.raises(UserError) as error:
        build(file, "brevty")
    assert str(error.value).startswith(
        f"{file} has no function 'brevty'; did you mean 'brevity'? (functions: "
    )
    file.write_text("\n".join(f"def f{number}(): pass" for number in range(99)))
    with pytest.raises(UserError) as error:
        build(file, "other")
    first_ten = ", ".join(f"f{number}" for number in range(10))
    assert str(error.value) == f"{file} has no function 'other' (functions: {first_ten}, ...)"
    file.write_text(SOURCE)
    with pytest.raises(UserError, match="has no function 'not_callable'"):
        build(file, "not_callable")
    with pytest.raises(UserError, match=r"nowhere\.py does not exist"):
        build(file.with_name("nowhere.py"), "brevity")
    for path in ("mine.py", "mine.py:", ":brevity"):
        with pytest.raises(UserError, match=r"is no 'file\.py:name' or 'module:name'"):
            Function(path=path)


def test_a_class_is_no_function(file):
    with pytest.raises(UserError, match=r"mine\.py:Limit is a class, no function"):
        build(file, "Limit")
    file.write_text(
        "from rlgym_llm import Reward\nclass Mine(Reward):\n    name = 'mine'\nit = Mine()\n"
    )
    for name in ("Mine", "it"):
        with pytest.raises(UserError, match=f"{name} is a Reward, no function: name it in a Rewar"):
            build(file, name)


def test_what_a_row_gives_is_no_option(file):
    for name, argument in [
        ("compute_score", "solution_str"),
        ("compute_score", "extra_info"),
        ("greedy", "ground_truth"),
        ("brevity", "completion"),
        ("ranks", "completions"),
    ]:
        with pytest.raises(UserError) as error:
            build(file, name, **{argument: "x"})
        assert str(error.value) == (
            f"reward function {file}:{name}: kwargs set {argument!r}, which every row gives of its "
            "own; leave it out"
        )


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ('{"score": "1"}', "'1' is a str, no number"),
        ('("0.5", {})', "'0.5' is a str, no number"),
        ('{"score": None}', "None is a NoneType, no number"),
        ('{"score": [1]}', "[1] is a list, no number"),
        ('"1"', "returned a str"),
    ],
)
def test_a_text_is_no_number(tmp_path, returned, words):
    path = tmp_path / "mine.py"
    path.write_text(f"def f(completion):\n    return {returned}\n")
    found = score(path, "f")
    assert (found.value, found.status) == (None, ScoreStatus.ERROR)
    assert words in (found.error or "")


@pytest.mark.parametrize("scope", ["group", "batch"])
@pytest.mark.parametrize("returned", ["{0.25: 1, 0.75: 2}", "{0.25, 0.75}", "'12'", "0.5"])
def test_a_dictionary_is_no_list_of_scores(tmp_path, scope, returned):
    path = tmp_path / "mine.py"
    path.write_text(
        "from rlgym_llm.rewards import reward\n"
        f"@reward('mine', scope={scope!r})\ndef f(completions):\n    return {returned}\n"
    )
    found = score_rollouts(build(path, "f"), [rollout(), rollout("x", "r1")], RewardContext())
    assert [one.value for one in found] == [None, None]
    assert all("no list of scores" in (one.error or "") for one in found)


def test_numbers_of_many_kinds_are_scores(tmp_path):
    path = tmp_path / "mine.py"
    for value in ("numpy.float32(0.5)", "numpy.array(0.5)", "fractions.Fraction(1, 2)"):
        path.write_text(
            f"import fractions, numpy\ndef f(completion):\n    return {{'score': {value}}}\n"
        )
        path = path.rename(path.with_name(f"mine{len(value)}.py"))
        assert score(path, "f").value == 0.5


def test_a_file_that_does_not_import(tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("def f(:\n")
    with pytest.raises(UserError, match=r"broken\.py does not import: SyntaxError"):
        build(broken, "f")
    with pytest.raises(UserError, match="no_such_module does not import: ModuleNotFoundError"):
        Function(path="no_such_module:f")


def test_an_installed_module():
    built = build_reward(Function, {"path": "textwrap:dedent"})
    [found] = score_rollouts(built, [rollout()], RewardContext())
    assert "parameter 'text' has no default" in (found.error or "")


def test_files_of_one_name_do_not_meet(tmp_path):
    for folder, value in (("a", 1.0), ("b", 2.0)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(f"def f(completion):\n    return {value}\n")
    values = [score(tmp_path / folder / "mine.py", "f").value for folder in "ab"]
    assert values == [1.0, 2.0]


def test_it_pickles_by_its_path(file):
    built = build(file, "brevity", limit=3)
    copy = pickle.loads(pickle.dumps(built))
    assert copy == built
    assert score_rollouts(copy, [rollout()], RewardContext())[0].value == 0.0


MORE = """
import asyncio
from rlgym_llm.rewards import reward

def parts(completion):
    return 0.75, {"style": 0.5, "facts": 1.0}

async def compute_score(data_source, solution_str, ground_truth, extra_info, bonus=0.0):
    await asyncio.sleep(0)
    extra_info["seen"] = True
    return {"score": (solution_str == ground_truth) + bonus, "level": extra_info["level"]}

async def named(completion, *, limit=4):
    await asyncio.sleep(0)
    return len(completion) <= limit

@reward("awaited", backend="async", range=(0, 3))
async def awaited(completion):
    return {"score": 3.0}

@reward("all", scope="batch")
def everything(completions):
    return [(len(text) / 10, {"of": len(completions)}) for text in completions]
"""


@pytest.fixture
def more(tmp_path: Path) -> Path:
    path = tmp_path / "more.py"
    path.write_text(MORE)
    return path


def test_a_pair_of_total_and_parts(more):
    found = score(more, "parts")
    assert (found.value, found.info) == (0.75, {"style": 0.5, "facts": 1.0})


def test_async_functions(more):
    task_info = dict(rollout().task.info)
    for name, kwargs, value, info in [
        ("compute_score", {"bonus": 0.5}, 1.5, {"level": 3}),
        ("named", {"limit": 3}, 0.0, {}),
        ("awaited", {}, 3.0, {}),
    ]:
        built = build(more, name, **kwargs)
        assert built.backend == "async"
        [found] = score_rollouts(built, [rollout()], RewardContext())
        awaited = asyncio.run(built.ascore(rollout(), RewardContext()))
        assert (found.value, found.info) == (value, info)
        assert (awaited.value if isinstance(awaited, Score) else float(awaited or 0)) == value
    assert dict(rollout().task.info) == task_info  # what it wrote, it wrote into a copy
    with pytest.raises(UserError, match="'compute_score': got an unexpected keyword argument"):
        build(more, "compute_score", bonsu=1)


def test_a_function_of_the_whole_batch(more):
    built = build(more, "everything")
    found = score_rollouts(built, [rollout("five"), rollout("six", "r1")], RewardContext())
    assert [(one.value, one.info) for one in found] == [(0.4, {"of": 2}), (0.3, {"of": 2})]


VERL = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    extra_info["index"] += 1  # into a copy
    return {"score": float(extra_info["index"]), "keys": sorted(extra_info), "truth": ground_truth}
"""


def verl_rollout(ground_truth: Any, answer: str, **columns: Any) -> Rollout:
    info = {
        "data_source": "sums",
        "reward_model": {"style": "rule", "ground_truth": ground_truth},
        "extra_info": {"index": 7, "split": "train"},
        **columns,
    }
    turn = Turn(new_prompt_token_ids=(), completion=Completion(text="five"))
    task = Task(prompt="2 + 3 = ?", answer=answer, data_source="sums", info=info)
    return Rollout(id="r", task=task, group_id="g", sample_index=0, seed=0, turns=(turn,))


@pytest.mark.parametrize(
    ("truth", "answer", "handed"),
    [
        ("5", "5", "5"),
        (5, "5", 5),  # as verl's own column holds it, and not as text
        (["5", "five"], '["5", "five"]', ["5", "five"]),
        (5, "6", "6"),  # the answer was taken from another column
    ],
)
def test_a_row_of_verl_is_handed_over_as_verl_does(tmp_path, truth, answer, handed):
    path = tmp_path / "verl.py"
    path.write_text(VERL)
    built = build(path, "compute_score")
    row = verl_rollout(truth, answer)
    for _ in range(2):
        [found] = score_rollouts(built, [row], RewardContext())
        assert found.value == 8.0
        assert found.info == {"keys": ["index", "split"], "truth": handed}


def test_rows_without_extra_info_hand_over_their_columns(tmp_path):
    path = tmp_path / "verl.py"
    path.write_text(VERL)
    for column in ({}, {"extra_info": None}, {"extra_info": "text"}):
        turn = Turn(new_prompt_token_ids=(), completion=Completion(text="five"))
        task = Task(prompt="?", answer="5", info={"index": 1, **column})
        row = Rollout(id="r", task=task, group_id="g", sample_index=0, seed=0, turns=(turn,))
        [found] = score_rollouts(build(path, "compute_score"), [row], RewardContext())
        assert (found.value, found.info["keys"]) == (2.0, sorted({"index", *column}))


def test_callables_without_a_name(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "import functools\n"
        "def of(data_source, solution_str, ground_truth, bonus): return bonus\n"
        "half = functools.partial(of, bonus=0.5)\n"
        "class Of:\n    def __call__(self, completion): return 0.75\n"
        "thing = Of()\n"
    )
    assert score(path, "half").value == 0.5
    assert score(path, "thing").value == 0.75
    with pytest.raises(UserError, match="'half': got an unexpected keyword argument 'bonsu'"):
        build(path, "half", bonsu=1)
    with pytest.raises(UserError, match="builtins:max does not tell its parameters"):
        Function(path="builtins:max")


def test_verl_needs_a_ground_truth(file):
    turn = Turn(new_prompt_token_ids=(), completion=Completion(text="5"))
    task = Task(prompt="2 + 3 = ?", data_source="sums")
    blank = Rollout(id="r", task=task, group_id="g", sample_index=0, seed=0, turns=(turn,))
    [found] = score_rollouts(build(file, "terse"), [blank], RewardContext())
    assert "needs the column 'answer'" in (found.error or "")
    with pytest.raises(LookupError, match="no answer to give as ground_truth"):
        build(file, "terse").score(blank, RewardContext())


def test_verl_sees_all_turns(file):
    turns = tuple(
        Turn(new_prompt_token_ids=(), completion=Completion(text=text)) for text in ("fi", "ve")
    )
    task = Task(prompt="2 + 3 = ?", answer="fi\nve", data_source="sums")
    episode = Rollout(id="r", task=task, group_id="g", sample_index=0, seed=0, turns=turns)
    [found] = score_rollouts(build(file, "terse"), [episode], RewardContext())
    assert found.value == 1.0
