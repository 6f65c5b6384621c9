import itertools
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlgym_llm.compose import RewardComposer, is_truncated
from rlgym_llm.composition.card import compose
from rlgym_llm.composition.metrics import scoring_metrics
from rlgym_llm.errors import ConfigError, RewardError, UnknownNameError
from rlgym_llm.reward_config import Const, RewardsConfig
from rlgym_llm.rewards import Reward, RewardContext, reward
from rlgym_llm.scores import CardStatus, Score, ScoreCard, ScoreStatus
from rlgym_llm.specs import Kind, RewardSpec, Spec
from rlgym_llm.types import Completion, FinishReason, Rollout, RolloutStatus, Task, Turn


class Installed:
    """Plugins of this test: a table, and an ear that remembers."""

    def __init__(self, **targets: Any) -> None:
        self._targets = targets
        self.heard: list[Sequence[ScoreCard]] = []

    def get(self, kind: Kind, name: str) -> RewardSpec:
        if name not in self._targets:
            raise UnknownNameError(kind, name, self._targets)
        return RewardSpec(name=name, entry_point="here:there")

    def load(self, spec: Spec) -> Any:
        return self._targets[spec.name]

    def scored(self, cards: Sequence[ScoreCard]) -> None:
        self.heard.append(cards)


def rollout(text: str = "ok", *, rollout_id: str = "r0", **fields: Any) -> Rollout:
    turn = Turn(
        new_prompt_token_ids=(),
        completion=Completion(text=text, finish_reason=fields.pop("finish", FinishReason.STOP)),
    )
    fields = {"group_id": "g", "sample_index": 0, "seed": 0, "turns": (turn,), **fields}
    return Rollout(id=rollout_id, task=Task(prompt="?", answer="5"), **fields)


def ok(name: str, value: float | None) -> Score:
    status = ScoreStatus.NOT_APPLICABLE if value is None else ScoreStatus.OK
    return Score(name=name, value=value, status=status)


def failed(name: str) -> Score:
    return Score(name=name, value=None, status=ScoreStatus.ERROR, error=f"reward {name!r} broke")


def composer(plugins: Installed, evaluation: bool = False, **section: Any) -> RewardComposer:
    config = RewardsConfig.model_validate(section)
    return RewardComposer(config, plugins, evaluation=evaluation)


@reward("length", range=(0, math.inf))
def length(completion):
    return len(completion)


@reward("good")
def good(completion):
    if completion == "raise":
        raise ValueError("cannot judge this")
    return completion == "ok"


@reward("bonus")
def bonus(completion):
    return None if completion == "skip" else 0.5


