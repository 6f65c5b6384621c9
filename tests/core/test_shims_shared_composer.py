from __future__ import annotations

import pickle
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rlgym_llm.errors import ConfigError, RewardError, UnknownNameError
from rlgym_llm.file_module import import_file
from rlgym_llm.reward_config import RewardsConfig
from rlgym_llm.scores import CardStatus, ScoreCard
from rlgym_llm.shims.shared_composer import SharedComposer, answer_text, number_of, rewards_config
from rlgym_llm.types import Completion, Rollout, Task, Turn

PLUGIN = Path(__file__).with_name("shim_rewards.py")


def rollout(text: str, group: str = "g") -> Rollout:
    turn = Turn(new_prompt_token_ids=(), completion=Completion(text=text))
    task = Task(prompt="?", answer="5")
    return Rollout(
        id=text, task=task, group_id=group, sample_index=0, seed=0, turns=(turn,), terminated=True
    )


def test_every_way_to_say_which_rewards_is_the_same(tmp_path):
    section = {"components": {"math": {"weight": 1.0}, "format": {"weight": 0.2}}}
    bare, run = tmp_path / "rewards.yaml", tmp_path / "run.yml"
    bare.write_text("math: 1.0\nformat: 0.2\n")
    run.write_text("rewards:\n  components: {math: 1.0, format: 0.2}\nactor: {lr: 1}\n")
    wanted = RewardsConfig.model_validate(section)
    for rewards in (section, wanted, ["math=1.0", "format=0.2"], bare, str(bare), str(run)):
        assert rewards_config(rewards) == wanted
    assert rewards_config("math") == rewards_config(["math=1.0"])


def test_what_is_wrong_with_the_rewards_is_said_at_once(tmp_path):
    listed = tmp_path / "list.yaml"
    listed.write_text("- math\n")
    with pytest.raises(ConfigError, match=r"list\.yaml: a rewards file holds a mapping"):
        rewards_config(listed)
    with pytest.raises(ConfigError, match="'math' is given twice"):
        rewards_config(["math=1.0", "math=0.5"])
    with pytest.raises(UnknownNameError, match="unknown reward 'mth'; did you mean 'math'"):
        SharedComposer("mth=1.0")
    with pytest.raises(ConfigError, match="no option 'stile'"):
        SharedComposer({"components": {"format": {"options": {"stile": "hash"}}}})


def test_a_pickle_scores_the_same_in_another_process():
    scorer = SharedComposer({"picky": 2.0}, [PLUGIN])
    rows = [rollout("5"), rollout("6"), rollout("none")]
    here = [card.reward for card in scorer.score(rows)]
    assert here == [2.0, 0.0, None]
    program = (
        "import pickle, sys; scorer, rows = pickle.load(sys.stdin.buffer); "
        "print([card.reward for card in scorer.score(rows)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps((scorer, rows)), capture_output=True
    )
    assert done.stdout.decode().strip() == str(here), done.stderr.decode()


def test_calls_that_wait_are_scored_together_and_each_gets_its_own():
    plugin = import_file(PLUGIN)
    scorer = SharedComposer({"recorded": 1.0}, [PLUGIN])
    plugin.calls.clear()
    plugin.gate.clear()
    plugin.entered.clear()
    texts = ["a", "bb", "ccc", "dddd"]
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(scorer.score, [rollout("wait")])
        assert plugin.entered.wait(60)
        rest = [pool.submit(scorer.score, [rollout(text)]) for text in texts]
        other = pool.submit(scorer.score, [rollout("late")], step=7)
        until(lambda: len(scorer._waiting) == 5)
        plugin.gate.set()
        assert [future.result(60)[0].reward for future in rest] == [1.0, 2.0, 3.0, 4.0]
        assert first.result(60)[0].reward == 4.0
        assert other.result(60)[0].rollout_id == "late"
    assert sorted(map(sorted, plugin.calls)) == [texts, ["late"], ["wait"]]


def test_calls_whose_siblings_count_are_never_joined():
    scorer = SharedComposer({"rank": 1.0}, [PLUGIN])
    barrier = threading.Barrier(4)

    def score(length):
        barrier.wait(60)
        return [card.reward for card in scorer.score([rollout("x" * length), rollout("")])]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(score, [1, 2, 3, 4])) == [[1.0, 0.0]] * 4


def test_a_failure_reaches_everyone_who_waits_and_the_next_call_works():
    scorer = SharedComposer({"components": {"picky": 1.0}, "on_error": "raise"}, [PLUGIN])
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(scorer.score, [rollout("boom")]) for _ in range(8)]
        assert all("kaput" in str(future.exception(60)) for future in futures)
    assert scorer.score([rollout("5")])[0].reward == 1.0


def test_too_many_failures_end_the_scoring():
    scorer = SharedComposer({"picky": 1.0}, [PLUGIN])
    with pytest.raises(RewardError, match="more than max_error_rate"):
        scorer.score([rollout("boom")] * 8)


def test_after_close_it_scores_again():
    scorer = SharedComposer({"picky": 1.0}, [PLUGIN])
    assert scorer.score([rollout("5")])[0].reward == 1.0
    scorer.close()
    assert scorer.score([rollout("5")])[0].reward == 1.0


def test_a_number_is_asked_of_a_card_that_has_none():
    card = ScoreCard(
        rollout_id="r7", reward=None, status=CardStatus.MASKED, components={}, error="cut short"
    )
    with pytest.raises(RewardError, match=r"'r7' has no reward, and verl takes .*: cut short; uns"):
        number_of(card, None, trainer="verl")
    assert number_of(card, 0, trainer="verl") == 0.0


def test_ground_truths_are_read_as_data_files_are():
    numpy = pytest.importorskip("numpy")
    values = [None, "3.0", 3, 3.5, True, ["1", "2"], numpy.int64(3), numpy.array(["a"])]
    wanted = [None, "3.0", "3", "3.5", "true", '["1", "2"]', "3", '["a"]']
    assert [answer_text(value) for value in values] == wanted


def until(holds):
    """Waits for another thread to get there."""
    for _ in range(6000):
        if holds():
            return
        time.sleep(0.01)
    raise AssertionError("it never came to that")
