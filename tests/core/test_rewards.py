import math
import pickle
import textwrap
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest

from rlgym_llm.errors import ConfigError, PluginError
from rlgym_llm.rewards import FunctionReward, Reward, RewardContext, build_reward, reward
from rlgym_llm.score import score_rollouts
from rlgym_llm.scores import Score, ScoreStatus
from rlgym_llm.specs import RewardSpec
from rlgym_llm.types import Completion, Message, Rollout, RolloutGroup, Task, Turn

CTX = RewardContext()


def rollout(
    text: str = "five",
    *,
    rollout_id: str = "r0",
    group: str = "g0",
    answer: str | None = "5",
    prompt: Any = "2 + 3 = ?",
    info: dict[str, Any] | None = None,
) -> Rollout:
    task = Task(prompt=prompt, answer=answer, data_source="sums", info=info or {})
    turn = Turn(new_prompt_token_ids=(), completion=Completion(text=text))
    return Rollout(id=rollout_id, task=task, group_id=group, sample_index=0, seed=0, turns=(turn,))


def score_of(function: Any, given: Rollout, **options: Any) -> Score:
    return score_rollouts(build_reward(function, options), [given], CTX)[0]


@reward("answered", version=3, range=(-1, 2))
def answered(completion: str, answer: str) -> float:
    return 2.0 if completion == answer else -1.0


@dataclass(frozen=True, kw_only=True)
class Shortness(Reward):
    name = "shortness"
    limit: int = 100
    unit: Literal["chars", "words"] = "chars"

    def score(self, rollout: Rollout, ctx: RewardContext) -> float:
        return max(0.0, 1 - len(rollout.text) / self.limit)


class TestDecorator:
    def test_the_function_stays_what_it_was(self):
        assert answered("5", "5") == 2.0
        assert answered.__name__ == "answered"

    def test_declarations_reach_the_reward(self):
        built = build_reward(answered)
        assert (built.name, built.version, built.scope, built.range) == (
            "answered",
            3,
            "sample",
            (-1.0, 2.0),
        )

    def test_without_a_name_it_is_refused(self):
        with pytest.raises(PluginError, match="needs a name"):

            @reward
            def bare(completion):
                return 1.0

    def test_positional_and_async_functions_are_refused(self):
        with pytest.raises(PluginError, match=r"'x'.*'args'.*by name"):
            reward("x")(lambda *args: 1.0)

        async def slow(completion):
            return 1.0

        with pytest.raises(PluginError, match=r"async function.*declare backend='async'"):
            reward("x")(slow)
        assert reward("x", backend="async")(slow) is slow
        with pytest.raises(PluginError, match="'x' cannot be awaited"):
            reward("x", backend="async")(lambda completion: 1.0)

    @pytest.mark.parametrize(
        "declared",
        [{"backend": "ray"}, {"scope": "world"}, {"granularity": "word"}],
        ids=str,
    )
    def test_what_is_not_supported_is_said_at_declaration(self, declared):
        (what, value) = next(iter(declared.items()))
        with pytest.raises(PluginError, match=f"'x' declares {what} '{value}'.*not supported"):
            reward("x", **declared)(lambda completion: 1.0)

    def test_an_empty_range_is_refused(self):
        with pytest.raises(PluginError, match="empty range"):
            reward("x", range=(1, 0))(lambda completion: 1.0)


