import math
import pickle
from pathlib import Path
from typing import Any

import pytest
from rlgym_llm_rewards.prm import PRM

from rlgym_llm.check_reward import check_reward, probe_rollouts
from rlgym_llm.compose import RewardComposer
from rlgym_llm.composition.placement import token_rewards
from rlgym_llm.errors import ConfigError, UserError
from rlgym_llm.plugins import Plugins
from rlgym_llm.reward_config import RewardsConfig
from rlgym_llm.rewards import RewardContext, build_reward
from rlgym_llm.score import score_rollouts
from rlgym_llm.scores import Score, ScoreStatus
from rlgym_llm.types import Completion, Message, Rollout, Task, Turn

SOURCE = """
TABLE = {"a": 0.75, "b": 0.25, "c": 0.5}

def table(prompt, steps):
    assert prompt == "2 + 3 = ?"
    return [TABLE[step] for step in steps]

def short(prompt, steps):
    return [1.0 / (1 + len(step)) for step in steps]

def odd(prompt, steps):
    if steps == ["one too many"]:
        return [0.5, 0.5]
    if steps == ["raises"]:
        raise KeyError("oops")
    return [{"nan": float("nan"), "big": 1.5, "text": "x"}.get(step, 0.5) for step in steps]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "steps.py"
    path.write_text(SOURCE)
    return path


def rollout(*texts: str, rollout_id: str = "r0", prompt: Any = "2 + 3 = ?") -> Rollout:
    turns = tuple(Turn(new_prompt_token_ids=(), completion=Completion(text=t)) for t in texts)
    task = Task(prompt=prompt, answer="5")
    return Rollout(id=rollout_id, task=task, group_id="g", sample_index=0, seed=0, turns=turns)


def score_all(rollouts, **options) -> list[Score]:
    built = build_reward(PRM, options)
    built.setup(RewardContext())
    try:
        return score_rollouts(built, rollouts, RewardContext())
    finally:
        built.close()


def short_probes() -> list[Rollout]:
    """The checker's own probes but for the huge ones, of 200,000 steps."""
    return [probe for probe in probe_rollouts() if len(probe.text) < 10_000]


@pytest.mark.parametrize(
    ("options", "value", "steps"),
    [  # the steps score 0.75, 0.25 and 0.5
        ({"reduce": "min"}, 0.25, [0, 0.25, 0]),
        ({"reduce": "last"}, 0.5, [0, 0, 0.5]),
        ({"reduce": "sum"}, 1.5, [0.75, 0.25, 0.5]),
        ({"reduce": "sum", "transform": "delta"}, 0.5, [0.75, -0.5, 0.25]),
        ({"reduce": "sum", "transform": "clip", "eta": 0.5}, -0.25, [0, -0.25, 0]),
        ({"potential": True}, 0.5, [0.75, 0.25, 0.5]),
        ({}, 0.25, [0, 0.25, 0]),
    ],
)
def test_value_and_steps(file, options, value, steps):
    [found] = score_all([rollout("a\n\nb", "c")], function=f"{file}:table", **options)
    assert found.value == value
    assert [step.value for step in found.steps] == steps
    assert [(s.char_start, s.char_end) for s in found.steps] == [(0, 1), (3, 4), (5, 6)]
    assert found.info == {"step_scores": [0.75, 0.25, 0.5]}


def test_one_bad_rollout_costs_only_itself(file):
    texts = ["fine", "nan", "big", "text", "one too many", "raises", "fine\nnan"]
    found = score_all([rollout(text) for text in texts], function=f"{file}:odd")
    assert found[0].value == 0.5
    errors = [score.error or "" for score in found[1:]]
    assert all(score.status is ScoreStatus.ERROR and score.value is None for score in found[1:])
    for error, words in zip(
        errors,
        [
            "step 1 of 1 scored nan",
            "step 1 of 1 scored 1.5, outside step_range [0, 1]",
            "TypeError: 'x' is a str, no number",
            "2 scores for 1 steps",
            "KeyError: 'oops'",
            "step 2 of 2 scored nan",
        ],
        strict=True,
    ):
        assert words in error


