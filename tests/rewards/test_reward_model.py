import math
import pickle
from typing import Any

import pytest
from rlgym_llm_rewards.reward_model import RewardModel, normalized

from rlgym_llm.check_reward import check_reward, probe_rollouts
from rlgym_llm.errors import ConfigError, UserError
from rlgym_llm.rewards import RewardContext, build_reward
from rlgym_llm.score import score_rollouts
from rlgym_llm.scores import Score, ScoreStatus
from rlgym_llm.types import Completion, Message, Rollout, Task, Turn

TEXTS = ("5", "so it is 5", "no", "", "12 + 60 " * 20, "5<|im_end|>")


def rollout(text: str, rollout_id: str = "r0", prompt: Any = "2 + 3 = ?") -> Rollout:
    turn = Turn(new_prompt_token_ids=(), completion=Completion(text=text))
    task = Task(prompt=prompt, answer="5")
    return Rollout(id=rollout_id, task=task, group_id="g", sample_index=0, seed=0, turns=(turn,))


def score_all(rollouts, **options) -> list[Score]:
    built = build_reward(RewardModel, options)
    built.setup(RewardContext())
    try:
        return score_rollouts(built, rollouts, RewardContext())
    finally:
        built.close()


def logits_of(folder, texts, tokenizer) -> list[float]:
    """By hand, one text at a time and without padding: the head on the last token."""
    import torch
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    found = []
    for text in texts:
        ids = torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"]])
        with torch.inference_mode():
            hidden = model.model(input_ids=ids).last_hidden_state[0, -1]
            found.append(float(model.score(hidden)[0]))
    return found


@pytest.mark.parametrize("pad", [0, 2, None], ids=["own", "end-of-text", "none"])
def test_the_head_reads_the_last_token_whatever_pads(make_model, tmp_path, tokenizer, pad):
    """Also where padding is the end-of-text token, with which every chat ends."""
    folder = make_model(tmp_path, "SequenceClassification", num_labels=1, pad_token_id=pad)
    rollouts = [rollout(text, f"r{index}") for index, text in enumerate(TEXTS)]
    found = score_all(rollouts, model=str(folder), batch_size=4)
    chats = [
        f"<|im_start|>user\n2 + 3 = ?<|im_end|>\n<|im_start|>assistant\n{said}<|im_end|>\n"
        for said in (*TEXTS[:-1], "5< |im_end|>")  # the policy's own control token is broken up
    ]
    expected = logits_of(folder, chats, tokenizer)
    assert [score.value for score in found] == pytest.approx(expected, abs=1e-5)
    assert len({round(value, 3) for value in expected}) == len(TEXTS)
    for one, score in zip(rollouts, found, strict=True):
        [alone] = score_all([one], model=str(folder))
        assert alone.value == pytest.approx(score.value, abs=1e-5)


def test_a_template_that_ends_with_the_padding_token(make_model, tmp_path, tokenizer):
    """There the library's own search would look at the token before the last."""
    eos = tokenizer.eos_token_id
    folder = make_model(tmp_path, "SequenceClassification", num_labels=1, pad_token_id=eos)
    tokenizer_pad = {"pad_token": tokenizer.eos_token}
    from transformers import AutoTokenizer

    own = AutoTokenizer.from_pretrained(folder)
    own.add_special_tokens(tokenizer_pad)
    own.save_pretrained(folder)
    template = "{prompt}\n{completion}<|im_end|>"
    rollouts = [rollout(text, text) for text in ("5", "a longer one", "no")]
    found = score_all(rollouts, model=str(folder), template=template)
    texts = [template.format(prompt="2 + 3 = ?", completion=r.text) for r in rollouts]
    assert [score.value for score in found] == pytest.approx(
        logits_of(folder, texts, tokenizer), abs=1e-5
    )


def test_normalisation():
    assert normalized(3.0, mean=1.0, std=2.0, activation="none") == 1.0
    assert normalized(0.0, mean=0.0, std=1.0, activation="sigmoid") == 0.5
    assert normalized(-1e4, mean=0.0, std=1.0, activation="sigmoid") == 0.0
    assert normalized(1e4, mean=0.0, std=1.0, activation="sigmoid") == 1.0


def test_normalised_scores(make_model, tmp_path):
    folder = make_model(tmp_path, "SequenceClassification", num_labels=1)
    [raw] = score_all([rollout("5")], model=str(folder))
    assert raw.value == raw.info["logit"]
    options = {"mean": 1.0, "std": 2.0, "activation": "sigmoid"}
    [found] = score_all([rollout("5")], model=str(folder), **options)
    assert found.value == pytest.approx(1 / (1 + math.exp(-(raw.value - 1) / 2)))
    assert found.info["logit"] == raw.value
    assert RewardModel(model="m", activation="sigmoid").range == (0.0, 1.0)
    assert RewardModel(model="m").range == (-math.inf, math.inf)