class TestInjection:
    def test_every_column_comes_under_its_name(self):
        seen = {}

        @reward("look")
        def look(completion, answer, prompt, info, data_source, rollout, level, missing=7):
            seen.update(locals())
            return 1.0

        given = rollout("six", info={"level": 4, "other": 1})
        assert score_of(look, given).value == 1.0
        assert seen["completion"] == "six"
        assert (seen["answer"], seen["prompt"], seen["data_source"]) == ("5", "2 + 3 = ?", "sums")
        assert (seen["level"], seen["missing"]) == (4, 7)
        assert seen["info"] == {"level": 4, "other": 1}
        assert seen["rollout"] is given

    def test_rest_catches_what_is_not_named(self):
        @reward("rest")
        def rest(completion, *, answer, **columns):
            assert "completion" not in columns
            return len(columns["level"]) + (columns["prompt"] == "2 + 3 = ?")

        assert score_of(rest, rollout(info={"level": "abc"})).value == 4.0

    def test_a_conversation_is_one_text_too(self):
        @reward("ask")
        def ask(prompt):
            return prompt == "Be brief.\n2 + 3 = ?"

        prompt = (
            Message(role="system", content="Be brief."),
            Message(role="user", content="2 + 3 = ?"),
        )
        assert score_of(ask, rollout(prompt=prompt)).value == 1.0

    def test_a_missing_column_is_a_clear_error(self):
        @reward("strict")
        def strict(completion, difficulty):
            return 1.0

        score = score_of(strict, rollout(info={"level": 4}))
        assert (score.value, score.status) == (None, ScoreStatus.ERROR)
        assert score.error == (
            "reward 'strict' on rollout 'r0': LookupError: parameter 'difficulty' has no default "
            "and no column provides it (available: answer, completion, data_source, info, level, "
            "prompt, rollout)"
        )

    def test_a_misspelt_parameter_names_the_column_that_is_meant(self):
        def error_of(function: Any, scope: str) -> str:
            built = build_reward(reward("x", scope=scope)(function))
            [score] = score_rollouts(built, [rollout()], CTX)
            return score.error or ""

        misspelt = error_of(lambda completoin: 1.0, "sample")
        assert "'completoin' has no default and no column provides it; did you mean" in misspelt
        assert "did you mean 'completion'? (available: answer, completion, " in misspelt
        verl = error_of(lambda data_sources, solution_strs: 1.0, "sample")
        assert "did you mean 'data_source'? (available: " in verl
        for scope in ("group", "batch"):
            assert "did you mean 'completions'?" in error_of(lambda completion: [1.0], scope)
            assert "did you mean 'answers'?" in error_of(lambda anwsers: [1.0], scope)

    def test_an_absent_answer_is_absent(self):
        assert "'answer'" in (score_of(answered, rollout(answer=None)).error or "")

    def test_a_column_never_hides_ours(self):
        given = rollout("5", info={"completion": "hidden", "answer": "hidden"})
        assert score_of(answered, given).value == 2.0

    def test_options_are_arguments_given_fixed(self):
        @reward("within")
        def within(completion, *, limit=3):
            return len(completion) <= limit

        assert score_of(within, rollout("five")).value == 0.0
        assert score_of(within, rollout("five"), limit=4).value == 1.0
        with pytest.raises(ConfigError, match="no option 'limt'; did you mean 'limit'"):
            build_reward(within, {"limt": 4})

    @pytest.mark.parametrize("scope", ["sample", "group", "batch"])
    def test_an_option_that_would_hide_a_column_is_refused(self, scope):
        plural = "" if scope == "sample" else "s"
        for column in (f"completion{plural}", f"prompt{plural}", f"answer{plural}", "components"):
            for function in (lambda limit, **rest: 1.0, eval(f"lambda {column}: 1.0")):
                built = reward("x", scope=scope)(function)
                with pytest.raises(ConfigError) as error:
                    build_reward(built, {column: "99"})
                assert str(error.value) == (
                    f"reward 'x': option {column!r} would hide the column {column!r}, which comes "
                    "from what is scored: drop it, or call the parameter otherwise"
                )

    def test_columns_of_another_scope_are_options_like_any(self):
        built = build_reward(
            reward("x")(lambda completion, answers: float(completion in answers)),
            {"answers": ["five"]},
        )
        assert score_rollouts(built, [rollout("five")], CTX)[0].value == 1.0


