"""What a reward returns, raises or cancels is an error of its own row, under every backend."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))  # for the worker processes too
import scorer_returns as targets

from rlgym_llm.env import TextEnv
from rlgym_llm.errors import RewardError
from rlgym_llm.offline.card_json import card_json
from rlgym_llm.plain import json_data, plain
from rlgym_llm.rewards import Reward, RewardContext, build_reward, reward
from rlgym_llm.score import score_rollouts
from rlgym_llm.scorers import call as scorer_call
from rlgym_llm.scorers.scorer import Scorer, make_scorer
from rlgym_llm.scores import CardStatus, Component, Score, ScoreCard, ScoreStatus
from rlgym_llm.specs import Kind, RewardSpec, Spec
from rlgym_llm.store import read_rollouts, write_rollouts
from rlgym_llm.types import Completion, Rollout, Task, Turn

CTX = RewardContext()
BACKENDS = ("inline", "thread", "process", "async")


def rows(*texts: str) -> list[Rollout]:
    return [
        Rollout(
            id=f"r{index}",
            task=Task(prompt="2 + 3 = ?", answer="5"),
            group_id="g",
            sample_index=index,
            seed=0,
            turns=(Turn(new_prompt_token_ids=(1,), completion=Completion(text=text)),),
        )
        for index, text in enumerate(texts)
    ]


@pytest.fixture
def scoring() -> Iterator[Callable[..., list[Score]]]:
    """Scores texts with a reward; what it uses is closed at the end."""
    made: list[Scorer] = []

    def score(built: Reward, texts: Sequence[str], **settings: Any) -> list[Score]:
        scorer = make_scorer(built, **settings)
        made.append(scorer)
        scorer.setup(CTX)
        return scorer.submit(rows(*texts), CTX, name="mine")()

    yield score
    for scorer in made:
        scorer.close()


def hostile(backend: str) -> list[Reward]:
    if backend == "async":
        return [targets.HostileAwait()]
    return [targets.Hostile(), targets.HostileBatch()]


def between(names: Sequence[str]) -> list[str]:
    """The texts with an ordinary one before, between and after them."""
    return ["fine", *(text for name in names for text in (name, "fine"))]


@pytest.mark.parametrize("backend", BACKENDS)
class TestRows:
    def test_what_is_no_score_is_an_error_of_its_row_alone(self, scoring, backend):
        texts = between([f"error:{name}" for name in targets.ERRORS])
        for built in hostile(backend):
            found = scoring(built, texts, backend=backend, concurrency=1)
            assert [score.value for score in found[::2]] == [0.5] * len(found[::2])
            for index, words in zip(range(1, 99, 2), targets.ERRORS.values(), strict=False):
                score, error = found[index], found[index].error or ""
                assert (score.value, score.status) == (None, ScoreStatus.ERROR)
                assert error.startswith(f"reward 'mine' on rollout 'r{index}': ")
                assert words[1].replace("'bad'", f"'r{index}'") in error
                error.encode()

    def test_numbers_of_any_kind_become_pythons(self, scoring, backend):
        texts = between([f"value:{name}" for name in targets.VALUES])
        for built in hostile(backend):
            found = scoring(built, texts, backend=backend, concurrency=1)
            assert {score.status for score in found} == {ScoreStatus.OK}
            assert {type(score.value) for score in found} == {float}
            for score, (_, expected) in zip(found[1::2], targets.VALUES.values(), strict=True):
                assert (score.value, score.steps, dict(score.info)) == (
                    expected.value,
                    expected.steps,
                    expected.info,
                )
                for step in score.steps:
                    kinds = (type(step.value), type(step.char_start), type(step.char_end))
                    assert kinds == (float, int, int)

    def test_infos_are_written_the_same_whatever_they_hold(self, scoring, backend, tmp_path):
        texts = between([f"info:{name}" for name in targets.INFOS])
        for built in hostile(backend):
            found = scoring(built, texts, backend=backend, concurrency=1)
            assert [score.value for score in found] == [0.5, *[1.0, 0.5] * len(targets.INFOS)]
            for score, (_, expected) in zip(found[1::2], targets.INFOS.values(), strict=True):
                part = Component(
                    raw=1.0,
                    weight=1.0,
                    transformed=1.0,
                    contribution=1.0,
                    status=score.status,
                    info=score.info,
                )
                card = ScoreCard(
                    rollout_id="r", reward=1.0, status=CardStatus.SCORED, components={"mine": part}
                )
                written = json.loads(card_json(card))["components"]["mine"]["info"]
                assert written == expected
                write_rollouts(tmp_path / "run.jsonl", rows("a"), [replace(card, rollout_id="r0")])
            last = read_rollouts(tmp_path / "run.jsonl").records[-1].card
            assert last is not None
            assert last.components["mine"].info == {"a": [1, "b'x'"]}


@pytest.mark.parametrize("backend", ["inline", "thread", "process"])
@pytest.mark.parametrize("cls", [targets.Lists, targets.GroupLists])
def test_only_a_sequence_of_scores_is_one_score_for_each(scoring, backend, cls):
    if backend == "process":  # which is slow to start
        kinds: Sequence[str] = ("dict", "numpy")
    else:
        kinds = tuple(targets.LISTS)
    for kind in kinds:
        found = scoring(cls(kind=kind), ["a", "b", "c"], backend=backend, concurrency=1)
        if kind in ("tuple", "numpy", "generator"):
            assert [score.value for score in found] == [0.5] * 3
            continue
        assert [score.value for score in found] == [None] * 3
        expected = {
            "short": "returned 2 scores for 3 rollouts",
            "long": "returned 5 scores for 3 rollouts",
            "endless": "returned more than 3 scores for 3 rollouts",
            "keys": "returned a dict_keys; return a list of 3 scores",
            "none": "returned a NoneType; return a list of 3 scores",
            "number": "returned a float; return a list of 3 scores",
            "score": "returned a Score; return a list of 3 scores",
        }.get(kind, f"returned a {kind}; return a list of 3 scores")
        for index, score in enumerate(found):
            assert (score.error or "").startswith(
                f"reward 'mine' on rollout 'r{index}': {expected}"
            )


def test_a_real_tensor_of_two_numbers():
    torch = pytest.importorskip("torch")
    built = build_reward(reward("x")(lambda completion: torch.tensor([0.1, 0.2])))
    [score] = score_rollouts(built, rows("a"), CTX)
    assert "returned a Tensor that is no number" in (score.error or "")
    built = build_reward(reward("x")(lambda completion: torch.tensor([0.5], requires_grad=True)))
    assert score_rollouts(built, rows("a"), CTX)[0].value == 0.5


@reward("returning")
def returning(completion: str) -> Any:
    return targets.act(completion)


class OneReward:
    """Plugins of which there is one."""

    def get(self, kind: Kind, name: str, /) -> Spec:
        return RewardSpec(name=name, entry_point="scorer_returns:unused")

    def load(self, spec: Spec, /) -> Any:
        return returning

    def scored(self, cards: Sequence[ScoreCard]) -> None:
        """Nobody listens."""


def test_an_environment_goes_on_too():
    rewards = {"components": {"returning": {"weight": 1.0}}, "max_error_rate": 1.0}
    env = TextEnv(tasks=[Task(prompt="?", id="t0")], rewards=rewards)
    env.plugins = OneReward()
    for name in targets.ERRORS:
        env.reset(seed=0)
        _, value, terminated, _, info = env.step(f"error:{name}")
        assert (value, terminated, info["score"].status) == (0.0, True, CardStatus.FAILED_REWARD)
    env.reset(seed=0)
    assert env.step("fine")[1] == 0.5
    env.close()


ATTACKS = {
    "cancel itself": "its task was cancelled, or its event loop ended, alone as well",
    "cancel everyone": "its task was cancelled, or its event loop ended, alone as well",
    "exit in child": "SystemExit: 1",
    "close loop": "RuntimeError: Cannot close a running event loop",
    "base": "BaseException: b",
}
"""Errors of the rows that attack the loop; the other attacks come to nothing."""


class TestAsync:
    @pytest.mark.parametrize("name", targets.LOOP_ACTS)
    @pytest.mark.parametrize("timeout_s", [None, 30])
    def test_a_row_that_attacks_the_loop_harms_itself_alone(self, scoring, name, timeout_s):
        texts = ["fine", name, "fine", name, *["fine"] * 8]
        found = scoring(
            targets.HostileAwait(), texts, backend="async", timeout_s=timeout_s, concurrency=4
        )
        for text, score in zip(texts, found, strict=True):
            if text == "fine" or name not in ATTACKS:
                assert (score.value, score.error) == (0.5, None)
            else:
                assert score.status is ScoreStatus.ERROR
                assert ATTACKS[name] in (score.error or "")

    def test_another_submission_is_not_cancelled_with_it(self):
        scorer = make_scorer(targets.HostileAwait(), backend="async")
        others = [scorer.submit(rows(*["fine"] * 20), CTX, name="x") for _ in range(3)]
        bad = scorer.submit(rows("cancel everyone"), CTX, name="x")
        assert [score.value for score in bad()] == [None]
        for other in others:
            assert [score.value for score in other()] == [0.5] * 20
        scorer.close()


class TestProcess:
    def test_an_answer_that_cannot_be_sent_is_that_of_its_row(self, scoring):
        texts = ["fine"] * 30
        texts[11] = "bad"
        found = scoring(targets.Meddling(), texts, backend="process", concurrency=1)
        expected = [0.5] * 30
        assert [s.value for s in found if s is not found[11]] == expected[1:]
        assert "its answer is longer than 64 MiB" in (found[11].error or "")

    def test_a_failing_close_is_printed_under_the_name(self, capfd):
        scorer = make_scorer(targets.Phases(refuses="close"), backend="process", name="mine")
        scorer.setup(CTX)
        scorer.close()
        assert (
            "reward 'mine' failed in close: BaseException: closed badly" in capfd.readouterr().err
        )


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_setup_that_raises_anything_names_the_reward(backend):
    scorer = make_scorer(targets.Phases(refuses="setup"), backend=backend, name="mine")
    with pytest.raises(RewardError) as error:
        scorer.setup(CTX)
    assert str(error.value) == "reward 'mine' failed in setup: CancelledError"


@pytest.mark.parametrize("backend", ["process", "async"])
def test_a_setup_that_hangs_is_ended(backend, monkeypatch):
    monkeypatch.setattr(scorer_call, "_SETUP_S", 2.0)
    built = targets.Phases(hangs="setup")
    scorer = make_scorer(built, backend=backend, name="mine", timeout_s=0.5)
    with pytest.raises(RewardError) as error:
        scorer.setup(CTX)
    assert str(error.value) == (
        "reward 'mine' failed in setup: not ready within 2 s; what takes longer to load needs a "
        "longer timeout_s"
    )


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner)
    ),
    max_leaves=20,
)


@given(_ANY)
def test_plain_is_json_data_and_stays_as_it_is(value):
    found = plain(value)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert plain(found) == found


@given(st.dictionaries(st.text(), _ANY))
def test_an_info_is_written_as_an_object(info):
    assert set(json.loads(json.dumps(json_data(info), allow_nan=False))) == set(info)
