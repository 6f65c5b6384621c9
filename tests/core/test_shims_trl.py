from __future__ import annotations

import math
import pickle
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlgym_llm import Completion, Message, Plugins, RewardComposer, Rollout, Task, Turn
from rlgym_llm.errors import ConfigError, DataError, PluginError
from rlgym_llm.file_module import import_file
from rlgym_llm.reward_config import RewardsConfig
from rlgym_llm.rewards import RewardContext, build_reward, reward
from rlgym_llm.scores import ScoreStatus
from rlgym_llm.shims.trl import from_trl, trl_component_funcs, trl_reward_func
from rlgym_llm.shims.trl_rollouts import TrlBatch
from rlgym_llm.types import FinishReason

PLUGIN = Path(__file__).with_name("shim_rewards.py")
REWARDS = {"components": {"math": {"weight": 1.0}, "format": {"weight": 0.2}}}
TEXTS = ["24 + 48 = 72\n#### 72", "It is 72.", "#### 71", "no idea"]
BATCH = {"prompts": ["24 + 48 = ?"] * 4, "completions": TEXTS, "answer": ["72"] * 4}


def chat(text):
    return [{"role": "assistant", "content": text}]


def test_the_composed_reward_is_one_function_with_a_name():
    function = trl_reward_func(REWARDS)
    assert function.__name__ == "rlgym"
    assert trl_reward_func(REWARDS, name="mine").__name__ == "mine"
    assert function(**BATCH) == [1.2, 1.0, 0.2, 0.0]
    assert pickle.loads(pickle.dumps(function))(**BATCH) == [1.2, 1.0, 0.2, 0.0]


def test_strings_and_messages_score_the_same(bug_report):
    forms = bug_report("reward-completion_type_changes")
    completions = forms["input"]["completion_forms"]
    function = trl_reward_func({"math": 1.0})
    batch = {"prompts": ["3 + 4 = ?", "3 + 4 = ?"], "answer": ["7", "7"]}
    assert function(completions=completions, **batch) == forms["right"]["values"]["scores"]
    asked = [[{"role": "user", "content": "24 + 48 = ?"}]] * 4
    said = [chat(text) for text in TEXTS]
    assert trl_reward_func(REWARDS)(asked, said, answer=["72"] * 4) == [1.2, 1.0, 0.2, 0.0]


def test_columns_that_were_repeated_twice_are_an_error_and_never_zipped(bug_report):
    case = bug_report("reward-kwargs_repeated_twice")
    rows, n = case["input"]["rows"], case["input"]["n"]
    completions = case["input"]["completions"]
    prompts = [row["q"] for row in rows for _ in range(n)]
    golds = [row["gold"] for row in rows for _ in range(n)]
    function = trl_reward_func({"exact_match": 1.0})
    assert function(prompts, completions, answer=golds) == case["right"]["values"]["scores"]
    twice = [gold for gold in golds for _ in range(n)]
    with pytest.raises(DataError, match=r"answer holds 8 rows for 4 completions.*repeat nothing"):
        function(prompts, completions, answer=twice)
    with pytest.raises(DataError, match="prompts holds 2 rows for 4"):
        function(prompts[:2], completions, answer=golds)
    with pytest.raises(DataError, match="completion_ids holds 1 rows for 4"):
        function(prompts, completions, [[1]], answer=golds)


def test_every_field_stays_aligned_inside_a_group(bug_report):
    case = bug_report("reward-group_prompt_kwarg")
    prompts, completions = case["input"]["prompts"], case["input"]["completions"]
    function = trl_reward_func({"group_seen": 1.0}, plugins=[PLUGIN], num_generations=2)
    # Prompts of an environment's own resets: each sibling is judged by its own.
    seen = function(prompts, completions, environments=[object(), object()])
    assert seen == [3.0, 5.0]
    right = [float(text == f"{number:g}") for text, number in zip(completions, seen, strict=True)]
    assert right == case["right"]["values"]["scores"]