def test_no_step_is_worth_what_empty_says(file):
    path = f"{file}:short"
    assert score_all([rollout(" \n")], function=path)[0].value == 0.0
    assert score_all([rollout("")], function=path, empty=-1.0)[0].value == -1.0
    [none] = score_all([rollout()], function=path, empty=None)
    assert none.status is ScoreStatus.NOT_APPLICABLE


def test_the_range_follows_the_options(file):
    path = f"{file}:short"
    assert PRM(function=path).range == (0.0, 1.0)
    assert PRM(function=path, reduce="sum").range == (0.0, math.inf)
    assert PRM(function=path, reduce="sum", transform="clip", eta=0.5).range == (-math.inf, 0.0)
    assert PRM(function=path, reduce="sum", transform="delta").range == (0.0, 1.0)
    assert PRM(function=path, reduce="last", transform="delta").range == (-1.0, 1.0)
    assert PRM(function=path, empty=-2).range == (-2.0, 1.0)


@pytest.mark.parametrize("reduce", ["last", "mean", "min", "prod", "sum"])
def test_contract(file, reduce):
    options = {"function": f"{file}:short", "reduce": reduce}
    rollouts = probe_rollouts() if reduce == "mean" else short_probes()
    scores = check_reward(PRM, rollouts, options=options)
    assert len({score.value for score in scores}) > 3
    for score in scores:
        assert math.fsum(step.value for step in score.steps) == score.value


def test_options_that_cannot_be():
    for options, words in [
        ({}, "has one scorer: .* given: none"),
        ({"function": "a:b", "model": "m"}, "given: function, model"),
        ({"url": "localhost:8000/pooling"}, "is no address"),
        ({"url": "http://me:key@host/pooling"}, "api_key_env"),
        ({"function": "math:nothing"}, "math has no function 'nothing'"),
        ({"function": "math:sqrt", "step_range": [1, 0]}, "is empty"),
        ({"function": "math:sqrt", "split": "regex"}, "needs a pattern"),
        ({"model": "m", "template": "{prompt}"}, "does not say where {completion} stands"),
        ({"model": "m", "batch_size": 0}, "at least 1"),
        ({"model": "m", "separator": ""}, "separator is empty"),
        ({"model": "m", "potential": True, "reduce": "sum"}, "reduced by last"),
        ({"model": "m", "potential": True, "transform": "delta"}, "take no delta"),
        ({"model": "m", "max_length": 0}, "max_length are at least 1"),
        ({"model": "m", "label": -1}, "label is a class's number from 0, not -1"),
        ({"url": "http://h/p", "retries": -1}, "retries is at least 0, not -1"),
        ({"url": "http://h/p", "request_timeout_s": 0}, "request_timeout_s is a time above 0"),
        ({"url": "http://h/p", "backoff_s": math.nan}, "backoff_s is 0 or more seconds, not nan"),
        ({"function": "operator:add", "step_range": [0, math.nan]}, "is empty"),
        ({"function": "math:isfinite"}, r"is called as \(prompt, steps\), which it does not take"),
        ({"function": "fractions:Fraction"}, "fractions:Fraction is a class, no function"),
    ]:
        with pytest.raises(UserError, match=words):
            build_reward(PRM, options)
    with pytest.raises(ConfigError, match="no option 'reduces'; did you mean 'reduce'"):
        build_reward(PRM, {"reduces": "min"})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"function": "operator:add", "head": "causal"}, "head is an option of model .* function$"),
        ({"function": "operator:add", "retries": 2}, "retries is an option of url .* function$"),
        ({"function": "operator:add", "batch_size": 2}, "batch_size is an option of model"),
        ({"function": "operator:add", "label": 0}, "label is an option of model"),
        ({"function": "operator:add", "template": "{completion}"}, "template is an option of"),
        ({"model": "m", "api": "steps"}, "api is an option of url .* model with head: token$"),
        ({"model": "m", "concurrency": 2}, "concurrency is an option of url"),
        ({"model": "m", "good": "yes"}, "good is an option of model with head: causal, not of"),
        ({"model": "m", "head": "causal", "label": 0}, "not of model with head: causal$"),
        ({"url": "http://h/p", "device": "cpu"}, "device is an option of model"),
        ({"url": "http://h/p", "bad": "no"}, "bad is an option of model with head: causal"),
        ({"url": "http://h/p", "batch_size": 2}, "api: pooling and a template, or .* pooling$"),
        ({"url": "http://h/p", "api": "steps", "separator": "x"}, "not of url with api: steps$"),
        ({"function": "operator:add", "eta": 0.5}, "eta is an option of transform clip and clip_"),
        ({"function": "operator:add", "eta": 0.5, "transform": "delta"}, "not of delta$"),
    ],
)
def test_an_option_of_another_scorer_is_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        build_reward(PRM, options)


