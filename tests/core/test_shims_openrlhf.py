from __future__ import annotations

import importlib.util
import math
import pickle
from pathlib import Path

import numpy as np
import pytest

from rlgym_llm import Completion, Message, Plugins, RewardComposer, Rollout, Task, Turn
from rlgym_llm.errors import ConfigError, DataError, RewardError
from rlgym_llm.reward_config import RewardsConfig
from rlgym_llm.rewards import RewardContext, build_reward
from rlgym_llm.shims.openrlhf import from_openrlhf, openrlhf_reward_func

PLUGIN = Path(__file__).with_name("shim_rewards.py")
PROMPT = "<|im_start|>user\n24 + 48 = ?<|im_end|>\n<|im_start|>assistant\n"
TEXTS = ["24 + 48 = 72\n#### 72", "It is 72.", "#### 71", ""]


def test_a_file_gives_tensors_of_the_composed_reward(tmp_path):
    torch = pytest.importorskip("torch")
    file = tmp_path / "reward_func.py"
    file.write_text(
        "import torch\n"
        "from rlgym_llm.shims.openrlhf import openrlhf_reward_func\n"
        "reward_func = openrlhf_reward_func(['math=1.0', 'format=0.2'], tensor=torch.tensor,\n"
        "                                   scores='math', special_tokens=['<|im_end|>'])\n"
    )
    spec = importlib.util.spec_from_file_location("reward_func", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    queries = [f"{PROMPT}{text}<|im_end|>" for text in TEXTS]
    found = module.reward_func(queries, [PROMPT] * 4, ["72"] * 4)
    assert torch.equal(found["rewards"], torch.tensor([1.2, 1.0, 0.2, 0.0]))
    assert torch.equal(found["scores"], torch.tensor([1.0, 1.0, 0.0, 0.0]))
    assert torch.equal(found["extra_logs"]["format"], torch.tensor([1.0, 0.0, 1.0, 0.0]))
    one = pickle.loads(pickle.dumps(module.reward_func))(queries[:1], [PROMPT], ["72"], extra=[1])
    assert one["rewards"].shape == (1,)


def test_the_response_is_what_follows_the_prompt_less_its_special_tokens(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def judge(completion, answer, label): return completion == answer == label\n")
    flags = [f"{file}:judge=1.0"]
    plain = openrlhf_reward_func(flags, tensor=list)
    cut = openrlhf_reward_func(flags, tensor=list, special_tokens=["</s>", "<pad>"])
    assert plain(["<s>ask: 5"], ["ask: "], ["5"])["rewards"] == [1.0]
    assert plain(["ask: 5</s>"], ["ask: "], ["5"])["rewards"] == [0.0]
    assert cut(["ask: 5</s><pad><pad>"], ["ask: "], ["5"])["rewards"] == [1.0]
    assert cut(["ask: a</s>b"], ["ask: "], ["a</s>b"])["rewards"] == [1.0]
    with pytest.raises(DataError, match="query 1 of OpenRLHF's batch does not hold its prompt"):
        plain(["ask: 5", "k: 5"], ["ask: ", "ask: "], ["5", "5"])
    with pytest.raises(DataError, match="1 queries, 2 prompts, 1 labels"):
        plain(["ask: 5"], ["ask: "] * 2, ["5"])


def test_a_row_without_a_reward_raises_unless_told_what_it_counts():
    picky = {"components": {"picky": 1.0, "at_step": 0.0}, "max_error_rate": 1.0}
    strict = openrlhf_reward_func(picky, tensor=list, plugins=[PLUGIN])
    with pytest.raises(RewardError, match=r"OpenRLHF takes nothing but numbers: .*kaput"):
        strict(["?boom"], ["?"], ["5"])
    lenient = openrlhf_reward_func(picky, tensor=list, plugins=[PLUGIN], unscored=0.0)
    found = lenient(["?5", "?none"], ["?", "?"], ["5", "5"])
    assert found["rewards"] == found["scores"] == [1.0, 0.0]
    assert found["extra_logs"]["picky"][0] == 1.0
    assert math.isnan(found["extra_logs"]["picky"][1])  # absent is not zero


def test_what_openrlhf_cannot_carry_is_refused():
    with pytest.raises(ConfigError, match="OpenRLHF calls reward_func with one row at a time"):
        openrlhf_reward_func({"rank": 1.0}, tensor=list, plugins=[PLUGIN])
    with pytest.raises(ConfigError, match="no component 'mth'; did you mean 'math'"):
        openrlhf_reward_func({"math": 1.0}, tensor=list, scores="mth")


def rollout(text, prompt="2+3? "):
    turn = Turn(new_prompt_token_ids=(), completion=Completion(text=text))
    task = Task(prompt=prompt, answer="5")
    return Rollout(id=text, task=task, group_id="g", sample_index=0, seed=0, turns=(turn,))


def score(function, row, **options):
    return build_reward(from_openrlhf(function, **options)).score(row, RewardContext())


def test_a_function_of_openrlhfs_is_called_with_one_row_of_three_lists():
    seen = []

    def reward_func(queries, prompts, labels, **kwargs):
        seen.append((queries, prompts, labels, kwargs))
        right = np.array([float(q.endswith(a)) for q, a in zip(queries, labels, strict=True)])
        return {"rewards": right + 0.5, "scores": right, "extra_logs": {"accuracy": right.mean()}}

    found = score(reward_func, rollout("It is 5"))
    assert found.value == 1.5
    assert found.info == {"accuracy": 1.0, "scores": 1.0}
    chat = (Message(role="system", content="Add."), Message(role="user", content="2+3?"))
    score(reward_func, rollout("x", chat))
    assert seen == [
        (["2+3? It is 5"], ["2+3? "], ["5"], {}),
        (["Add.\n2+3?x"], ["Add.\n2+3?"], ["5"], {}),
    ]


@pytest.mark.parametrize("value", [0.25, [0.25], np.array([0.25]), np.float32(0.25)])
def test_numbers_come_in_every_dress(value):
    assert score(lambda q, p, labels: value, rollout("x"), name="mine") == 0.25
    assert score(lambda q, p, labels: {"rewards": value}, rollout("x")).value == 0.25


def test_tensors_too():
    torch = pytest.importorskip("torch")
    assert score(lambda q, p, labels: torch.tensor([0.25]), rollout("x")) == 0.25


def test_what_is_no_reward_fails_its_row_alone():
    def reward_func(queries, prompts, labels):
        (query,) = queries
        if "keys" in query:
            return {"reward": 1.0}
        return [1.0, 2.0] if "two" in query else [1.0]

    class Table:
        def get(self, kind, name):
            return None

        def load(self, spec):
            return from_openrlhf(reward_func)

        def scored(self, cards):
            pass

    config = RewardsConfig.model_validate({"components": {"x": 1.0}, "max_error_rate": 1.0})
    cards = RewardComposer(config, Table())([rollout(text) for text in ("ok", "keys", "two")])
    assert [card.reward for card in cards] == [1.0, None, None]
    assert "a dictionary without 'rewards' (keys: reward)" in cards[1].error
    assert "returned 2 values for one row" in cards[2].error


def test_there_and_back_is_the_same(tmp_path):
    plugin = tmp_path / "round_trip.py"
    plugin.write_text(
        "from rlgym_llm import RewardSpec, hookimpl\n"
        "from rlgym_llm.shims.openrlhf import from_openrlhf, openrlhf_reward_func\n"
        "there = openrlhf_reward_func(['math=1.0', 'format=0.2'], tensor=list)\n"
        "back = from_openrlhf(there, name='back')\n"
        "@hookimpl\n"
        "def rlgym_register(kind):\n"
        "    spec = RewardSpec(name='back', entry_point=f'{__name__}:back')\n"
        "    return [spec] if kind == 'reward' else []\n"
    )
    config = RewardsConfig.model_validate({"back": 1.0})
    rows = [rollout(text) for text in ("Say\n#### 5", "It is 5.", "#### 6")]
    cards = RewardComposer(config, Plugins.discover([plugin]))(rows)
    plain = RewardsConfig.model_validate({"math": 1.0, "format": 0.2})
    wanted = RewardComposer(plain, Plugins.discover())(rows)
    assert [card.reward for card in cards] == [card.reward for card in wanted]