def test_what_cannot_be_scored_is_none(bug_report):
    case = bug_report("reward-none_means_skip")
    scores = case["input"]["plugin_scores"]
    texts = list(zip(scores["math"], scores["format"], strict=True))

    def function_of(place):
        return lambda completions, **_: [texts[int(text)][place] for text in completions]

    rewards = {name: from_trl(function_of(i), name=name) for i, name in enumerate(scores)}
    components = {name: {"weight": w} for name, w in case["input"]["weights"].items()}
    config = RewardsConfig.model_validate({"components": components})
    cards = RewardComposer(config, _Table(rewards))([_rollout(str(i)) for i in range(3)])
    assert [card.reward for card in cards] == pytest.approx(case["right"]["values"]["total"])

    function = trl_reward_func({**_picky(), "max_error_rate": 1.0}, plugins=[PLUGIN])
    texts = ["5", "6", "boom", "none"]
    assert function(["?"] * 4, texts, answer=["5"] * 4) == [1.0, 0.0, None, None]


def _picky(weight=1.0, **rest):
    return {"components": {"picky": weight, **rest}}


def test_one_function_a_component_and_weights_that_add_up_to_the_composed_reward():
    funcs, weights = trl_component_funcs(REWARDS)
    assert [func.__name__ for func in funcs] == ["math", "format"]
    assert weights == [1.0, 0.2]
    assert [func(**BATCH) for func in funcs] == [[1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0]]
    assert weighted_as_trl_does(funcs, weights, BATCH) == trl_reward_func(REWARDS)(**BATCH)


def weighted_as_trl_does(funcs, weights, batch):
    """TRL's ``nansum``, and None where every function gave None."""
    columns = [func(**batch) for func in funcs]
    totals = []
    for row in zip(*columns, strict=True):
        terms = [w * r for w, r in zip(weights, row, strict=True) if r is not None]
        totals.append(math.fsum(terms) if any(r is not None for r in row) else None)
    return totals


@settings(max_examples=40)
@given(
    texts=st.lists(st.sampled_from(["5", "6", "boom", "none", "x" * 30]), min_size=1, max_size=6),
    weights=st.tuples(*[st.sampled_from([-2.0, -0.1, 0.0, 0.3, 1.0])] * 2).filter(any),
    scale=st.sampled_from([1.0, -0.5, 0.1]),
    step=st.sampled_from([0, 5, 20]),
)
def test_the_weighted_sum_is_the_composed_reward_whatever_the_rules(texts, weights, scale, step):
    rewards = {
        "components": {
            "picky": {"weight": weights[0]},
            "length": {
                "weight": weights[1],
                "options": {"unit": "chars"},
                "gate": {"on": "picky", "op": ">=", "value": 1.0},
                "transform": [{"scale": scale}],
                "schedule": {"linear": [1.0, 0.0, 10]},
            },
            "at_step": {"weight": 0.0},
        },
        "max_error_rate": 1.0,
    }
    batch = {
        "prompts": ["?"] * len(texts),
        "completions": texts,
        "answer": ["5"] * len(texts),
        "trainer_state": SimpleNamespace(global_step=step),
    }
    funcs, found = trl_component_funcs(rewards, plugins=[PLUGIN])
    composed = trl_reward_func(rewards, plugins=[PLUGIN])(**batch)
    summed = weighted_as_trl_does(funcs, found, batch)
    assert [s is None for s in summed] == [c is None for c in composed]
    assert [s or 0.0 for s in summed] == pytest.approx([c or 0.0 for c in composed])


def test_a_batch_is_scored_once_for_all_components_and_the_next_anew():
    plugin = import_file(PLUGIN)
    rewards = {"components": {"recorded": 1.0, "at_step": 0.5, "picky": 0.0}}
    funcs, _ = trl_component_funcs(rewards, plugins=[PLUGIN])
    batch = {"prompts": ["?", "?"], "completions": ["a", "bb"], "answer": ["a", "c"]}
    plugin.calls.clear()
    assert [f(**batch) for f in funcs] == [[1.0, 2.0], [1.0, 1.0], [1.0, 0.0]]
    assert plugin.calls == [["a", "bb"]]
    assert [f(**batch) for f in funcs] == [[1.0, 2.0], [1.0, 1.0], [1.0, 0.0]]
    assert len(plugin.calls) == 2  # the same lists again are a new batch
    funcs[0](**batch)
    funcs[0](**batch)
    assert len(plugin.calls) == 4  # and so is a function that is asked twice
    equal = {name: list(values) for name, values in batch.items()}
    funcs[1](**equal)
    assert len(plugin.calls) == 5
    copies = pickle.loads(pickle.dumps(funcs))
    assert [f(**batch) for f in copies] == [[1.0, 2.0], [1.0, 1.0], [1.0, 0.0]]
    assert len(plugin.calls) == 6