def test_options_of_its_own_are_taken():
    for options in [
        {"url": "http://h/p", "template": "{completion}", "batch_size": 2, "label": 0},
        {"url": "http://h/p", "api": "steps", "batch_size": 2, "model": "m", "retries": 1},
        {"model": "m", "head": "causal", "good": "yes", "bad": "no", "batch_size": 2},
        {"model": "m", "label": 0, "max_length": 9, "dtype": "float32", "device": "cpu"},
        {"function": "operator:add", "eta": 0.5, "transform": "clip_delta"},
    ]:
        build_reward(PRM, options)


def test_what_its_steps_are():
    for options, steps_are in [({}, "shares"), ({"potential": True}, "potentials")]:
        built = build_reward(PRM, {"function": "operator:add", **options})
        assert built.steps_are == steps_are
        assert pickle.loads(pickle.dumps(built)).steps_are == steps_are


@pytest.mark.parametrize(
    "returned",
    ["{0.5: 1}", "{0.5}", "'1'", "['0.5']", "[[0.5]]", "[None]", "None", "0.5", "b'1'", "[1j]"],
)
def test_only_numbers_in_order_are_scores(tmp_path, returned):
    file = tmp_path / "steps.py"
    file.write_text(f"def f(prompt, steps):\n    return {returned} if steps == ['b'] else [1]\n")
    found = score_all([rollout("a"), rollout("b", rollout_id="r1")], function=f"{file}:f")
    assert [score.value for score in found] == [1.0, None]
    assert "TypeError: " in (found[1].error or "")


@pytest.mark.parametrize("returned", ["(0.5,)", "numpy.array([0.5])", "(x for x in [0.5])"])
def test_lists_of_many_kinds_are_scores(tmp_path, returned):
    file = tmp_path / "steps.py"
    file.write_text(f"import numpy\ndef f(prompt, steps):\n    return {returned}\n")
    assert score_all([rollout("a")], function=f"{file}:f")[0].value == 0.5


def test_an_async_function_is_refused(tmp_path):
    file = tmp_path / "steps.py"
    file.write_text("async def f(prompt, steps):\n    return [1.0]\n")
    with pytest.raises(UserError, match="is an async function; it must be a plain one"):
        build_reward(PRM, {"function": f"{file}:f"})


def test_it_scores_only_when_set_up(file):
    with pytest.raises(RuntimeError, match="call setup"):
        PRM(function=f"{file}:short").score(rollout("a"), RewardContext())


def sampled(text: str, tokenizer: Any) -> Turn:
    """A turn as a generator gives it: ids, and where each token's text ends; end-of-text last."""
    encoded = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
    ends = [end for _, end in encoded["offset_mapping"]]
    completion = Completion(
        text=text,
        token_ids=(*encoded["input_ids"], tokenizer.eos_token_id),
        token_char_ends=(*ends, len(text)),
    )
    return Turn(new_prompt_token_ids=(), completion=completion)