class TestBuild:
    def test_what_a_constructor_raises_names_the_reward(self):
        class Broken(Reward):
            name = "broken"

            def __init__(self) -> None:
                raise SystemExit(3)

        with pytest.raises(PluginError, match=r"'broken' cannot be built: SystemExit: 3"):
            build_reward(Broken)

    def test_options_are_typed(self):
        assert build_reward(Shortness, {"limit": "50"}).limit == 50
        with pytest.raises(ConfigError, match=r"'shortness', option 'limit': .*integer.*'many'"):
            build_reward(Shortness, {"limit": "many"})
        with pytest.raises(ConfigError, match=r"option 'unit': .*'chars' or 'words'"):
            build_reward(Shortness, {"unit": "pages"})

    def test_an_unknown_option_names_the_nearest(self):
        with pytest.raises(ConfigError) as error:
            build_reward(Shortness, {"limmit": 3})
        assert str(error.value) == (
            "reward 'shortness' has no option 'limmit'; did you mean 'limit'? "
            "(options: limit, unit)"
        )

    def test_a_plain_class_takes_its_arguments(self):
        class Plain(Reward):
            name = "plain"

            def __init__(self, value, scale=1.0):
                self.value = value * scale

            def score(self, rollout, ctx):
                return self.value

        assert score_of(Plain, rollout(), value=0.25, scale=2).value == 0.5
        with pytest.raises(ConfigError, match=r"'plain'.*value"):
            build_reward(Plain)

    def test_a_spec_is_loaded(self):
        spec = RewardSpec(name="hook", entry_point="rlgym_llm.rewards:Reward")
        with pytest.raises(PluginError, match="without a name"):
            build_reward(spec)

    def test_what_is_no_reward_is_refused(self):
        with pytest.raises(PluginError, match="mark a function with @reward"):
            build_reward(len)

    def test_a_built_reward_passes_and_takes_no_options(self):
        built = Shortness()
        assert build_reward(built) is built
        with pytest.raises(ConfigError, match="built already"):
            build_reward(built, {"limit": 3})

    def test_function_rewards_pickle(self):
        built = FunctionReward(textwrap.dedent, name="dedent", version=2)
        found = pickle.loads(pickle.dumps(built))
        assert (found.name, found.version) == ("dedent", 2)
        given = rollout(info={"text": "  a"})
        [score] = score_rollouts(found, [given], CTX)
        assert "returned a str" in (score.error or "")  # so it was called, and gave a text


class TestBoundary:
    @pytest.mark.parametrize(
        ("returned", "value"),
        [(True, 1.0), (0, 0.0), (0.25, 0.25), (np.float32(0.5), 0.5), (np.bool_(True), 1.0)],
        ids=str,
    )
    def test_numbers_are_floats(self, returned, value):
        score = score_of(reward("x")(lambda completion: returned), rollout())
        assert (score.value, score.status) == (value, ScoreStatus.OK)
        assert type(score.value) is float

    @pytest.mark.parametrize(
        "returned",
        [math.nan, math.inf, "1.0", [1.0], np.array([1.0, 2.0]), 10**400, 1j],
        ids=lambda value: str(value)[:10],
    )
    def test_anything_else_is_an_error_and_no_zero(self, returned):
        score = score_of(reward("x")(lambda completion: returned), rollout())
        assert (score.value, score.status) == (None, ScoreStatus.ERROR)
        assert score.error is not None
        assert score.error.startswith("reward 'x' on rollout 'r0': ")

    def test_none_does_not_apply(self):
        score = score_of(reward("x")(lambda completion: None), rollout())
        assert (score.value, score.status, score.error) == (None, ScoreStatus.NOT_APPLICABLE, None)

    def test_a_whole_score_is_kept(self):
        mine = Score(name="other", value=0.5, info={"why": "half"})
        score = score_of(reward("x")(lambda completion: mine), rollout())
        assert (score.name, score.value, score.info) == ("x", 0.5, {"why": "half"})

    def test_one_failure_leaves_the_others(self):
        @reward("picky")
        def picky(completion):
            if completion == "bad":
                raise ValueError("no\n  such   thing")
            return 1.0

        rows = [
            rollout("ok", rollout_id="a"),
            rollout("bad", rollout_id="b"),
            rollout("ok", rollout_id="c"),
        ]
        scores = score_rollouts(build_reward(picky), rows, CTX)
        assert [score.value for score in scores] == [1.0, None, 1.0]
        assert scores[1].error == "reward 'picky' on rollout 'b': ValueError: no such thing"

    def test_keyboard_interrupt_passes(self):
        def stop(completion):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            score_of(reward("x")(stop), rollout())

    def test_endless_errors_are_cut(self):
        def shout(completion):
            raise ValueError("x" * 10_000)

        error = score_of(reward("x")(shout), rollout()).error
        assert error is not None
        assert len(error) < 600
        assert error.endswith("...")

    def test_an_overrun_is_a_timeout(self):
        def slow(completion):
            threading.Event().wait(0.02)
            return 1.0

        score = score_of(reward("x", timeout_s=0.001)(slow), rollout())
        assert (score.value, score.status) == (None, ScoreStatus.TIMEOUT)
        assert "of its 0.001 s" in (score.error or "")
        assert score_of(reward("x", timeout_s=60)(slow), rollout()).value == 1.0

    def test_what_a_reward_needs_must_be_there(self):
        needy = reward("needy", needs=("level",))(lambda completion: 1.0)
        assert score_of(needy, rollout(info={"level": 1})).value == 1.0
        assert "needs the column 'level'" in (score_of(needy, rollout()).error or "")

    def test_batches_keep_their_order_and_length(self):
        class Batched(Reward):
            name = "batched"

            def __init__(self, drop: int = 0):
                self.drop = drop

            def score_batch(self, rollouts: Sequence[Rollout], ctx: RewardContext) -> list[float]:
                return [float(len(r.text)) for r in rollouts][self.drop :]

        rows = [rollout("a", rollout_id="a"), rollout("bbb", rollout_id="b")]
        assert [s.value for s in score_rollouts(Batched(), rows, CTX)] == [1.0, 3.0]
        short = score_rollouts(Batched(drop=1), rows, CTX)
        assert [s.value for s in short] == [None, None]
        assert "returned 1 scores for 2 rollouts" in (short[0].error or "")

    def test_groups_are_found_by_id_wherever_they_stand(self):
        class Best(Reward):
            name = "best"
            scope = "group"

            def score_group(self, group: RolloutGroup, ctx: RewardContext) -> list[bool]:
                longest = max(len(r.text) for r in group.rollouts)
                return [len(r.text) == longest for r in group.rollouts]

        rows = [
            rollout("aa", rollout_id="a", group="x"),
            rollout("b", rollout_id="b", group="y"),
            rollout("a", rollout_id="c", group="x"),
            rollout("bbb", rollout_id="d", group="y"),
        ]
        assert [s.value for s in score_rollouts(Best(), rows, CTX)] == [1.0, 0.0, 0.0, 1.0]

    def test_group_functions_get_aligned_lists(self):
        @reward("share", scope="group", range=(0, 1))
        def share(completions, answers, group):
            assert len(group.rollouts) == len(completions)
            return [c == a for c, a in zip(completions, answers, strict=True)]

        rows = [rollout("5", rollout_id="a"), rollout("6", rollout_id="b")]
        assert [s.value for s in score_rollouts(build_reward(share), rows, CTX)] == [1.0, 0.0]

    def test_scores_from_any_thread(self):
        found: list[Score] = []
        thread = threading.Thread(target=lambda: found.append(score_of(answered, rollout("5"))))
        thread.start()
        thread.join()
        assert found[0].value == 2.0