class TestCompose:
    def test_reward_assembly(self):
        # Environment 8, 0, 8; format bonus 1.5, 1.5, 0; 0.01 a token at 100, 250, 40 tokens:
        # 8 + 1.5 - 1 = 8.5; 0 + 1.5 - 2.5 = -1; 8 + 0 - 0.4 = 7.6.
        weights = {"env": 1.0, "format": 1.0, "length": -0.01}
        rows = zip([8.0, 0.0, 8.0], [1.5, 1.5, 0.0], [100.0, 250.0, 40.0], strict=True)
        rewards = [
            compose("r", {n: ok(n, v) for n, v in zip(weights, row, strict=True)}, weights).reward
            for row in rows
        ]
        assert rewards == pytest.approx([8.5, -1.0, 7.6], abs=1e-12)

    def test_one_line_of_weights(self):
        # 1.0 * 1 + 0.2 * 0.5 + 0.3 * 0.8 = 1.34
        weights = {"correctness": 1.0, "format": 0.2, "fluency": 0.3}
        values = [1.0, 0.5, 0.8]
        scores = {n: ok(n, v) for n, v in zip(weights, values, strict=True)}
        card = compose("r", scores, weights)
        assert card.reward == pytest.approx(1.34, abs=1e-12)
        assert card.status is CardStatus.SCORED
        component = card.components["fluency"]
        assert (component.raw, component.weight, component.transformed) == (0.8, 0.3, 0.8)
        assert component.contribution == pytest.approx(0.24)

    def test_clip_is_on_the_sum(self):
        scores = {"a": ok("a", 3.0), "b": ok("b", -1.0)}
        card = compose("r", scores, {"a": 1.0, "b": 1.0}, clip=(-1.0, 1.5))
        assert card.reward == 1.5  # 3 - 1 = 2, cut to 1.5
        assert [c.contribution for c in card.components.values()] == [3.0, -1.0]

    def test_not_applicable_drops_its_term(self):
        card = compose("r", {"a": ok("a", None), "b": ok("b", 0.5)}, {"a": 1.0, "b": 0.2})
        assert card.reward == 0.1
        assert card.components["a"].contribution is None

    def test_nothing_applicable_is_no_reward(self):
        card = compose("r", {"a": ok("a", None)}, {"a": 1.0})
        assert (card.reward, card.status) == (None, CardStatus.MASKED)
        assert "applies" in (card.error or "")

    def test_metrics_alone_are_no_reward(self):
        card = compose("r", {"a": ok("a", None), "n": ok("n", 3.0)}, {"a": 1.0, "n": 0.0})
        assert (card.reward, card.status) == (None, CardStatus.MASKED)

    def test_a_failure_is_no_zero(self):
        card = compose("r", {"a": failed("a"), "b": ok("b", 0.5)}, {"a": 1.0, "b": 1.0})
        assert (card.reward, card.status) == (None, CardStatus.FAILED_REWARD)
        assert card.error == "reward 'a' broke"
        assert card.components["a"].contribution is None
        assert card.components["b"].contribution == 0.5

    @pytest.mark.parametrize(("policy", "total"), [("zero", 0.5), (Const(const=-1.0), -1.5)])
    def test_a_failure_counts_as_asked(self, policy, total):
        scores = {"a": failed("a"), "b": ok("b", 0.5)}
        card = compose("r", scores, {"a": 2.0, "b": 1.0}, on_error=policy)
        assert card.reward == total  # 2 * 0 + 0.5, or 2 * -1 + 0.5
        assert card.components["a"].raw is None
        assert card.components["a"].status is ScoreStatus.ERROR

    def test_a_failure_raises_as_asked(self):
        with pytest.raises(RewardError, match="reward 'a' broke"):
            compose("r", {"a": failed("a")}, {"a": 1.0}, on_error="raise")

    def test_a_failing_metric_costs_nothing(self):
        card = compose("r", {"a": ok("a", 1.0), "n": failed("n")}, {"a": 1.0, "n": 0.0})
        assert (card.reward, card.status) == (1.0, CardStatus.SCORED)
        assert card.components["n"].error == "reward 'n' broke"

    def test_truncated(self):
        scores, weights = {"a": ok("a", 1.0), "b": ok("b", -2.0)}, {"a": 1.0, "b": 1.0}
        assert compose("r", scores, weights, truncated="keep").reward == -1.0
        zero = compose("r", scores, weights, truncated="zero")
        assert (zero.reward, zero.status) == (0.0, CardStatus.SCORED)
        assert zero.components["b"].raw == -2.0
        mask = compose("r", scores, weights, truncated="mask")
        assert (mask.reward, mask.status) == (None, CardStatus.MASKED)
        assert mask.components["b"].raw == -2.0

    def test_a_sum_that_overflows_is_a_failure(self):
        scores = {"a": ok("a", 1e308), "b": ok("b", 1e308)}
        card = compose("r", scores, {"a": 1.0, "b": 1.0})
        assert (card.reward, card.status) == (None, CardStatus.FAILED_REWARD)
        assert compose("r", scores, {"a": 10.0, "b": -10.0}).reward is None  # inf - inf


finite = st.floats(-1e6, 1e6)
terms = st.dictionaries(
    st.text(min_size=1, max_size=3), st.tuples(st.none() | finite, finite), min_size=1, max_size=6
)


def _composed(rows: dict[str, tuple[float | None, float]], **policies: Any) -> ScoreCard:
    scores = {name: ok(name, value) for name, (value, _) in rows.items()}
    weights = {name: weight for name, (_, weight) in rows.items()}
    return compose("r", scores, weights, **policies)