@pytest.mark.parametrize(
    ("placement", "options", "earned"),
    [  # the steps score 0.5, 0.25 and 1.0
        ("step", {"reduce": "sum"}, [0.5, 0.25, 1.0]),
        ("step", {"reduce": "sum", "transform": "delta"}, [0.5, -0.25, 0.75]),
        ("step", {"reduce": "min"}, [0.0, 0.25, 0.0]),
        ("potential", {"potential": True}, [0.5, -0.25, 0.75]),
    ],
)
def test_steps_land_on_the_tokens_that_end_them(file, tokenizer, placement, options, earned):
    scores = {"6 * 2 = 12.": 0.5, "Half of 12 is 6 — überall.": 0.25, "#### 6": 1.0}
    file.write_text(f"def known(prompt, steps):\n    return [{scores!r}[step] for step in steps]\n")
    first, second, third = scores
    turns = (sampled(f" {first}  \n\n{second}\n", tokenizer), sampled(third, tokenizer))
    task = Task(prompt="?", answer="6")
    episode = Rollout(id="r", task=task, group_id="g", sample_index=0, seed=0, turns=turns)
    component = {
        "reward": "prm",
        "weight": 2.0,
        "placement": placement,
        "options": {"function": f"{file}:known", **options},
    }
    config = RewardsConfig.model_validate({"components": {"steps": component}})
    with RewardComposer(config, Plugins.discover()) as composer:
        [card] = composer([episode])
    placed = token_rewards(episode, card, config.components)
    found = []
    for turn, rewards in zip(turns, placed, strict=True):
        ids = turn.completion.token_ids
        for token, reward in enumerate(rewards):
            if reward:
                until = tokenizer.decode(ids[: token + 1])
                [step] = [text for text in scores if until.endswith(text)]
                found.append((step, reward / 2))
    assert found == [(text, x) for text, x in zip(scores, earned, strict=True) if x]
    assert math.fsum(reward for rewards in placed for reward in rewards) == card.reward


# A model in this process

TEMPLATE = "{prompt}\n{completion}"


def test_steps_are_judged_at_the_token_behind_them(make_model, tmp_path):
    """Against the model itself, called by hand on the ids of each prefix."""
    import torch
    from transformers import AutoModelForTokenClassification, AutoTokenizer

    folder = make_model(tmp_path, "TokenClassification", num_labels=2)
    [found] = score_all(
        [rollout("6 * 2 = 12\nso it is 12")],
        model=str(folder),
        separator=" ##\n",
        template=TEMPLATE,
        reduce="last",
    )
    model = AutoModelForTokenClassification.from_pretrained(folder).eval()
    own = AutoTokenizer.from_pretrained(folder)
    expected = []
    for text in (
        "2 + 3 = ?\n6 * 2 = 12 ##",
        "2 + 3 = ?\n6 * 2 = 12 ##\nso it is 12 ##",
    ):
        ids = torch.tensor([own(text)["input_ids"]])
        with torch.inference_mode():
            expected.append(float(model(input_ids=ids).logits[0, -1].softmax(-1)[1]))
    assert found.info["step_scores"] == pytest.approx(expected, abs=1e-6)
    assert found.value == found.info["step_scores"][1]
    assert abs(expected[0] - expected[1]) > 0.001
    assert [(s.char_start, s.char_end) for s in found.steps] == [(0, 10), (11, 22)]


