"""Gates, conditions, combinations: which rewards are called, and what counts."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlgym_llm.compose import RewardComposer
from rlgym_llm.composition.card import Term, compose, weighted_card
from rlgym_llm.composition.combine import Combine
from rlgym_llm.composition.gate import Gate
from rlgym_llm.errors import ConfigError, RewardError
from rlgym_llm.reward_config import Const, Soft, read_rewards
from rlgym_llm.rewards import Reward, reward
from rlgym_llm.scores import CardStatus, Score, ScoreStatus
from rlgym_llm.specs import RewardSpec
from rlgym_llm.types import Completion, FinishReason, Rollout, Task, Turn


class Installed:
    """Plugins of this test: a table of rewards."""

    def __init__(self, **targets):
        self._targets = targets

    def get(self, kind, name):
        return RewardSpec(name=name, entry_point="here:there")

    def load(self, spec):
        return self._targets[spec.name]

    def scored(self, cards):
        pass


class Judge(Reward):
    """Counts its calls."""

    name = "judge"
    calls: list[str]

    def __init__(self) -> None:
        self.calls = []

    def score(self, rollout, ctx):
        self.calls.append(rollout.id)
        return 0.5


@reward("right")
def right(completion):
    if completion == "raise":
        raise ValueError("cannot judge")
    return None if completion == "none" else completion == "ok"


class Brevity(Reward):
    """Reads its siblings and what they were given."""

    name = "brevity"
    scope = "group"
    seen = None

    def score_group(self, group, ctx):
        type(self).seen = dict(ctx.components)
        return [1.0 / len(rollout.text) for rollout in group.rollouts]


class Doubt(Reward):
    """Half of what another component says."""

    name = "doubt"
    uses = ("right",)

    def score(self, rollout, ctx):
        (value,) = ctx.components["right"]
        return None if value is None else value / 2


def rollout(text="ok", *, rollout_id="r", group_id="g", finish=FinishReason.STOP, **task):
    completion = Completion(text=text, finish_reason=finish)
    return Rollout(
        id=rollout_id,
        task=Task(prompt="?", **task),
        group_id=group_id,
        sample_index=0,
        seed=0,
        turns=(Turn(new_prompt_token_ids=(), completion=completion),),
    )


def cards(section, rollouts, *, evaluation=False, step=None, **rewards):
    targets = {"right": right, "brevity": Brevity, "doubt": Doubt, "judge": Judge, **rewards}
    section = {"max_error_rate": 1.0, **section}
    composer = RewardComposer(read_rewards(section), Installed(**targets), evaluation=evaluation)
    return composer(rollouts, step=step)


GATED = {
    "components": {
        "judge": {"weight": 1.0, "gate": {"on": "right", "op": ">=", "value": 1.0}},
        "right": {"weight": 1.0},
    }
}


class TestGates:
    def test_a_gated_off_judge_is_not_called(self):
        judge = Judge()
        rows = [rollout("ok", rollout_id="a"), rollout("no", rollout_id="b")]
        found = cards(GATED, rows, judge=judge)
        assert judge.calls == ["a"]
        assert [card.reward for card in found] == [1.5, 0.0]
        shut = found[1].components["judge"]
        assert (shut.raw, shut.contribution, shut.status) == (None, 0.0, ScoreStatus.SKIPPED)

    def test_components_stay_in_the_order_of_the_section(self):
        (card,) = cards(GATED, [rollout()])
        assert list(card.components) == ["judge", "right"]

    def test_a_gate_whose_component_failed_fails_what_it_gates(self):
        section = {"components": {**GATED["components"], "right": {"weight": 0.0}}}
        (card,) = cards(section, [rollout("raise")])
        assert (card.reward, card.status) == (None, CardStatus.FAILED_REWARD)
        assert "its gate is on component 'right', which failed" in card.error

    def test_a_gate_whose_component_does_not_apply_is_closed(self):
        (card,) = cards(GATED, [rollout("none")])
        assert card.reward == 0.0

    def test_a_failed_gate_goes_by_the_value_that_stands_for_it(self):
        # 1 stands for the failed score of "right", so the judge's gate is open: 1 + 0.5.
        (card,) = cards({**GATED, "on_error": {"const": 1.0}}, [rollout("raise")])
        assert card.reward == 1.5

    def test_gates_multiply(self):
        gates = (Gate(on="a", value=1.0), Gate(on="b", op="<", value=0.5))
        terms = {"a": Term(weight=0.0), "b": Term(weight=0.0), "c": Term(weight=2.0, gates=gates)}
        for a, b, total in [(1.0, 0.0, 2.0), (1.0, 0.5, 0.0), (0.9, 0.0, 0.0)]:
            scores = {n: Score(name=n, value=v) for n, v in [("a", a), ("b", b), ("c", 1.0)]}
            assert compose("r", scores, terms).reward == total

    @pytest.mark.parametrize(
        ("op", "value", "is_open"),
        [
            (">=", 0.5, True),
            (">", 0.5, False),
            ("<=", 0.5, True),
            ("<", 0.5, False),
            ("==", 0.5, True),
            ("!=", 0.5, False),
        ],
    )
    def test_comparisons(self, op, value, is_open):
        assert Gate(on="x", op=op, value=value).is_open(0.5) is is_open
        assert not Gate(on="x", op=op, value=value).is_open(None)


class TestWhen:
    SECTION = {  # noqa: RUF012
        "components": {
            "right": {"when": {"data_source": "maths"}},
            "judge": {"when": {"level": [1, 2]}},
        }
    }

    def test_other_rows_are_not_scored_and_their_term_drops_out(self):
        judge = Judge()
        rows = [
            rollout(rollout_id="a", data_source="maths", info={"level": 1}),
            rollout(rollout_id="b", data_source="maths", info={"level": 3}),
            rollout(rollout_id="c", data_source="prose", info={"level": 2}),
            rollout(rollout_id="d", data_source="prose"),
        ]
        found = cards(self.SECTION, rows, judge=judge)
        assert [card.reward for card in found] == [1.5, 1.0, 0.5, None]
        assert judge.calls == ["a", "c"]
        assert found[1].components["judge"].status is ScoreStatus.NOT_APPLICABLE
        assert found[3].status is CardStatus.MASKED


class TestCombine:
    def term(self, **combine):
        return Term(weight=1.0, combine=Combine(**combine))

    def value(self, combine, columns=None, **values):
        scores = {
            name: Score(name=name, value=value)
            if isinstance(value, float)
            else Score(name=name, value=None, status=value)
            for name, value in values.items()
        }
        terms = {**dict.fromkeys(values, Term(weight=0.0)), "made": combine}
        return compose("r", scores, terms, columns=columns).components["made"]

    def test_values(self):
        assert self.value(self.term(product=["a", "b"]), a=0.5, b=4.0).contribution == 2.0
        assert self.value(self.term(min=["a", "b"]), a=0.5, b=4.0).contribution == 0.5
        assert self.value(self.term(max=["a", "b"]), a=0.5, b=4.0).contribution == 4.0
        assert self.value(self.term(sum={"a": 2.0, "b": -1.0}), a=0.5, b=4.0).contribution == -3.0

    def test_not_applicable(self):
        absent = ScoreStatus.NOT_APPLICABLE
        assert self.value(self.term(product=["a", "b"]), a=0.5, b=absent).status is absent
        assert self.value(self.term(min=["a", "b"]), a=0.5, b=absent).contribution == 0.5
        assert self.value(self.term(max=["a"]), a=absent).status is absent

    def test_a_failed_operand_is_a_failure(self):
        made = self.value(self.term(min=["a", "b"]), a=0.5, b=ScoreStatus.TIMEOUT)
        assert (made.contribution, made.status) == (None, ScoreStatus.TIMEOUT)
        assert "component 'b' failed" in made.error

    def test_a_switch_reads_only_what_it_chose(self):
        switch = self.term(switch={"on": "data_source", "cases": {"x": "a", "y": "b"}})
        broken = ScoreStatus.ERROR
        assert self.value(switch, {"data_source": "x"}, a=0.5, b=broken).contribution == 0.5
        assert self.value(switch, {"data_source": "y"}, a=0.5, b=broken).status is broken
        assert self.value(switch, {}, a=0.5, b=1.0).status is ScoreStatus.NOT_APPLICABLE

    def test_overflow_is_an_error(self):
        made = self.value(self.term(product=["a", "b"]), a=1e200, b=1e200)
        assert made.status is ScoreStatus.ERROR
        assert "inf" in made.error


class TestPolicies:
    def test_a_truncated_rollout(self):
        cut = rollout("ok", finish=FinishReason.LENGTH)
        section = {"components": {"right": {"weight": 2.0}}}
        rewards = {
            str(policy): cards({**section, "on_truncated": policy}, [cut])[0].reward
            for policy in ["keep", "zero", "soft", {"soft": 0.5}, "mask"]
        }
        assert list(rewards.values()) == [2.0, 0.0, 1.0, 1.5, None]
        assert cards({**section, "on_truncated": "soft"}, [rollout("ok")])[0].reward == 2.0

    def test_soft_comes_before_the_clip(self):
        card = compose(
            "r", {"a": Score(name="a", value=0.0)}, {"a": 1.0}, clip=(-0.5, 1.0), truncated=Soft()
        )
        assert card.reward == -0.5

    def test_a_transform_that_overflows_is_a_failure(self):
        terms = {"a": Term(weight=1.0, transform=lambda value: value * 1e300)}
        scores = {"a": Score(name="a", value=1e300)}
        card = compose("r", scores, terms)
        assert card.status is CardStatus.FAILED_REWARD
        assert "its transform makes" in card.error
        assert compose("r", scores, terms, on_error=Const(const=-1.0)).reward == -1e300
        with pytest.raises(RewardError, match="its transform makes"):
            compose("r", scores, terms, on_error="raise")


class TestSchedules:
    SECTION = {  # noqa: RUF012
        "components": {
            "right": {"weight": 1.0, "schedule": {"linear": [1.0, 0.0, 10]}},
            "judge": {"weight": 1.0, "eval_weight": 3.0, "schedule": {"linear": [0.0, 1.0, 10]}},
        }
    }

    @pytest.mark.parametrize(
        ("step", "total"),
        [(None, 1.0), (0, 1.0), (5, 0.75), (10, 0.5), (99, 0.5)],  # 1 * (1 - t) + 0.5 t
    )
    def test_weights_go_by_the_step(self, step, total):
        (card,) = cards(self.SECTION, [rollout()], step=step)
        assert card.reward == pytest.approx(total, abs=1e-12)
        assert card.components["right"].raw == 1.0

    def test_evaluation_has_weights_of_its_own(self):
        (card,) = cards(self.SECTION, [rollout()], evaluation=True, step=10)
        assert card.reward == 2.5  # 1 * 1 + 3 * 0.5, unscheduled


class TestReading:
    def test_a_reward_reads_another(self):
        section = {"components": {"doubt": 1.0, "right": 0.0}}
        found = cards(section, [rollout("ok"), rollout("no"), rollout("none")])
        assert [card.reward for card in found] == [0.5, 0.0, None]

    def test_a_group_reads_all_samples_after_they_are_scored(self):
        rows = [
            rollout("ok", rollout_id="a"),
            rollout("none", rollout_id="b"),
            rollout("wrong", rollout_id="c"),
        ]
        section = {"components": {"brevity": 1.0, "right": 1.0}}
        found = cards(section, rows)
        assert Brevity.seen == {"right": (1.0, None, 0.0)}
        assert [card.reward for card in found] == [1.5, 0.25, 0.2]

    def test_a_gate_may_stand_on_a_group(self):
        section = {
            "components": {
                "judge": {"gate": {"on": "brevity", "value": 0.5}},
                "brevity": {"weight": 0.0},
            }
        }
        rows = [rollout("ok", rollout_id="a"), rollout("long", rollout_id="b")]
        assert [card.reward for card in cards(section, rows)] == [0.5, 0.0]

    def test_what_is_read_must_be_there(self):
        with pytest.raises(ConfigError, match="'doubt' reads component 'right', which is not"):
            cards({"components": {"doubt": 1.0}}, [])
        with pytest.raises(ConfigError, match=r"reads component 'rihgt'.*did you mean 'right'"):
            read_rewards({"components": {"right": {}, "judge": {"gate": {"on": "rihgt"}}}})

    def test_circles_are_refused(self):
        with pytest.raises(ConfigError, match="in a circle: "):
            read_rewards({"components": {"a": {"gate": {"on": "b"}}, "b": {"gate": {"on": "a"}}}})

    def test_combinations_are_made_last(self):
        section = {
            "components": {"doubt": 1.0, "right": {"combine": {"min": ["judge"]}}, "judge": 0}
        }
        with pytest.raises(ConfigError, match="a combination, which is made last"):
            cards(section, [])


def test_a_component_has_a_reward_or_a_combination():
    with pytest.raises(ConfigError, match="either a reward or a combine"):
        read_rewards({"components": {"a": {"reward": "right", "combine": {"min": ["b"]}}, "b": 1}})
    with pytest.raises(ConfigError, match="exactly one of"):
        read_rewards({"components": {"a": {"combine": {"min": ["b"], "max": ["b"]}}, "b": 1}})


def test_potentials_take_no_transform():
    with pytest.raises(ConfigError, match="potential takes no transform"):
        read_rewards(
            {"components": {"right": {"placement": "potential", "transform": {"scale": 2}}}}
        )


class TestExaminedFaults:
    """Each was accepted in silence, or misread, once."""

    def test_what_stands_for_a_failed_score_goes_through_the_transform(self):
        terms = {"a": Term(weight=1.0, transform=lambda value: 10 * value), "b": 1.0}
        scores = {
            "a": Score(name="a", value=None, status=ScoreStatus.ERROR),
            "b": Score(name="b", value=3.0),
        }
        assert compose("r", scores, terms, on_error=Const(const=-2.0)).reward == -17.0

    def test_a_gate_goes_by_the_raw_value_that_stands_in(self):
        gate = Gate(on="a", op=">=", value=1.0)
        terms = {
            "a": Term(weight=0.0, transform=lambda value: value - 5),
            "b": Term(weight=1.0, gates=(gate,)),
        }
        scores = {
            "a": Score(name="a", value=None, status=ScoreStatus.ERROR),
            "b": Score(name="b", value=2.0),
        }
        assert compose("r", scores, terms, on_error=Const(const=1.0)).reward == 2.0

    def test_a_contribution_that_overflows_is_an_error_and_no_infinity(self):
        card = compose("r", {"a": Score(name="a", value=1e300)}, {"a": 1e300})
        assert (card.reward, card.status) == (None, CardStatus.FAILED_REWARD)
        assert card.components["a"].contribution is None
        assert card.components["a"].status is ScoreStatus.ERROR

    def test_schedules_are_of_training(self):
        section = {"components": {"right": {"weight": 2.0, "schedule": {"linear": [1, 0, 10]}}}}
        (card,) = cards(section, [rollout()], evaluation=True, step=10)
        assert card.reward == 2.0

    def test_a_schedule_may_start_at_0(self):
        section = {"components": {"right": {"schedule": {"linear": [0, 1, 10]}}}}
        assert [cards(section, [rollout()], step=s)[0].reward for s in (0, 5)] == [None, 0.5]

    def test_a_file_as_reward(self):
        config = read_rewards({"components": {"mine": {"reward": "my/file.py:judge"}}})
        assert config.components["mine"].reward == "function"
        assert config.components["mine"].options == {"path": "my/file.py:judge"}

    @pytest.mark.parametrize(
        ("section", "message"),
        [
            ({"on_error": {"const": "x"}}, "on_error: takes mask, raise, zero or {const: number}"),
            ({"on_error": {"constant": 0}}, "on_error: takes mask, raise, zero or {const: numb"),
            ({"on_error": {"const": float("nan")}}, "on_error: takes mask, raise, zero or"),
            ({"on_truncated": {"soft": -1}}, "on_truncated: takes keep, zero, soft, mask or {so"),
            ({"components": {"right": {"weight": True}}}, "weight: Input should be a number"),
            ({"components": {"": {"reward": "right"}}}, "component name '' is empty"),
            ({"components": {"a.b": {"reward": "right"}}}, "component name 'a.b' is empty, or"),
            ({"components": {"right": {"when": {"x": []}}}}, "it never applies"),
            ({"components": {"right": {"schedule": {"linear": [1, 0, 2.5]}}}}, "whole number"),
            ({"components": {"right": {"schedule": {"steps": {-1: 1}}}}}, "takes steps from 0"),
            ({"components": {"right": 1, "a": {"combine": {"sum": {}}}}}, "sum"),
            (
                {"components": {"right": 1, "a": {"combine": {"min": ["right"]}, "options": {}}}},
                "options is of a reward, and a combine is none",
            ),
            (
                {"components": {"right": 1}, "aggregate": "normalize_then_sum", "clip": [0, 1]},
                "so clip would do nothing",
            ),
            (
                {
                    "components": {"right": 1},
                    "aggregate": "normalize_then_sum",
                    "on_truncated": {"soft": 2},
                },
                "so on_truncated soft would do nothing",
            ),
        ],
        ids=lambda value: str(value)[:60],
    )
    def test_it_is_said(self, section, message):
        with pytest.raises(ConfigError) as error:
            read_rewards(section)
        assert message in str(error.value)
        assert "\n" not in str(error.value)

    @pytest.mark.parametrize("placement", ["turn", "step", "token", "potential"])
    def test_a_single_score_has_one_place(self, placement):
        section = {"components": {"right": {"placement": placement}}}
        with pytest.raises(ConfigError, match="gives one score for the whole rollout"):
            cards(section, [])

    def test_potentials_and_shares_are_not_taken_for_each_other(self):
        class Steps(Reward):
            name = "steps"
            granularity = "step"

        class Potentials(Steps):
            steps_are = "potentials"

        for found, placement in ((Steps, "potential"), (Potentials, "step")):
            with pytest.raises(ConfigError, match="potentials take placement potential"):
                cards({"components": {"right": {"placement": placement}}}, [], right=found)
        assert cards({"components": {"right": {}}}, [], right=Potentials) == []


@given(
    st.lists(
        st.tuples(
            st.none() | st.floats(allow_nan=False, allow_infinity=False),
            st.sampled_from([0.0, 1.0, -0.5, 1e300]),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_a_card_of_weights_alone_is_that_of_the_full_composition(terms):
    scores = [
        Score(
            name=str(place),
            value=value,
            status=ScoreStatus.OK if value is not None else ScoreStatus.ERROR,
            info={"place": place},
            seconds=0.5,
        )
        for place, (value, _) in enumerate(terms)
    ]
    weights = {score.name: weight for score, (_, weight) in zip(scores, terms, strict=True)}
    quick = weighted_card("r", scores, weights)
    full = compose("r", {score.name: score for score in scores}, weights)
    if quick is None:  # a missing score, no weight at all, or a sum that overflows
        assert full.reward is None or any(value is None for value, _ in terms)
    else:
        assert quick == full
        assert math.copysign(1.0, quick.reward) == math.copysign(1.0, full.reward)