class TestProperties:
    @given(terms, st.none() | st.tuples(finite, finite).map(sorted).map(tuple))
    def test_the_reward_is_the_clipped_sum_of_contributions(self, rows, clip):
        card = _composed(rows, clip=clip)
        contributions = [
            c.contribution for c in card.components.values() if c.contribution is not None
        ]
        if card.reward is None:
            assert not any(c.weight for c in card.components.values() if c.raw is not None)
        else:
            total = math.fsum(contributions)
            assert card.reward == (total if clip is None else min(max(total, clip[0]), clip[1]))

    @given(terms, st.randoms(use_true_random=False))
    def test_the_order_of_components_is_irrelevant(self, rows, random):
        shuffled = list(rows.items())
        random.shuffle(shuffled)
        assert _composed(rows) == _composed(dict(shuffled))

    @given(terms, st.none() | finite)
    def test_weight_zero_changes_nothing(self, rows, value):
        with_metric = _composed({**rows, "metric": (value, 0.0)})
        without = _composed({k: v for k, v in rows.items() if k != "metric"} or {"a": (None, 1.0)})
        assert (with_metric.reward, with_metric.status) == (without.reward, without.status)

    @given(terms, st.sampled_from([0.5, 2.0, 4.0]))
    def test_weights_are_used_as_written(self, rows, scale):
        card = _composed(rows)
        scaled = _composed({name: (value, w * scale) for name, (value, w) in rows.items()})
        if card.reward is not None and scaled.reward is not None:
            assert scaled.reward == pytest.approx(card.reward * scale, rel=1e-9, abs=1e-9)


class TestComposer:
    def test_one_card_per_rollout_in_order(self):
        plugins = Installed(good=good, length=length)
        section = {"good": 1.0, "length": -0.1}
        rows = [
            rollout("ok", rollout_id="a"),
            rollout("wrong", rollout_id="b"),
            rollout("", rollout_id="c"),
        ]
        with composer(plugins, components=section) as scorer:
            cards = scorer(rows)
        assert [card.rollout_id for card in cards] == ["a", "b", "c"]
        # 1 - 0.2, 0 - 0.5, 0 - 0
        assert [card.reward for card in cards] == pytest.approx([0.8, -0.5, 0.0])
        assert plugins.heard == [cards]

    def test_threads_that_share_one_are_scored_by_the_weights_of_their_own_step(self):
        found: dict[int, list[ScoreCard]] = {}
        started: list[threading.Thread] = []

        def call(step: int) -> None:
            found[step] = scorer([rollout()], step=step)

        @reward("meddled")
        def meddled(completion):
            if not started:  # while step 0 is scored, another thread asks for step 10
                started.append(threading.Thread(target=call, args=(10,)))
                started[0].start()
                started[0].join(0.2)  # where it does not have to wait, it is done by then
            return 1.0

        section = {"meddled": {"weight": 2.0, "schedule": {"linear": [1, 2, 10]}}}
        scorer = composer(Installed(meddled=meddled), components=section)
        call(0)
        started[0].join()
        assert [found[step][0].reward for step in (0, 10)] == [2.0, 4.0]

    def test_components_have_names_of_their_own(self):
        plugins = Installed(good=good)
        section = {"x": {"reward": "good"}, "y": {"reward": "good", "weight": 2}}
        [card] = composer(plugins, components=section)([rollout()])
        assert card.reward == 3.0
        [card] = composer(plugins, components=section)([rollout("raise")])
        assert card.error == "reward 'x' on rollout 'r0': ValueError: cannot judge this"

    def test_a_failed_rollout_is_not_scored(self):
        calls = []

        @reward("spy")
        def spy(completion):
            calls.append(completion)
            return 1.0

        rows = [
            rollout("a", rollout_id="a"),
            rollout(
                "b", rollout_id="b", status=RolloutStatus.ENVIRONMENT_ERROR, error="env raised"
            ),
            rollout("c", rollout_id="c", status="timeout"),
        ]
        cards = composer(Installed(spy=spy), spy=1.0)(rows)
        assert calls == ["a"]
        assert [card.status.value for card in cards] == [
            "scored",
            "failed_rollout",
            "failed_rollout",
        ]
        assert cards[1].error == "env raised"
        assert cards[2].error == "rollout 'c' ended with status timeout"
        assert cards[1].reward is None

    @pytest.mark.parametrize(
        "cut", [{"truncated": True}, {"finish": FinishReason.LENGTH}], ids=["episode", "tokens"]
    )
    def test_truncated_rollouts_follow_the_policy(self, cut):
        plugins = Installed(good=good)
        assert is_truncated(rollout(**cut))
        rows = [rollout("ok", **cut), rollout("ok")]
        for policy, rewards in [("keep", [1, 1]), ("zero", [0, 1]), ("mask", [None, 1])]:
            cards = composer(plugins, components={"good": 1.0}, on_truncated=policy)(rows)
            assert [card.reward for card in cards] == rewards
        assert cards[0].status is CardStatus.MASKED
        assert cards[0].components["good"].raw == 1.0

    def test_evaluation_has_weights_of_its_own(self):
        section = {"good": {"weight": 1.0, "eval_weight": 3.0}, "length": -0.5}
        plugins = Installed(good=good, length=length)
        assert composer(plugins, components=section)([rollout()])[0].reward == 0.0
        evaluated = composer(plugins, evaluation=True, components=section)([rollout()])
        assert evaluated[0].reward == 2.0  # 3 - 2 * 0.5

    def test_the_configuration_is_checked_at_construction(self):
        plugins = Installed(good=good)
        with pytest.raises(UnknownNameError, match="did you mean 'good'"):
            composer(plugins, god=1.0)
        with pytest.raises(ConfigError, match=r"components\.good: reward 'good' has no option"):
            composer(plugins, components={"good": {"options": {"x": 1}}})
        with pytest.raises(ConfigError, match="no reward is configured"):
            composer(plugins)
        with pytest.raises(ConfigError, match="nothing to learn from"):
            composer(plugins, good=0.0)
        assert composer(plugins, evaluation=True, good=0.0)([rollout()])[0].reward is None

    def test_no_rollouts_no_cards(self):
        assert composer(Installed(good=good), good=1.0)([]) == []

    def test_needs_groups(self):
        def rank(completions):
            return [0.0 for _ in completions]

        plugins = Installed(good=good, rank=reward("rank", scope="group")(rank))
        assert not composer(plugins, good=1.0).needs_groups
        assert composer(plugins, good=1.0, rank=1.0).needs_groups