def test_a_failed_row_is_none_in_every_component_so_that_trl_leaves_it_out():
    rewards = {"components": {"picky": 1.0, "at_step": 0.5, "asks": 0.0}, "max_error_rate": 1.0}
    funcs, _ = trl_component_funcs(rewards, plugins=[PLUGIN])
    batch = {"prompts": ["?"] * 3, "completions": ["5", "boom", "none"], "answer": ["5"] * 3}
    # "none": picky does not apply, the others do, so the row has a reward.
    assert [f(**batch) for f in funcs] == [[1.0, None, None], [1.0, None, 1.0], [1.0, None, 1.0]]


def test_what_one_function_a_component_cannot_say_is_refused_and_the_other_way_round():
    for rule in ({"clip": [0, 1]}, {"on_truncated": "soft"}, {"on_truncated": {"soft": 0.5}}):
        with pytest.raises(ConfigError, match=r"acts on the sum.*use trl_reward_func"):
            trl_component_funcs({**REWARDS, **rule})
        trl_reward_func({**REWARDS, **rule})
    gdpo = {**REWARDS, "aggregate": "normalize_then_sum"}
    with pytest.raises(ConfigError, match="use trl_component_funcs"):
        trl_reward_func(gdpo)
    trl_component_funcs(gdpo)
    with pytest.raises(ConfigError, match="both called 'math'; give a name="):
        trl_reward_func(REWARDS, name="math")
    with pytest.raises(ConfigError, match="num_generations is 0"):
        trl_reward_func(REWARDS, num_generations=0)


def test_raw_scores_and_metrics_go_to_trls_log():
    extra, metrics = {}, {}
    found = trl_reward_func(REWARDS)(
        **BATCH, log_extra=extra.__setitem__, log_metric=metrics.__setitem__
    )
    assert found == [1.2, 1.0, 0.2, 0.0]
    assert extra == {"rlgym/math": [1.0, 1.0, 0.0, 0.0], "rlgym/format": [1.0, 0.0, 1.0, 0.0]}
    assert metrics["rewards/math/mean"] == 0.5
    assert metrics["scoring/error_rate"] == 0.0


def test_siblings_stand_beside_each_other():
    function = trl_reward_func({"rank": 1.0}, plugins=[PLUGIN])
    texts = ["aa", "a", "aaa", "b", "bb", "c"]
    assert function(["p", "p", "p", "q", "q", "p"], texts) == [1.0, 0.0, 2.0, 0.0, 1.0, 0.0]
    # Two neighbours in the data set that are equal are two groups, once G is known.
    by_two = trl_reward_func({"rank": 1.0}, plugins=[PLUGIN], num_generations=2)
    assert function(["p"] * 4, texts[:4]) == [2.0, 0.0, 3.0, 0.0]
    assert by_two(["p"] * 4, texts[:4]) == [1.0, 0.0, 1.0, 0.0]
    with pytest.raises(DataError, match="3 completions are no whole groups of num_generations 2"):
        by_two(["p"] * 3, texts[:3])
    with pytest.raises(DataError, match=r"rows 0 and 1 .* their prompts differ"):
        by_two(["p", "q"], texts[:2])


def test_the_answer_is_found_under_the_names_that_data_sets_use():
    function = trl_reward_func({"math": 1.0})
    for name in ("answer", "solution", "ground_truth"):
        assert function(["?"], ["It is 5."], **{name: [5]}) == [1.0]
    named = trl_reward_func({"math": 1.0}, answer="gold")
    assert named(["?"], ["It is 5."], gold=["5"], answer=["6"]) == [1.0]
    with pytest.raises(DataError, match="no column 'gold' for the answer; did you mean 'golds'"):
        named(["?"], ["It is 5."], golds=["5"])