def test_a_causal_model_is_read_at_the_step_tag(make_model, tmp_path):
    """Math-Shepherd's way: p(+) / (p(+) + p(-)) of the next token at the tag."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = make_model(tmp_path, "CausalLM")
    [found] = score_all(
        [rollout("Step 1: 6 * 2 = 12\nStep 2: so it is 12")],
        model=str(folder),
        head="causal",
        separator=" #\n",
        template="{prompt} {completion}",
        reduce="prod",
    )
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    own = AutoTokenizer.from_pretrained(folder)
    plus, minus = (own(word)["input_ids"][0] for word in "+-")
    text = "2 + 3 = ? Step 1: 6 * 2 = 12 #\nStep 2: so it is 12 #"
    ids = own(text)["input_ids"]
    tags = [place for place, token in enumerate(ids) if own.decode([token]).strip() == "#"]
    assert len(tags) == 2
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([ids])).logits[0, tags][:, [plus, minus]]
    expected = logits.softmax(-1)[:, 0].tolist()
    assert found.info["step_scores"] == pytest.approx(expected, abs=1e-6)
    assert found.value == pytest.approx(expected[0] * expected[1], abs=1e-6)


@pytest.mark.parametrize("head", ["token", "causal"])
def test_company_changes_nothing(make_model, tmp_path, head):
    kind = "TokenClassification" if head == "token" else "CausalLM"
    folder = make_model(tmp_path, kind)
    texts = ["a", "6 * 2 = 12\nso 12", "7\n" * 20, "", "x " * 40 + "\ny"]
    rollouts = [rollout(text, rollout_id=f"r{index}") for index, text in enumerate(texts)]
    options = {"model": str(folder), "head": head, "separator": "<|im_end|>", "batch_size": 3}
    together = score_all(rollouts, **options)
    for one, score in zip(rollouts, together, strict=True):
        [alone] = score_all([one], **options)
        assert alone.value == pytest.approx(score.value, abs=1e-5)
    assert len({round(score.value or 0, 4) for score in together}) == len(texts)


def test_a_conversation_is_rendered_with_its_replies(make_model, tmp_path, tokenizer):
    from rlgym_llm_rewards.pretrained import load_pretrained
    from rlgym_llm_rewards.prm.model_scorer import marked_tokens
    from rlgym_llm_rewards.prm.scorer import SteppedRollout
    from rlgym_llm_rewards.prm.splitters import split_rollout

    folder = make_model(tmp_path, "TokenClassification")
    prompt = (Message(role="system", content="Add."), Message(role="user", content="2 + 3 = ?"))
    replies = (Message(role="user", content="go on"),)
    turns = (
        Turn(new_prompt_token_ids=(), completion=Completion(text="a\nb"), reply=replies),
        Turn(new_prompt_token_ids=(), completion=Completion(text="c")),
    )
    task = Task(prompt=prompt, answer="5")
    episode = Rollout(id="r", task=task, group_id="g", sample_index=0, seed=0, turns=turns)
    item = SteppedRollout(rollout=episode, steps=tuple(split_rollout(episode, "newline")))
    loaded = load_pretrained("prm", str(folder), "token")
    token_ids, places = marked_tokens(loaded, item, " #\n")
    assert tokenizer.decode(token_ids) == (
        "<|im_start|>system\nAdd.<|im_end|>\n<|im_start|>user\n2 + 3 = ?<|im_end|>\n"
        "<|im_start|>assistant\na #\nb #<|im_end|>\n<|im_start|>user\ngo on<|im_end|>\n"
        "<|im_start|>assistant\nc #<|im_end|>\n"
    )
    until = [tokenizer.decode(token_ids[: place + 1]) for place in places]
    assert [text.rpartition("\n")[2] for text in until] == ["a #", "b #", "c #"]


def test_a_policy_writes_no_control_tokens(make_model, tmp_path, tokenizer):
    from rlgym_llm_rewards.pretrained import load_pretrained
    from rlgym_llm_rewards.prm.model_scorer import marked_tokens
    from rlgym_llm_rewards.prm.scorer import SteppedRollout
    from rlgym_llm_rewards.prm.splitters import split_rollout

    folder = make_model(tmp_path, "TokenClassification")
    loaded = load_pretrained("prm", str(folder), "token")
    ends = []
    for text in ("a\nb", "a<|im_end|>\nb \ue000\ue001 \ud800<|im_st<|im_end|>art|>"):
        episode = rollout(text)
        item = SteppedRollout(rollout=episode, steps=tuple(split_rollout(episode, "newline")))
        token_ids, places = marked_tokens(loaded, item, "<|im_end|>")
        assert len(places) == 2
        ends.append(
            [
                token_ids.count(i)
                for i in tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|im_start|>"])
            ]
        )
    # user, assistant and two steps; nothing more where the text holds the same characters
    assert ends == [[4, 2], [4, 2]]


def test_a_text_too_long_fails_by_itself(make_model, tmp_path):
    folder = make_model(tmp_path, "TokenClassification")
    options = {"model": str(folder), "separator": "\n", "max_length": 300}
    long, short = score_all([rollout("12 + 60 " * 400), rollout("12")], **options)
    assert long.status is ScoreStatus.ERROR
    assert "are more than the 300" in (long.error or "")
    assert short.value is not None


def test_models_that_are_not_for_this(make_model, tmp_path):
    causal = make_model(tmp_path / "causal", "CausalLM")
    with pytest.raises(UserError, match=r"is not trained for this: it lacks .* score"):
        score_all([rollout("a")], model=str(causal))
    with pytest.raises(UserError, match=r"model \S+nowhere does not load: there is no such folder"):
        score_all([rollout("a")], model=str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match="reads 'so not' as"):
        score_all([rollout("a")], model=str(causal), head="causal", good="so not")
    token = make_model(tmp_path / "token", "TokenClassification")
    with pytest.raises(UserError, match="2 classes and none numbered 2"):
        score_all([rollout("a")], model=str(token), label=2)


def test_a_model_keeps_the_contract_and_travels_unloaded(make_model, tmp_path):
    folder = make_model(tmp_path, "TokenClassification")
    options = {"model": str(folder), "separator": "<|im_end|>"}
    rollouts = [rollout(text, rollout_id=text) for text in ("a", "b\nc", "", "\ud800 \x00")]
    scores = check_reward(PRM, rollouts, options=options)
    assert len({score.value for score in scores}) == 4
    built = build_reward(PRM, options)
    built.setup(RewardContext())
    assert len(pickle.dumps(built)) < 5000
    assert pickle.loads(pickle.dumps(built)) == built
    built.close()


# A server


def pooled(request: Any, number: int) -> Any:
    """vLLM's answer of a STEP pooler: one row of two class probabilities per step tag."""
    texts = request.get("input") or [
        "".join(m["content"] for m in request["messages"] if m["role"] == "assistant")
    ]
    data = []
    for index, text in enumerate(texts):
        steps = text.split("<extra_0>")[:-1]
        rows = [[1 - 0.5 / len(s.split()[-1]), 0.5 / len(s.split()[-1])] for s in steps]
        data.append({"index": index, "object": "pooling", "data": rows})
    return 200, {"object": "list", "model": "prm", "data": data[::-1], "usage": {}}