class TestErrorRate:
    def rows(self, num_bad: int, num: int) -> list[Rollout]:
        return [rollout("raise" if i < num_bad else "ok", rollout_id=f"r{i}") for i in range(num)]

    def test_too_many_failures_stop_the_run(self):
        scorer = composer(Installed(good=good, bonus=bonus), good=1.0, bonus=1.0)
        with pytest.raises(RewardError) as error:
            scorer(self.rows(20, 40))
        assert str(error.value) == (
            "reward 'good' failed on 20 of its last 40 scores, more than max_error_rate 0.1 "
            "allows; for example: reward 'good' on rollout 'r0': ValueError: cannot judge this"
        )

    def test_the_limit_itself_is_allowed(self):
        scorer = composer(Installed(good=good), good=1.0)
        assert len(scorer(self.rows(4, 40))) == 40
        scorer = composer(Installed(good=good), good=1.0)
        with pytest.raises(RewardError, match="5 of its last 40"):
            scorer(self.rows(5, 40))  # 5 / 40 = 12.5%

    def test_one_bad_row_in_a_small_batch_does_not(self):
        # 1 failure counts as 1 / 32; 4 / 32 = 12.5% is too many.
        scorer = composer(Installed(good=good), good=1.0)
        for _ in range(3):
            scorer(self.rows(1, 1))
        with pytest.raises(RewardError, match="4 of its last 4 "):
            scorer(self.rows(1, 1))

    def test_old_failures_are_forgotten(self):
        scorer = composer(Installed(good=good), good=1.0)
        scorer(self.rows(3, 3))
        for _ in range(10):
            scorer(self.rows(0, 64))
            scorer(self.rows(6, 64))  # 9.4% of the call, less of the window

    def test_zero_and_one(self):
        with pytest.raises(RewardError):
            composer(Installed(good=good), components={"good": 1}, max_error_rate=0)(
                self.rows(1, 1000)
            )
        scorer = composer(Installed(good=good), components={"good": 1}, max_error_rate=1)
        assert {card.status for card in scorer(self.rows(99, 99))} == {CardStatus.FAILED_REWARD}