def test_every_other_column_is_there_by_name(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "def judge(completion, level, data_source, info):\n"
        "    assert set(info) == {'level', 'data_source'}\n"
        "    return level + len(data_source)\n"
    )
    found = trl_reward_func([f"{file}:judge=1.0"])(
        ["?", "?"], ["a", "b"], level=[1, 2], data_source=["x", "yy"], trainer_state=object()
    )
    assert found == [2.0, 4.0]


def test_token_ids_count_and_an_end_that_was_not_sampled_is_a_truncation():
    read = TrlBatch(eos_token_ids=(2,))
    rows = read(["?"] * 3, ["a", "b", chat("c")], [[7, 2], [7, 8, 9], [2]], {})
    assert [row.num_tokens for row in rows] == [2, 3, 1]
    assert [row.turns[-1].completion.finish_reason for row in rows] == [
        FinishReason.STOP,
        FinishReason.LENGTH,
        FinishReason.STOP,
    ]
    rewards = {"components": {"length": {"options": {"unit": "tokens"}}}, "on_truncated": "zero"}
    function = trl_reward_func(rewards, eos_token_ids=[2])
    assert function(["?"] * 2, ["a", "b"], [[7, 2], [7, 8, 9]]) == [2.0, 0.0]
    assert trl_reward_func(rewards)(["?"] * 2, ["a", "b"], [[7, 2], [7, 8, 9]]) == [2.0, 3.0]


def test_several_messages_are_turns_whose_ids_nobody_can_tell_apart():
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": 3}}}
    conversation = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "name": "add", "content": "5"},
        {"role": "assistant", "content": "It is 5."},
    ]
    (row,) = TrlBatch()([[{"role": "user", "content": "2+3?"}]], [conversation], [[4, 5, 6]], {})
    assert row.num_turns == 2
    assert row.text == "\nIt is 5."
    assert row.turns[0].reply[0].content == "5"
    assert row.num_tokens == 0
    assert TrlBatch()(["?"], [[]], None, {})[0].text == ""


def test_a_text_of_another_kind_is_named():
    with pytest.raises(DataError, match="row 1 of TRL's batch: a completion is text or a list of"):
        trl_reward_func(REWARDS)(["?", "?"], ["a", 7])
    with pytest.raises(DataError, match="row 0 of TRL's batch: the prompt is empty"):
        trl_reward_func(REWARDS)([""], ["a"])


class _Table:
    """Plugins of a test: rewards by name."""

    def __init__(self, rewards):
        self.rewards = rewards

    def get(self, kind, name):
        return SimpleNamespace(name=name)

    def load(self, spec):
        return self.rewards[spec.name]

    def scored(self, cards):
        pass


def _rollout(text="ok", prompt="2+3?", ids=(), **info):
    turn = Turn(new_prompt_token_ids=(), completion=Completion(text=text, token_ids=ids))
    task = Task(prompt=prompt, answer="5", data_source="s", info=info)
    return Rollout(id=text, task=task, group_id="g", sample_index=0, seed=0, turns=(turn,))


def values(function, rollouts, step=None, **options):
    ctx = RewardContext(step=step)
    return list(build_reward(from_trl(function, **options)).score_batch(rollouts, ctx))


def test_a_function_of_trls_gets_what_trl_would_hand_it():
    seen = {}

    def function(prompts, completions, completion_ids, level, trainer_state, **kwargs):
        seen.update(locals())
        return [0.5, None]

    rows = [_rollout("a", ids=(1, 2), level=1), _rollout("b", ids=(3,), level=2, odd=1)]
    assert values(function, rows, step=9, name="mine") == [0.5, None]
    assert seen["prompts"] == ["2+3?", "2+3?"]
    assert seen["completions"] == ["a", "b"]
    assert seen["completion_ids"] == [[1, 2], [3]]
    assert seen["level"] == [1, 2]
    assert seen["trainer_state"].global_step == 9
    assert seen["kwargs"]["solution"] == seen["kwargs"]["answer"] == ["5", "5"]
    assert "odd" not in seen["kwargs"]  # not every row has it
    seen["kwargs"]["log_metric"]("anything", 1.0)


