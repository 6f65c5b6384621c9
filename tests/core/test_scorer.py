"""What every backend promises, and what only `make_scorer` does."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))  # for the worker processes too
import scorer_targets as targets

from rlgym_llm.errors import ConfigError, PluginError, RewardError
from rlgym_llm.plugins import Plugins
from rlgym_llm.rewards import Reward, RewardContext, build_reward, reward
from rlgym_llm.score import score_rollouts
from rlgym_llm.scorers.call import split_calls, split_rows
from rlgym_llm.scorers.scorer import RewardSource, Scorer, make_scorer, reward_source
from rlgym_llm.scores import Score
from rlgym_llm.types import Completion, Rollout, Task, Turn

CTX = RewardContext()
BACKENDS = ("inline", "thread", "process")


def rollout(text: str, index: int, *, group: str = "g", info: Any = None) -> Rollout:
    turn = Turn(new_prompt_token_ids=(1,), completion=Completion(text=text))
    task = Task(prompt="2 + 3 = ?", answer="5", info=info or {})
    return Rollout(
        id=f"r{index}", task=task, group_id=group, sample_index=index, seed=0, turns=(turn,)
    )


def rows(*texts: str) -> list[Rollout]:
    return [rollout(text, index) for index, text in enumerate(texts)]


@pytest.fixture
def scoring() -> Iterator[Callable[..., Scorer]]:
    """`make_scorer`, with the scorers set up, and closed at the end."""
    made: list[Scorer] = []

    def make(built: Reward, *, ctx: RewardContext = CTX, **settings: Any) -> Scorer:
        scorer = make_scorer(built, **settings)
        scorer.setup(ctx)
        made.append(scorer)
        return scorer

    yield make
    for scorer in made:
        scorer.close()


def values(scores: Sequence[Score]) -> list[float | None]:
    return [score.value for score in scores]


@pytest.mark.parametrize("backend", BACKENDS)
class TestEveryBackend:
    TEXTS = ("a", "raise", "bb", "exit", "nan", "none", "ccc", "text", "steps", "far", "dddd")

    @pytest.mark.parametrize("cls", [targets.Obedient, targets.Batched])
    def test_scores_are_those_of_inline(self, scoring, backend, cls):
        rollouts = rows(*self.TEXTS * 4)
        scorer = scoring(cls(), backend=backend, concurrency=2, timeout_s=60)
        found = scorer.submit(rollouts, CTX, name="mine")()
        expected = score_rollouts(cls(), rollouts, CTX, name="mine")
        # JSON makes a list of a tuple in info; all else is equal.
        for score in found:
            if "pair" in score.info:
                assert list(score.info["pair"]) == [1, 2]
        assert [(s.name, s.value, s.status, s.steps, s.error) for s in found] == [
            (s.name, s.value, s.status, s.steps, s.error) for s in expected
        ]
        assert values(found[:11]) == [1, None, 2, None, None, None, 3, None, 1, None, 4]
        assert found[1].error == "reward 'mine' on rollout 'r1': ValueError: told so"
        assert "[0, 99) of a text of 3 characters" in (found[9].error or "")

    def test_groups_are_found_wherever_they_stand(self, scoring, backend):
        texts = [("aa", "x"), ("b", "y"), ("aaaaaa", "x"), ("b", "y")]
        rollouts = [rollout(text, i, group=group) for i, (text, group) in enumerate(texts)]
        scorer = scoring(targets.Siblings(), backend=backend, concurrency=2)
        assert values(scorer.submit(rollouts, CTX, name="s")()) == [0.25, 0.5, 0.75, 0.5]

    def test_components_go_to_the_rollouts_that_they_are_of(self, scoring, backend):
        ctx = RewardContext(components={"seen": (1.0, 2.0, None, 4.0), "other": (1, None, 3, 4)})
        rollouts = [rollout("a", i, group="xyxy"[i]) for i in range(4)]
        siblings = scoring(targets.Siblings(), backend=backend, concurrency=1)
        assert values(siblings.submit(rollouts, ctx, name="s")()) == [1.5, 2.5, 0.5, 4.5]
        seen = scoring(targets.Seen(), backend=backend, concurrency=1)
        assert values(seen.submit(rollouts, ctx, name="s")()) == [2.0, None, 4.0, 5.0]

    def test_scope_batch_sees_all_at_once(self, scoring, backend):
        rollouts = rows(*("x" * n for n in range(40, 0, -1)))
        scorer = scoring(targets.Rank(), backend=backend)
        assert values(scorer.submit(rollouts, CTX, name="rank")()) == list(range(39, -1, -1))
        failed = scorer.submit(rows("x", "raise"), CTX, name="rank")()
        assert values(failed) == [None, None]
        assert "'r0': ValueError: told so" in (failed[0].error or "")

    def test_a_wrong_number_of_scores_fails_the_call(self, scoring, backend):
        scorer = scoring(targets.Batched(), backend=backend)
        found = scorer.submit(rows("a", "short", "b"), CTX, name="x")()
        assert values(found) == [None] * 3
        assert "returned 0 scores for 3 rollouts" in (found[0].error or "")

    def test_nothing_gives_nothing(self, scoring, backend):
        assert scoring(targets.Obedient(), backend=backend).submit([], CTX, name="x")() == []

    def test_setup_and_close_once_each_where_it_scores(self, scoring, backend, tmp_path):
        log = tmp_path / "log"
        scorer = scoring(targets.Obedient(log=str(log)), backend=backend, concurrency=1)
        scorer.submit(rows("a"), CTX, name="x")()
        scorer.submit(rows("b"), CTX, name="x")()
        scorer.close()
        scorer.close()
        lines = [line.split() for line in log.read_text().splitlines()]
        assert [what for what, _ in lines][:2] == ["setup", "close"]
        assert {pid == str(os.getpid()) for _, pid in lines} == {backend != "process"}

    def test_it_can_be_set_up_again_after_close(self, scoring, backend):
        scorer = scoring(targets.Obedient(), backend=backend)
        scorer.close()
        scorer.setup(CTX)
        assert values(scorer.submit(rows("a"), CTX, name="x")()) == [1.0]

    def test_a_failing_setup_names_the_reward(self, backend):
        scorer = make_scorer(targets.Obedient(refuses="setup"), backend=backend, name="mine")
        with pytest.raises(RewardError) as error:
            scorer.setup(CTX)
        assert str(error.value) == "reward 'mine' failed in setup: OSError: no model"

    def test_a_failing_close_names_the_reward(self, backend):
        scorer = make_scorer(targets.Obedient(refuses="close"), backend=backend, name="mine")
        scorer.setup(CTX)
        if backend == "process":
            scorer.close()  # the process ends, whatever it raises
            return
        with pytest.raises(RewardError) as error:
            scorer.close()
        assert str(error.value) == "reward 'mine' failed in close: OSError: closed badly"

    def test_it_scores_in_an_event_loop_that_runs(self, scoring, backend):
        scorer = scoring(targets.Obedient(), backend=backend, timeout_s=60)

        async def main() -> list[Score]:
            return await asyncio.to_thread(scorer.submit(rows("a", "bb"), CTX, name="x"))

        assert values(asyncio.run(main())) == [1.0, 2.0]

    def test_it_scores_from_many_threads_at_once(self, scoring, backend):
        scorer = scoring(targets.Obedient(), backend=backend, concurrency=2)
        found: dict[int, list[float | None]] = {}

        def work(number: int) -> None:
            texts = ["x" * (number + i) for i in range(1, 30)]
            found[number] = values(scorer.submit(rows(*texts), CTX, name="x")())

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == {n: [float(n + i) for i in range(1, 30)] for n in range(4)}


@pytest.mark.parametrize(
    ("built", "backend"),
    [
        (targets.Obedient(), "inline"),
        (targets.Obedient(), "thread"),
        (targets.Obedient(), "process"),
        (targets.Awaiting(), "async"),
    ],
)
def test_what_was_submitted_outlives_the_scorer(built, backend):
    pending = make_scorer(built, backend=backend).submit(rows("a", "bb"), CTX, name="x")
    gc.collect()
    assert values(pending()) == [1.0, 2.0]


def test_threads_end_with_their_scorer():
    before = threading.active_count()
    for built, backend in ((targets.Obedient(), "thread"), (targets.Awaiting(), "async")):
        make_scorer(built, backend=backend).submit(rows("a"), CTX, name="x")()
    del built
    for _ in range(1000):
        gc.collect()
        if threading.active_count() <= before:
            break
        time.sleep(0.01)
    assert threading.active_count() <= before


class TestArguments:
    def test_what_is_given_goes_before_what_is_declared(self, scoring):
        declared = reward("x", backend="process", timeout_s=1e-9)(targets.act)
        assert declared is targets.act
        built = build_reward(reward("x", timeout_s=1e-9)(lambda completion: 1.0))
        assert values(scoring(built).submit(rows("a"), CTX, name="x")()) == [None]
        patient = scoring(built, backend="thread", timeout_s=60)
        assert values(patient.submit(rows("a"), CTX, name="x")()) == [1.0]

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"backend": "proces"}, "unknown backend 'proces'; did you mean 'process'"),
            ({"timeout_s": 0}, "timeout_s must be above 0, not 0"),
            ({"timeout_s": math.nan}, "timeout_s must be above 0, not nan"),
            ({"memory_mb": -1}, "memory_mb must be above 0"),
            ({"concurrency": 0}, "concurrency must be above 0"),
        ],
        ids=lambda value: str(value)[:20],
    )
    def test_values_out_of_range_are_said(self, settings, message):
        with pytest.raises(ConfigError, match=message) as error:
            make_scorer(targets.Obedient(), name="mine", **settings)
        assert "'mine'" in str(error.value)

    def test_a_reward_under_a_backend_that_it_is_not_for(self):
        with pytest.raises(PluginError, match=r"'obedient' cannot be awaited.*use 'thread'"):
            make_scorer(targets.Obedient(), backend="async")
        with pytest.raises(PluginError, match=r"'judged' is an async function.*backend='async'"):
            make_scorer(build_reward(targets.judged), backend="thread")
        with pytest.raises(PluginError, match=r"'awaiting' is an async function"):
            make_scorer(targets.Awaiting())
        with pytest.raises(PluginError, match=r"scope 'group'"):
            make_scorer(targets.Siblings(), backend="async")

    def test_declared_backends_are_taken(self):
        assert type(make_scorer(build_reward(targets.counted))).__name__ == "ProcessScorer"
        assert type(make_scorer(build_reward(targets.judged))).__name__ == "AsyncScorer"
        assert type(make_scorer(targets.Obedient())).__name__ == "InlineScorer"


class TestFunctions:
    def test_a_function_of_scope_batch_gets_aligned_lists(self):
        rollouts = [rollout("a", 0, group="xx"), rollout("bb", 1, group="y")]
        assert values(score_rollouts(build_reward(targets.ranked), rollouts, CTX)) == [3.0, 3.0]

    def test_components_come_by_name(self):
        @reward("more", uses=("other",))
        def more(completion, components):
            return components["other"] + 1

        @reward("most", scope="group", uses=("other",))
        def most(completions, components):
            return [value == max(components["other"]) for value in components["other"]]

        ctx = RewardContext(components={"other": (1.0, 2.0)})
        assert values(score_rollouts(build_reward(more), rows("a", "b"), ctx)) == [2.0, 3.0]
        assert values(score_rollouts(build_reward(most), rows("a", "b"), ctx)) == [0.0, 1.0]

    def test_a_coroutine_that_nobody_awaits_is_an_error_without_a_warning(self):
        async def inner() -> float:
            return 1.0

        built = build_reward(reward("x")(lambda completion: inner()))
        assert "returned a coroutine" in (score_rollouts(built, rows("a"), CTX)[0].error or "")


class TestSources:
    def test_a_source_is_plain_data_that_any_process_can_build(self, scoring):
        path = Path(targets.__file__)
        plugins = Plugins.discover([path])
        source = reward_source(plugins, "counted", {"factor": 3})
        assert source is not None
        assert source.extra == (str(path),)
        built, found = source.build()
        assert found.extra == (path,)
        assert values(score_rollouts(built, rows("ab"), CTX)) == [6.0]
        assert pickle.loads(pickle.dumps(source)) == source
        scorer = scoring(built, source=source, concurrency=1)
        assert values(scorer.submit(rows("ab"), CTX, name="x")()) == [6.0]

    def test_what_another_process_would_not_find_has_no_source(self):
        plugins = Plugins.discover()
        assert reward_source(plugins, "math", {}) is not None
        assert reward_source(plugins, "math", {"x": {1}}) is None
        assert reward_source(object(), "math", {}) is None

    def test_a_source_whose_name_means_something_else_is_refused(self):
        source = RewardSource(name="math", entry_point="elsewhere:Math")
        with pytest.raises(PluginError, match=r"'math' is rlgym_llm_rewards.math:Math here"):
            source.build()

    def test_what_does_not_pickle_is_said_at_once(self):
        built = build_reward(reward("x", backend="process")(lambda completion: 1.0))
        with pytest.raises(PluginError, match=r"'x' cannot be sent to a worker process.*'thread'"):
            make_scorer(built)

    def test_what_the_program_itself_defines_is_said_at_once(self, monkeypatch):
        class Mine(Reward):
            name = "mine"

            def score(self, rollout, ctx):
                return 1.0

        monkeypatch.setattr(Mine, "__module__", "__main__")
        with pytest.raises(PluginError, match=r"'mine' is defined in the program itself"):
            make_scorer(Mine(), backend="process")


@given(st.lists(st.sampled_from("abc")), st.sampled_from([None, 1, 2, 5]))
def test_calls_hold_every_rollout_once_with_its_components(groups, most_rows):
    rollouts = [rollout("a", i, group=group) for i, group in enumerate(groups)]
    ctx = RewardContext(components={"at": tuple(float(i) for i in range(len(groups)))})
    for cls in (targets.Obedient, targets.Batched, targets.Siblings, targets.Rank):
        calls = split_calls(cls(), rollouts, ctx, most_rows=most_rows)
        assert sorted(place for call in calls for place in call.places) == [*range(len(groups))]
        for call in [*calls, *(row for whole in calls for row in split_rows(whole))]:
            assert [rollouts[place] for place in call.places] == list(call.rollouts)
            assert call.ctx.components["at"] == tuple(map(float, call.places))