@pytest.mark.data
class TestReports:
    def test_group_prompt_kwarg(self, bug_report):
        case = bug_report("reward-group_prompt_kwarg")

        @reward("echo", scope="group")
        def echo(prompts, completions):
            return [p.endswith(c) for p, c in zip(prompts, completions, strict=True)]

        rows = [
            rollout(text, rollout_id=text, prompt=prompt)
            for prompt, text in zip(
                case["input"]["prompts"], case["input"]["completions"], strict=True
            )
        ]
        scores = [s.value for s in score_rollouts(build_reward(echo), rows, CTX)]
        assert scores == case["right"]["values"]["scores"]

    def test_kwargs_repeated_twice(self, bug_report):
        case = bug_report("reward-kwargs_repeated_twice")
        golds = [row["gold"] for row in case["input"]["rows"] for _ in range(case["input"]["n"])]
        rows = [
            rollout(text, rollout_id=str(i), group=gold, answer=gold)
            for i, (text, gold) in enumerate(zip(case["input"]["completions"], golds, strict=True))
        ]
        same = reward("same")(lambda completion, answer: completion == answer)
        scores = [s.value for s in score_rollouts(build_reward(same), rows, CTX)]
        assert scores == case["right"]["values"]["scores"]

    def test_plugin_signature(self, bug_report):
        case = bug_report("reward-plugin_signature")
        assert case["right"]["values"] == {"works": True}

        @reward("documented")
        def score(prompt, completion):
            return float(completion == "five")

        # The row has further columns; the function gets what it names.
        assert score_of(score, rollout("five", info={"ids": [1], "state": {}})).value == 1.0