class Stateful(Reward):
    """Counts its setups and closes; raises where told."""

    name = "stateful"
    events: Sequence[str] = ()

    def __init__(self, fail: str = "", tag: str = "") -> None:
        self.fail, self.tag = fail, tag

    def _event(self, what: str) -> None:
        LOG.append(what + self.tag)
        if what == self.fail:
            raise OSError(f"{what} went wrong")

    def setup(self, ctx: RewardContext) -> None:
        self._event("setup")

    def score(self, rollout: Rollout, ctx: RewardContext) -> float:
        self._event("score")
        return 1.0

    def close(self) -> None:
        self._event("close")


LOG: list[str] = []


@pytest.fixture
def log() -> list[str]:
    LOG.clear()
    return LOG


class TestLifetime:
    def make(self, *options: dict[str, str], **section: Any) -> RewardComposer:
        components = {
            f"c{i}": {"reward": "stateful", "options": option} for i, option in enumerate(options)
        }
        return composer(Installed(stateful=Stateful), components=components, **section)

    def test_setup_once_and_close_once(self, log):
        scorer = self.make({})
        assert log == []
        with scorer:
            scorer([rollout()])
            scorer([rollout()])
        scorer.close()
        assert log == ["setup", "score", "score", "close"]

    def test_the_first_call_sets_up(self, log):
        scorer = self.make({})
        scorer([rollout()])
        assert log == ["setup", "score"]

    def test_equal_rewards_are_set_up_each(self, log):
        with self.make({"tag": "1"}, {"tag": "1"}):
            pass
        assert log == ["setup1", "setup1", "close1", "close1"]

    def test_a_failing_setup_closes_what_was_set_up(self, log):
        with pytest.raises(RewardError, match="'c1' failed in setup: OSError"):
            self.make({"tag": "0"}, {"fail": "setup", "tag": "1"}).setup()
        assert log == ["setup0", "setup1", "close0"]

    def test_a_failing_close_does_not_keep_the_others_open(self, log):
        scorer = self.make({"tag": "0"}, {"fail": "close", "tag": "1"})
        scorer.setup()
        with pytest.raises(RewardError, match="'c1' failed in close"):
            scorer.close()
        assert log[-2:] == ["close1", "close0"]

    def test_a_failing_close_does_not_hide_the_error(self, log):
        with pytest.raises(KeyError) as error, self.make({"fail": "close"}):
            raise KeyError("gold")
        assert "failed in close" in error.value.__notes__[0]


def test_scoring_metrics():
    plugins = Installed(good=good, bonus=bonus, length=length)
    section = {"good": 2.0, "bonus": 0.2, "length": 0.0}
    rows = [
        rollout("ok", rollout_id="a"),
        rollout("bad", rollout_id="b"),
        rollout("skip", rollout_id="c"),
        rollout("raise", rollout_id="d"),
        rollout("", rollout_id="e", status="tool_error"),
    ]
    metrics = scoring_metrics(composer(plugins, **section)(rows))
    # good: 1, 0, 0 and one failure; contributions 2, 0, 0.
    assert metrics["rewards/good/mean"] == pytest.approx(1 / 3)
    assert metrics["rewards/good/std"] == pytest.approx(math.sqrt(2) / 3)  # var = 1/3 - 1/9
    assert metrics["rewards/good/contribution"] == pytest.approx(2 / 3)
    assert metrics["rewards/good/weight"] == 2.0
    # bonus: 0.5 on three, not applicable on "skip".
    assert metrics["rewards/bonus/mean"] == 0.5
    assert metrics["rewards/bonus/contribution"] == pytest.approx(0.1)
    # length, a metric: 2, 3, 4, 5.
    assert metrics["rewards/length/mean"] == 3.5
    assert metrics["rewards/length/contribution"] == 0.0
    assert metrics["scoring/error_rate"] == 0.25
    assert metrics["scoring/num_scored"] == 3.0
    assert metrics["scoring/num_failed_reward"] == 1.0
    assert metrics["scoring/num_failed_rollout"] == 1.0
    assert metrics["scoring/num_masked"] == 0.0