def test_vllm_with_messages(model_server):
    model_server.answer = pooled
    rollouts = [rollout("a\nbb", rollout_id="r0"), rollout("bb<extra_0>", rollout_id="r1")]
    found = score_all(rollouts, url=f"{model_server.url}/pooling", model="prm", reduce="sum")
    assert [score.value for score in found] == [0.75, 0.5 / len("extra_0>")]
    [sent] = [sent for sent in model_server.requests if "bb<extra_0>" in str(sent)]
    assert sent == {
        "task": "token_classify",
        "encoding_format": "float",
        "model": "prm",
        "messages": [
            {"role": "user", "content": "2 + 3 = ?"},
            {"role": "assistant", "content": "a<extra_0>bb<extra_0>"},
        ],
    }
    assert set(model_server.paths) == {"/pooling"}


def test_vllm_with_texts_in_batches(model_server):
    model_server.answer = pooled
    rollouts = [rollout("b" * n, rollout_id=f"r{n}") for n in (1, 2, 4, 5, 10)]
    found = score_all(rollouts, url=f"{model_server.url}/pooling", template=TEMPLATE, batch_size=2)
    assert [score.value for score in found] == [0.5, 0.25, 0.125, 0.1, 0.05]
    assert sorted(len(sent["input"]) for sent in model_server.requests) == [1, 2, 2]
    assert "2 + 3 = ?\nb<extra_0>" in [text for r in model_server.requests for text in r["input"]]


