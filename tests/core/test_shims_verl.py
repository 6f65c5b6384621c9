from __future__ import annotations

import functools
import importlib.util
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from rlgym_llm import Completion, Plugins, RewardComposer, Rollout, Task, Turn
from rlgym_llm.errors import ConfigError, DataError, RewardError
from rlgym_llm.reward_config import RewardsConfig
from rlgym_llm.shims.verl import verl_batch_compute_score, verl_compute_score

PLUGIN = Path(__file__).with_name("shim_rewards.py")
TEXTS = ["24 + 48 = 72\n#### 72", "It is 72.", "#### 71", "no idea", ""]


def rollout(text: str, answer: str = "72") -> Rollout:
    turn = Turn(new_prompt_token_ids=(), completion=Completion(text=text))
    task = Task(prompt="24 + 48 = ?", answer=answer, data_source="gsm8k", info={"index": 3})
    return Rollout(id=text, task=task, group_id="g", sample_index=0, seed=0, turns=(turn,))


def as_verl_loads_it(path, name="compute_score"):
    """verl executes the file as a module of no name in ``sys.modules``, and binds its kwargs."""
    spec = importlib.util.spec_from_file_location("custom_module", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, name)

    def call(raw, extra, *args, **kwargs):
        return raw(*args, **{**kwargs, **extra})

    return functools.partial(call, function, {})


def test_a_two_line_file_scores_as_the_composer_does(tmp_path):
    file = tmp_path / "rewards.py"
    file.write_text(
        "from rlgym_llm.shims.verl import verl_compute_score\n"
        "compute_score = verl_compute_score(['math=1.0', 'format=0.2'])\n"
    )
    compute_score = as_verl_loads_it(file)
    found = [
        compute_score(
            data_source="gsm8k",
            solution_str=text,
            ground_truth="72",
            extra_info={"index": 3, "num_turns": None, "rollout_reward_scores": {}},
        )
        for text in TEXTS
    ]
    config = RewardsConfig.model_validate({"math": 1.0, "format": 0.2})
    cards = RewardComposer(config, Plugins.discover())([rollout(text) for text in TEXTS])
    assert found == [
        {
            "score": card.reward,
            "math": card.components["math"].raw,
            "format": card.components["format"].raw,
        }
        for card in cards
    ]
    assert [row["score"] for row in found] == [1.2, 1.0, 0.2, 0.0, 0.0]


def test_many_threads_get_their_own_scores_and_a_pickle_gives_them_too():
    compute_score = verl_compute_score(["math=1.0", "format=0.2"])
    rows = [(text, str(gold)) for gold in range(20) for text in (f"#### {gold}", "#### 99", "x")]
    sources, texts, golds = ["gsm8k"] * len(rows), *zip(*rows, strict=True)
    for function in (compute_score, pickle.loads(pickle.dumps(compute_score))):
        with ThreadPoolExecutor(16) as pool:
            scores = [found["score"] for found in pool.map(function, sources, texts, golds)]
        assert scores == [1.2, 0.2, 0.0] * 20


def test_a_row_without_a_reward_raises_unless_told_what_it_counts():
    picky = {"components": {"picky": 1.0, "at_step": 0.0}, "max_error_rate": 1.0}
    compute_score = verl_compute_score(picky, plugins=[PLUGIN])
    assert compute_score("s", "5", "5") == {"score": 1.0, "picky": 1.0, "at_step": 1.0}
    with pytest.raises(RewardError, match=r"'s/train/7' has no reward, and verl takes .*kaput"):
        compute_score("s", "boom", "5", {"split": "train", "index": 7})
    with pytest.raises(RewardError, match="no component with a weight applies"):
        compute_score("s", "none", "5")
    lenient = verl_compute_score(picky, plugins=[PLUGIN], unscored=-1.0)
    rows = [lenient("s", text, "5") for text in ("5", "boom", "none")]
    assert [(row["score"], row["picky"], row["unscored"]) for row in rows] == [
        (1.0, 1.0, 0.0),
        (-1.0, None, 1.0),
        (-1.0, None, 1.0),
    ]
    assert len({tuple(row) for row in rows}) == 1  # verl reads the first row's keys of every row


def test_columns_reach_the_rewards_and_stay_the_callers(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "def judge(completion, answer, ground_truth, level, scale, data_source):\n"
        "    return scale * level * (ground_truth == [1, 2]) * (answer == '[1, 2]')\n"
    )
    compute_score = verl_compute_score([f"{file}:judge=1.0"])
    extra = {"level": 3}
    assert compute_score("s", "x", [1, 2], extra, scale=0.5)["score"] == 1.5
    assert extra == {"level": 3}


def test_the_prompt_is_looked_for_where_it_is_said_to_be():
    compute_score = verl_compute_score({"asks": 1.0}, plugins=[PLUGIN])
    assert compute_score("s", "x", "5", {"question": "2+3?"})["score"] == 4.0
    chat = verl_compute_score({"asks": 1.0}, plugins=[PLUGIN], prompt="messages")
    messages = [{"role": "system", "content": "Add."}, {"role": "user", "content": "2+3?"}]
    assert chat("s", "x", "5", {"messages": messages})["score"] == 9.0  # joined by a newline
    needy = verl_compute_score({"needs_prompt": 1.0}, plugins=[PLUGIN])
    assert needy("s", "x", "5", {"question": "2+3?"})["score"] == 1.0
    with pytest.raises(DataError, match=r"has no 'question' \(it has: index\); say which"):
        needy("s", "x", "5", {"index": 1})