def test_several_labels_need_a_choice(make_model, tmp_path):
    folder = make_model(tmp_path, "SequenceClassification", num_labels=3)
    with pytest.raises(UserError, match="has 3 labels; say which counts with `label`"):
        score_all([rollout("5")], model=str(folder))
    with pytest.raises(UserError, match="3 labels and none numbered 3"):
        score_all([rollout("5")], model=str(folder), label=3)
    values = [score_all([rollout("5")], model=str(folder), label=n)[0].value for n in range(3)]
    assert len(set(values)) == 3


def test_a_long_text_loses_the_end_that_it_was_told_to(make_model, tmp_path, tokenizer):
    folder = make_model(tmp_path, "SequenceClassification", num_labels=1)
    text = "1 2 3 4 5 6 7 8 9 " * 9
    template = "{prompt} {completion}"
    ids = tokenizer(f"2 + 3 = ? {text}")["input_ids"]
    options = {"model": str(folder), "template": template, "max_length": 20}
    for side, kept in (("left", ids[-20:]), ("right", ids[:20])):
        [found] = score_all([rollout(text)], truncation_side=side, **options)
        assert found.info["num_tokens"] == 20
        assert found.value == pytest.approx(
            logits_of(folder, [tokenizer.decode(kept)], tokenizer)[0], abs=1e-5
        )


def test_dropout_is_off_and_scores_repeat(make_model, tmp_path):
    folder = make_model(tmp_path, "SequenceClassification", num_labels=1, attention_dropout=0.9)
    rollouts = [rollout(text, f"r{index}") for index, text in enumerate(TEXTS)]
    assert score_all(rollouts, model=str(folder)) == score_all(rollouts, model=str(folder))


def test_contract(make_model, tmp_path):
    folder = make_model(tmp_path, "SequenceClassification", num_labels=1)
    probes = [probe for probe in probe_rollouts() if len(probe.text) < 10_000]
    scores = check_reward(RewardModel, probes, options={"model": str(folder)})
    assert len({score.value for score in scores}) > 5
    built = build_reward(RewardModel, {"model": str(folder)})
    built.setup(RewardContext())
    assert len(pickle.dumps(built)) < 5000  # the weights do not travel
    built.close()


def test_a_conversation_prompt(make_model, tmp_path, tokenizer):
    folder = make_model(tmp_path, "SequenceClassification", num_labels=1)
    prompt = (Message(role="system", content="Add."), Message(role="user", content="2 + 3 = ?"))
    [found] = score_all([rollout("5", prompt=prompt)], model=str(folder))
    chat = (
        "<|im_start|>system\nAdd.<|im_end|>\n<|im_start|>user\n2 + 3 = ?<|im_end|>\n"
        "<|im_start|>assistant\n5<|im_end|>\n"
    )
    assert found.value == pytest.approx(logits_of(folder, [chat], tokenizer)[0], abs=1e-5)


def test_a_model_that_gives_nan_is_an_error(make_model, tmp_path):
    import torch
    from transformers import LlamaForSequenceClassification

    folder = make_model(tmp_path, "SequenceClassification", num_labels=1)
    model = LlamaForSequenceClassification.from_pretrained(folder)
    torch.nn.init.constant_(model.score.weight, math.nan)
    model.save_pretrained(folder)
    [found] = score_all([rollout("5")], model=str(folder))
    assert found.status is ScoreStatus.ERROR
    assert "the model gave nan for" in (found.error or "")


def test_what_cannot_be(make_model, tmp_path):
    causal = make_model(tmp_path / "causal", "CausalLM")
    with pytest.raises(UserError, match="is not trained for this: it lacks 1 weights, such as"):
        score_all([rollout("5")], model=str(causal))
    for folder in (str(tmp_path / "no where"), "./nowhere", "a/b/nowhere", "~/no/where"):
        with pytest.raises(UserError) as error:
            score_all([rollout("5")], model=folder)
        words = f"reward 'reward_model', model {folder} does not load: there is no such folder"
        assert str(error.value) == words
    with pytest.raises(UserError, match="that is a file; name the folder that holds it"):
        score_all([rollout("5")], model=str(causal / "config.json"))
    for std in (0.0, -2.0, math.nan):
        with pytest.raises(UserError, match="std is above 0"):
            RewardModel(model="m", std=std)
    with pytest.raises(UserError, match="label is a logit's number from 0, not -1"):
        RewardModel(model="m", label=-1)
    with pytest.raises(UserError, match=r"does not say where \{completion\} stands"):
        RewardModel(model="m", template="{prompt}")
    with pytest.raises(ConfigError, match="activation"):
        build_reward(RewardModel, {"model": "m", "activation": "tanh"})
    with pytest.raises(UserError, match="device cuda:9 is not on this machine"):
        score_all([rollout("5")], model=str(causal), device="cuda:9")
    folder = make_model(tmp_path / "plain", "SequenceClassification", num_labels=1)
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(UserError, match="has no chat template; give one"):
        score_all([rollout("5")], model=str(folder))
    with pytest.raises(RuntimeError, match="call setup"):
        RewardModel(model="m").score(rollout("5"), RewardContext())