def test_a_pooler_of_all_tokens_is_found_out(model_server):
    rows = [[0.5, 0.5]] * 9
    model_server.answer = lambda sent, number: (200, {"data": [{"index": 0, "data": rows}]})
    [found] = score_all([rollout("a")], url=f"{model_server.url}/pooling")
    assert "9 rows for 1 steps; it must pool with pooling_type STEP" in (found.error or "")


def test_a_server_of_your_own(model_server):
    def answer(sent: Any, number: int) -> Any:
        return 200, {"scores": [[len(s) / 10 for s in item["steps"]] for item in sent["inputs"]]}

    model_server.answer = answer
    found = score_all(
        [rollout("a\nbb"), rollout("ccc", rollout_id="r1")],
        url=model_server.url,
        api="steps",
        reduce="last",
    )
    assert [score.value for score in found] == [0.2, 0.3]
    [sent] = model_server.requests
    assert sent["inputs"][0] == {"prompt": "2 + 3 = ?", "steps": ["a", "bb"]}


def test_one_refused_row_does_not_cost_its_batch(model_server):
    def answer(sent: Any, number: int) -> Any:
        if any("too long" in text for text in sent["input"]):
            return 400, {"error": {"message": "too many tokens"}}
        return pooled(sent, number)

    model_server.answer = answer
    found = score_all(
        [rollout("a"), rollout("too long", rollout_id="r1"), rollout("bb", rollout_id="r2")],
        url=f"{model_server.url}/pooling",
        template=TEMPLATE,
    )
    assert [score.value for score in found] == [0.5, None, 0.25]
    assert "answered 400" in (found[1].error or "")


MALFORMED = [None, "x", "0", ["x"], ["0.5"], [None], [[0.5]], {"a": 1}, 0.5, [], [0.5, 0.5]]


@pytest.mark.parametrize("bad", [*MALFORMED, [math.nan], [2.0], [10**400]])
def test_a_malformed_row_costs_its_rollout_alone(model_server, bad):
    """Six rollouts in requests of four: the rest are scored, whatever the one is answered."""

    def answer(sent: Any, number: int) -> Any:
        rows = [bad if "bad" in i["steps"] else [0.5] * len(i["steps"]) for i in sent["inputs"]]
        return 200, {"scores": rows}

    model_server.answer = answer
    rollouts = [rollout(text, rollout_id=text) for text in ("a", "bad", "b\nc", "d", "e", "f")]
    options = {"url": model_server.url, "api": "steps", "batch_size": 4, "reduce": "sum"}
    found = score_all(rollouts, **options)
    assert [score.value for score in found] == [0.5, None, 1.0, 0.5, 0.5, 0.5]
    assert found[1].status is ScoreStatus.ERROR


@pytest.mark.parametrize("bad", [None, "x", ["x"], [None], {"a": 1}, 0.5, [], [["0.5", "0.5"]]])
def test_a_malformed_row_of_a_pooler_costs_its_rollout_alone(model_server, bad):
    def answer(sent: Any, number: int) -> Any:
        rows = [bad if "bad" in text else [[0.5, 0.5]] for text in sent["input"]]
        return 200, {"data": [{"index": n, "data": row} for n, row in enumerate(rows)]}

    model_server.answer = answer
    rollouts = [rollout(text, rollout_id=text) for text in ("a", "bad", "b")]
    found = score_all(rollouts, url=model_server.url, template=TEMPLATE)
    assert [score.value for score in found] == [0.5, None, 0.5]