def test_what_verl_cannot_carry_is_refused_when_the_file_is_loaded():
    with pytest.raises(ConfigError, match="one row at a time; use verl_batch_compute_score"):
        verl_compute_score({"rank": 1.0}, plugins=[PLUGIN])
    for name in ("score", "reward", "uid"):
        with pytest.raises(ConfigError, match=f"component '{name}' has the name of a column"):
            verl_compute_score({"components": {name: {"reward": "math"}}})


def test_a_batch_is_scored_in_order_and_must_line_up():
    compute_score = verl_batch_compute_score(["math=1.0", "format=0.2"])
    one = verl_compute_score(["math=1.0", "format=0.2"])
    extras = [{} for _ in TEXTS]
    found = compute_score(
        data_sources=np.array(["gsm8k"] * 5, dtype=object),
        solution_strs=TEXTS,
        ground_truths=["72"] * 5,
        extra_infos=np.array(extras, dtype=object),
    )
    assert found == [one("gsm8k", text, "72") for text in TEXTS]
    assert compute_score([], [], [], []) == []
    with pytest.raises(DataError, match=r"does not line up: 5 data_sources, 5 .*, 4 ground_"):
        compute_score(["s"] * 5, TEXTS, ["72"] * 4, extras)


def test_siblings_are_told_by_the_prompt_they_answer_wherever_they_stand():
    compute_score = verl_batch_compute_score({"rank": 1.0}, plugins=[PLUGIN])
    extras = [{"index": 0}, {"index": 1}, {"index": 0}, {"index": 1}]
    found = compute_score(["s"] * 4, ["aa", "b", "a", "bb"], ["5"] * 4, extras)
    assert [row["score"] for row in found] == [1.0, 0.0, 0.0, 1.0]
    # The same index of another data set, or of another split, is another prompt.
    extras = [{"split": "a", "index": 0}, {"split": "b", "index": 0}, {"split": "a", "index": 0}]
    found = compute_score(["s"] * 3, ["aaa", "a", "aa"], ["5"] * 3, extras)
    assert [row["score"] for row in found] == [1.0, 0.0, 0.0]
    with pytest.raises(DataError, match=r"extra_infos\[1\] has no 'index' that they share"):
        compute_score(["s"] * 2, ["a", "b"], ["5"] * 2, [{"index": 0}, {}])
    by_uid = verl_batch_compute_score({"rank": 1.0}, plugins=[PLUGIN], group_by="uid")
    found = by_uid(["s"] * 2, ["a", "bb"], ["5"] * 2, [{"uid": "q"}, {"uid": "q"}])
    assert [row["score"] for row in found] == [0.0, 1.0]


VERL_FILE = """
import re

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    assert data_source == "gsm8k" and extra_info == {"index": 3}
    found = re.findall(r"#### (-?[0-9.,]+)", solution_str)
    return 1.0 if found and found[-1] == ground_truth else 0.0

def with_parts(data_source, solution_str, ground_truth, extra_info, bonus=0.0, **kwargs):
    right = compute_score(data_source, solution_str, ground_truth, extra_info)
    return {"score": right + bonus, "acc": right, "pred": solution_str[-2:]}
"""


def test_a_file_of_verls_is_a_reward_of_ours_with_the_same_numbers(tmp_path):
    file = tmp_path / "verl_rewards.py"
    file.write_text(VERL_FILE)
    plain = as_verl_loads_it(file)
    config = RewardsConfig.model_validate(
        {
            "components": {
                "plain": {"reward": "function", "options": {"path": f"{file}:compute_score"}},
                "parts": {
                    "reward": "function",
                    "weight": 0.5,
                    "options": {"path": f"{file}:with_parts", "kwargs": {"bonus": 0.25}},
                },
            }
        }
    )
    cards = RewardComposer(config, Plugins.discover())([rollout(text) for text in TEXTS])
    wanted = [plain("gsm8k", text, "72", {"index": 3}) for text in TEXTS]
    assert [card.components["plain"].raw for card in cards] == wanted == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert [card.components["parts"].raw for card in cards] == [value + 0.25 for value in wanted]
    assert [card.reward for card in cards] == [value + 0.5 * (value + 0.25) for value in wanted]
    assert cards[0].components["parts"].info == {"acc": 1.0, "pred": "72"}


def test_there_and_back_is_the_same(tmp_path):
    file = tmp_path / "ours.py"
    file.write_text(
        "from rlgym_llm.shims.verl import verl_compute_score\n"
        "shim = verl_compute_score(['math=1.0', 'format=0.2'])\n"
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    return shim(data_source, solution_str, ground_truth, extra_info)\n"
    )
    back = {"reward": "function", "options": {"path": f"{file}:compute_score"}}
    config = RewardsConfig.model_validate({"components": {"back": back, "math": 0.0}})
    cards = RewardComposer(config, Plugins.discover())([rollout(text) for text in TEXTS])
    assert [card.reward for card in cards] == [1.2, 1.0, 0.2, 0.0, 0.0]
    assert [c.components["back"].info["math"] for c in cards] == [
        c.components["math"].raw for c in cards
    ]