def test_scoring_metrics_leave_out_what_was_not_scored():
    never = reward("never")(lambda completion: None)
    metrics = scoring_metrics(composer(Installed(never=never), never=1.0)([rollout()]))
    assert "rewards/never/mean" not in metrics
    assert metrics["rewards/never/weight"] == 1.0
    assert "scoring/error_rate" not in scoring_metrics([])


@pytest.mark.data
class TestReports:
    def test_exception_becomes_zero(self, bug_report: Callable[[str], dict[str, Any]]):
        case = bug_report("reward-exception_becomes_zero")
        texts = ["raise" if item.startswith("raise") else item for item in case["input"]["batch"]]
        rows = [rollout(text, rollout_id=f"r{i}") for i, text in enumerate(texts)]
        plugins = Installed(good=good)
        cards = composer(plugins, good=1.0)(rows)
        assert [card.reward for card in cards] == case["right"]["values"]["skip"]
        num_errors = sum(card.status is CardStatus.FAILED_REWARD for card in cards)
        assert num_errors == case["right"]["values"]["errors"]
        with pytest.raises(RewardError, match="'good' on rollout 'r1'"):
            composer(plugins, components={"good": 1.0}, on_error="raise")(rows)

    def test_none_means_skip(self, bug_report):
        case = bug_report("reward-none_means_skip")
        scores, weights = case["input"]["plugin_scores"], case["input"]["weights"]
        totals = [
            compose("r", {n: ok(n, v) for n, v in zip(scores, row, strict=True)}, weights).reward
            for row in zip(*scores.values(), strict=True)
        ]
        for total, right in zip(totals, case["right"]["values"]["total"], strict=True):
            assert total == (None if right is None else pytest.approx(right, abs=1e-9))

    def test_logged_reward_ignores_weights(self, bug_report):
        case = bug_report("reward-logged_reward_ignores_weights")
        weights = dict(zip("ab", case["input"]["weights"], strict=True))
        cards = [
            compose("r", {n: ok(n, v) for n, v in zip("ab", row, strict=True)}, weights)
            for row in case["input"]["scores"]
        ]
        totals = [card.reward for card in cards]
        assert totals == pytest.approx(case["right"]["values"]["totals"], abs=1e-9)
        metrics = scoring_metrics(cards)
        # What is logged adds up to the trained mean, and the raw means stay raw.
        logged = metrics["rewards/a/contribution"] + metrics["rewards/b/contribution"]
        assert logged == pytest.approx(case["right"]["values"]["mean"], abs=1e-9)
        assert metrics["rewards/a/mean"] == 0.5
        assert metrics["rewards/b/mean"] == 0.75

    def test_cleanup_hides_first_error(self, bug_report):
        case = bug_report("reward-cleanup_hides_first_error")

        class Both(Reward):
            name = "both"

            def score(self, rollout, ctx):
                raise KeyError("gold")

            def close(self):
                raise OSError("closed")

        with (
            pytest.raises(RewardError) as error,
            composer(Installed(both=Both), components={"both": 1}, on_error="raise") as scorer,
        ):
            scorer([rollout()])
        assert case["right"]["values"]["reported"] in str(error.value)
        assert "closed" not in str(error.value)
        assert "OSError: closed" in error.value.__notes__[0]

    def test_none_results_dropped(self, bug_report):
        case = bug_report("plugin-none_results_dropped")
        returns = case["input"]["returns"]
        targets = {
            name: reward(name)(lambda completion, value=value: value)
            for name, value in returns.items()
        }
        section = dict.fromkeys(case["input"]["registered"], 1.0)
        [card] = composer(Installed(**targets), **section)([rollout()])
        raws = {name: component.raw for name, component in card.components.items()}
        assert raws == case["right"]["values"]

    def test_one_plugin_error_skips_others(self, bug_report):
        case = bug_report("plugin-one_plugin_error_skips_others")

        def broken(completion):
            raise RuntimeError("b")

        fine = reward("fine")(lambda completion: 1.0)
        plugins = Installed(a=fine, b=reward("b")(broken), c=fine)
        for order in itertools.permutations("abc"):
            [card] = composer(plugins, **dict.fromkeys(order, 1.0))([rollout()])
            scored = sorted(n for n, c in card.components.items() if c.raw is not None)
            assert scored == case["right"]["values"]["scored"]