def steps_of(sent: Any) -> list[list[float]]:
    return [[0.5] * len(item["steps"]) for item in sent["inputs"]]


@pytest.mark.parametrize(
    "whole",
    [
        (500, "oops"),
        (404, "no"),
        (200, {"scores": [[0.5]]}),
        (200, {"scores": {"0": [0.5]}}),
        (200, {"scores": "xxx"}),
        (200, {"error": "oops"}),
        (200, "<html>"),
        (200, None),
    ],
)
def test_an_answer_that_one_row_spoils_costs_that_row_alone(model_server, whole):
    def answer(sent: Any, number: int) -> Any:
        is_bad = any("bad" in item["steps"] for item in sent["inputs"])
        if is_bad and len(sent["inputs"]) == 1:
            return 500, "this one"
        return whole if is_bad else (200, {"scores": steps_of(sent)})

    model_server.answer = answer
    rollouts = [rollout(text, rollout_id=text) for text in ("a", "bad", "b")]
    options = {"url": model_server.url, "api": "steps", "retries": 1, "backoff_s": 0.01}
    found = score_all(rollouts, **options)
    assert [score.value for score in found] == [0.5, None, 0.5]
    assert "answered 500: this one (2 attempts)" in (found[1].error or "")


def test_a_row_at_which_the_server_hangs_costs_itself(model_server):
    def answer(sent: Any, number: int) -> Any:
        if any("bad" in item["steps"] for item in sent["inputs"]):
            model_server.released.wait(60)
        return 200, {"scores": steps_of(sent)}

    model_server.answer = answer
    rollouts = [rollout(text, rollout_id=text) for text in ("a", "bad", "b")]
    options = {"url": model_server.url, "api": "steps", "retries": 0, "request_timeout_s": 1.0}
    found = score_all(rollouts, **options)
    assert [score.value for score in found] == [0.5, None, 0.5]
    assert found[1].status is ScoreStatus.TIMEOUT


def test_where_nobody_listens_nobody_is_asked_alone(monkeypatch):
    from rlgym_llm_rewards.endpoint import Endpoint

    asked = []
    post = Endpoint._attempt

    async def attempt(self: Any, client: Any, payload: Any) -> Any:
        asked.append(len(payload["inputs"]))
        return await post(self, client, payload)

    monkeypatch.setattr(Endpoint, "_attempt", attempt)
    rollouts = [rollout(text, rollout_id=text) for text in ("a", "b", "c")]
    url = "http://127.0.0.1:1/"  # nothing listens on port 1
    found = score_all(rollouts, url=url, api="steps", retries=1, backoff_s=0.01)
    assert all("cannot be reached" in (score.error or "") for score in found)
    assert asked == [3, 3]


@pytest.mark.parametrize(
    "body", ["<html>", {"data": []}, {"data": [{"index": 0}]}, {"data": None}, [1], "null"]
)
def test_a_server_that_talks_nonsense(model_server, body):
    model_server.answer = lambda sent, number: (200, body)
    [found] = score_all([rollout("a")], url=f"{model_server.url}/pooling")
    assert found.status is ScoreStatus.ERROR
    assert model_server.url in (found.error or "")


def test_a_busy_server_is_asked_again(model_server):
    def answer(sent: Any, number: int) -> Any:
        return (503, "starting") if number < 2 else pooled(sent, number)

    model_server.answer = answer
    [found] = score_all([rollout("a")], url=f"{model_server.url}/pooling", backoff_s=0.01)
    assert (found.value, len(model_server.requests)) == (0.5, 3)


def test_a_server_keeps_the_contract(model_server):
    model_server.answer = lambda sent, number: (
        200,
        {"scores": [[1 / (1 + len(s)) for s in item["steps"]] for item in sent["inputs"]]},
    )
    scores = check_reward(PRM, short_probes(), options={"url": model_server.url, "api": "steps"})
    assert len({score.value for score in scores}) > 3