def test_conversations_stay_conversations():
    prompt = (Message(role="user", content="2+3?"),)

    def function(prompts, completions, **kwargs):
        assert prompts == [[{"role": "user", "content": "2+3?"}]]
        return [float(completion[0]["content"] == "a") for completion in completions]

    assert values(function, [_rollout("a", prompt)]) == [1.0]


def test_only_what_the_signature_names_is_passed(bug_report):
    case = bug_report("reward-plugin_signature")
    found = {}
    exec(case["input"]["function"].replace("...", "\n    return float(completion == 'a')"), found)
    # The documented signature as a reward of ours, with columns that it does not name ...
    ours = build_reward(reward("score")(found["score"]))
    assert ours.score(_rollout("a", level=1), RewardContext()) == 1.0

    # ... and TRL's, without the **kwargs that TRL itself asks for.
    def score(prompts, completions):
        return [float(text == "a") for text in completions]

    assert values(score, [_rollout("a", level=1), _rollout("b", level=2)]) == [1.0, 0.0]


def test_columns_go_by_the_names_that_the_function_asks_for():
    def function(completions, gold, **kwargs):
        return [float(text == right) for text, right in zip(completions, gold, strict=True)]

    assert values(function, [_rollout("5")], columns={"gold": "answer"}) == [1.0]
    with pytest.raises(LookupError, match="no column 'glod' in every row for the parameter 'gold'"):
        values(function, [_rollout("5")], columns={"gold": "glod"})

    def strict(completions, gold):
        return [1.0]

    with pytest.raises(LookupError, match=r"'gold' has no default .*available: answer, "):
        values(strict, [_rollout("5")])


def test_a_wrong_length_or_a_raise_fails_the_rows_and_is_no_zero():
    def short(completions, **kwargs):
        return [1.0]

    def broken(completions, **kwargs):
        raise KeyError("gold")

    rewards = {"short": from_trl(short), "broken": from_trl(broken)}
    config = RewardsConfig.model_validate({"components": {"short": 1.0, "broken": 0.0}})
    config = config.model_copy(update={"max_error_rate": 1.0})
    cards = RewardComposer(config, _Table(rewards))([_rollout("a"), _rollout("b")])
    for card in cards:
        assert card.reward is None
        assert {part.status for part in card.components.values()} == {ScoreStatus.ERROR}
        assert "returned 1 scores for 2 rollouts" in card.components["short"].error
        assert "KeyError: 'gold'" in card.components["broken"].error


def test_what_is_no_function_for_us_is_refused():
    async def later(completions, **kwargs):
        return [1.0]

    with pytest.raises(PluginError, match="'later' is an async function"):
        from_trl(later)
    with pytest.raises(PluginError, match="from_trl needs a name"):
        from_trl(_Callable())
    assert values(_Callable(), [_rollout("abc")], name="mine") == [3.0]


class _Callable:
    def __call__(self, completions, **kwargs):
        return [float(len(text)) for text in completions]


def test_there_and_back_is_the_same(tmp_path):
    plugin = tmp_path / "round_trip.py"
    plugin.write_text(
        "from rlgym_llm import RewardSpec, hookimpl\n"
        "from rlgym_llm.shims.trl import from_trl, trl_reward_func\n"
        "back = from_trl(trl_reward_func(['math=1.0', 'format=0.2']), name='back')\n"
        "@hookimpl\n"
        "def rlgym_register(kind):\n"
        "    spec = RewardSpec(name='back', entry_point=f'{__name__}:back')\n"
        "    return [spec] if kind == 'reward' else []\n"
    )
    config = RewardsConfig.model_validate({"back": 1.0})
    rows = [_rollout(text) for text in ("It is 5.", "#### 5", "#### 6", "")]
    cards = RewardComposer(config, Plugins.discover([plugin]))(rows)
    assert [card.reward for card in cards] == [1.0, 1.2, 0.2, 0.0]
