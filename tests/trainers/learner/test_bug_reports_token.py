"""Public bug reports about tokens, each with its own values."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rlgym_llm_trainers.learner.sample import sample_from_rollout
from rlgym_llm_trainers.models.chat import prompt_ids, reply_ids
from rlgym_llm_trainers.training.preparation import fitting_tasks
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from rlgym_llm.compose import RewardComposer
from rlgym_llm.config_schema import DataConfig, TrainConfig
from rlgym_llm.drift import extends, has_drift
from rlgym_llm.env import TextEnv, TurnOutcome
from rlgym_llm.generate import SamplingParams
from rlgym_llm.plugins import Plugins
from rlgym_llm.reward_config import read_rewards
from rlgym_llm.rollout import EpisodeSpec, run_episodes
from rlgym_llm.scripted_generator import ScriptedGenerator
from rlgym_llm.tasks import ListTasks
from rlgym_llm.types import Completion, FinishReason, Message, Task

pytestmark = pytest.mark.data
PARAMS = SamplingParams(max_new_tokens=16)


class Words:
    """A generator of tokens as the cases have them: whole words and pieces, under given ids."""

    policy_version = 0

    def __init__(self, prompts, replies, sampled):
        self.prompts, self.replies, self.sampled = prompts, replies, list(sampled)
        self.requests = []

    def encode_prompt(self, prompt, tools=()):
        return self.prompts[prompt]

    def encode_reply(self, reply, tools=()):
        return self.replies[reply[0].content]

    def generate(self, requests):
        self.requests += requests
        return [self._completion(*self.sampled.pop(0)) for _ in requests]

    def close(self):
        pass

    def _completion(self, text, ids):
        return Completion(
            text=text,
            token_ids=ids,
            logprobs=(-0.5,) * len(ids),
            version_spans=((0, len(ids), 0),),
            finish_reason=FinishReason.STOP,
        )


class TwoTurns(TextEnv):
    """Replies once."""

    def advance(self, action):
        if self.turns:
            return TurnOutcome(terminated=True)
        return TurnOutcome(reply=(Message(role="user", content="more"),))


def play(generator, task, **limits):
    spec = EpisodeSpec(id="r", task=task, group_id="g", sample_index=0, seed=0)
    make = lambda: TwoTurns(tasks=ListTasks([task]), max_turns=None)  # noqa: E731
    return run_episodes([spec], make_env=make, generator=generator, params=PARAMS, **limits)[0]


def test_double_bos(bug_report):
    case = bug_report("token-double_bos")
    given, right = case["input"], case["right"]["values"]["ids"]
    bos, begin, hi = given["bos_id"], *right[1:]
    core = Tokenizer(models.WordLevel({"?": 0, "<s>": bos, "[user]": begin, "hi": hi}, "?"))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(r"\s+"), behavior="removed")
    core.add_special_tokens(["<s>"])
    core.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", bos)]
    )
    template = "{{ bos_token }}{% for m in messages %}[user] {{ m.content }}{% endfor %}"
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<s>", chat_template=template
    )
    assert tokenizer(given["rendered"])["input_ids"] == given["ids"], "the trap is there"
    conversation = (Message(role="user", content="hi"),)
    for prompt in (given["rendered"], "[user] hi", conversation):
        assert list(prompt_ids(tokenizer, prompt, path="m")) == right


def test_retokenisation_drift(bug_report):
    case = bug_report("token-retokenisation_drift")
    given, right = case["input"], case["right"]["values"]
    sampled = tuple(given["sampled_ids"])
    text = given["text"]
    generator = Words({"q": (7,)}, {"more": (8,)}, [(text, sampled), (text, sampled)])
    rollout = play(generator, Task(prompt="q"))
    sample = sample_from_rollout(rollout)
    trained = [id_ for id_, is_on in zip(sample.token_ids, sample.loss_mask, strict=True) if is_on]
    assert trained == right["train_ids"] * 2
    assert generator.requests[1].prompt_token_ids == (7, *sampled, 8)

    def encode(words):
        ids = []
        while words:  # the longest piece first, as a tokenizer merges
            piece = max((one for one in given["vocab"] if words.startswith(one)), key=len)
            ids.append(given["vocab"][piece])
            words = words[len(piece) :]
        return ids

    assert encode(text) == case["right"]["known_wrong"]["train_ids"]
    assert has_drift(encode, rollout.turns[0].completion) is right["drift_detected"]
    faithful = Completion(text=text, token_ids=(*encode(text), 0))  # and its end of text
    assert not has_drift(encode, faithful)


def test_thinking_stripped_history(bug_report):
    case = bug_report("token-thinking_stripped_history")
    first, rendered = case["input"]["turn1_tokens"], case["input"]["turn2_rendered"]
    assert extends(first, rendered) is case["right"]["values"]["is_prefix"]
    # Append-only: the ids of turn 1 stay as they were sampled, whatever a template makes of them.
    ids = {token: place for place, token in enumerate(["U1", "<t>", "why", "</t>", "A1", "U2"], 1)}
    said = tuple(ids[token] for token in first[1:])
    generator = Words({"q": (ids["U1"],)}, {"more": (ids["U2"],)}, [("A1", said), ("A2", (9,))])
    sample = sample_from_rollout(play(generator, Task(prompt="q")))
    assert sample.token_ids == (*(ids[token] for token in first), ids["U2"], 9)
    assert extends([ids[token] for token in first], sample.token_ids)
    # Trained: the why-block and A1, then A2; neither U1 nor U2.
    assert sample.loss_mask == (False, *[True] * 4, False, True)


def test_skip_special_in_prompt_roundtrip(bug_report):
    case = bug_report("token-skip_special_in_prompt_roundtrip")
    prompt = tuple(case["input"]["prompt_ids"])
    for limits in ({}, {"max_prompt_tokens": case["input"]["max_prompt_length"]}):
        generator = Words({"q": prompt}, {"more": (5,)}, [("a", (1,)), ("b", (2,))])
        rollout = play(generator, Task(prompt="q"), **limits)
        assert list(generator.requests[0].prompt_token_ids) == case["right"]["values"]["ids"]
        assert list(rollout.turns[0].new_prompt_token_ids) == case["right"]["values"]["ids"]


def test_left_truncation_drops_system(bug_report):
    case = bug_report("token-left_truncation_drops_system")
    longest, right = case["input"]["max_prompt_len"], case["right"]["values"]
    too_long = tuple(case["input"]["prompt_ids"])
    prompts = {"long": too_long, "fits": too_long[:longest]}
    tasks = [Task(prompt=name) for name in prompts]
    assert right["action"] == "filtered"

    config = TrainConfig(data=DataConfig(max_prompt_length=longest))
    notes = []
    kept = fitting_tasks(config, tasks, Words(prompts, {}, []), notes.append)
    assert [task.prompt for task in kept] == ["fits"]
    assert notes == [f"{right['count']} training tasks left out: prompt over {longest} tokens"]

    # What a runner meets all the same is left out as well: whole or not at all.
    for task in tasks:
        generator = Words(prompts, {"more": (5,)}, [("a", (1,)), ("b", (2,))])
        rollout = play(generator, task, max_prompt_tokens=longest)
        was_filtered = rollout.truncated and not rollout.turns
        assert was_filtered == (task.prompt == "long")
        sent = [request.prompt_token_ids for request in generator.requests[:1]]
        assert sent == ([] if was_filtered else [prompts["fits"]])


def test_per_message_rendering(bug_report):
    case = bug_report("token-per_message_rendering")
    # A token a character, the newline ends a turn, and a default system block of 11 stands before
    # a conversation that has none.
    vocabulary = {character: place for place, character in enumerate("\nacdefglmnostuy_")}
    core = Tokenizer(models.WordLevel(vocabulary, "_"))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    core.decoder = decoders.Fuse()
    template = (
        "{% if messages[0].role != 'system' and messages[0].role != 'assistant' %}"
        "{{ 'sdefault__\\n' }}{% endif %}"
        "{% for m in messages %}{{ m.role[0] }}{{ m.content }}{{ '\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}a{% endif %}"
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="\n", chat_template=template
    )
    messages = [Message(role=role, content="encodeds") for role in case["input"]["messages"]]

    def rendered(some):
        dictionaries = [message.to_dict() for message in some]
        return tokenizer.apply_chat_template(dictionaries, return_dict=True)["input_ids"]

    alone = sum(len(rendered([message])) for message in messages)
    assert alone == case["input"]["sum_of_single_lens"] == case["right"]["known_wrong"]["len"]

    end = tokenizer.eos_token_id
    answer = (*tokenizer("encodeds")["input_ids"], end)
    opening = prompt_ids(tokenizer, tuple(messages[:2]), path="m")
    more = reply_ids(tokenizer, [messages[1]], eos_token_ids=[end], path="m")
    generator = Words({"q": opening}, {"more": more}, [("", answer), ("", answer)])
    rollout = play(generator, Task(prompt="q"))
    first = sample_from_rollout(replace(rollout, turns=rollout.turns[:1]))
    assert list(first.token_ids) == rendered(messages)
    assert first.num_tokens == case["right"]["values"]["len"]
    assert first.loss_mask == (False,) * len(opening) + (True,) * len(answer)
    whole = sample_from_rollout(rollout)
    assert list(whole.token_ids) == rendered([*messages, messages[1], messages[2]])
    assert whole.num_trained_tokens == 2 * len(answer)


def test_prompt_scored_with_response(bug_report):
    case = bug_report("token-prompt_scored_with_response")
    given, right = case["input"], case["right"]["values"]
    tasks = [Task(prompt=given["prompt"], id=name) for name in ("response", "example")]
    example = given["prompt"].removeprefix("Reply like ")
    specs = [
        EpisodeSpec(id=task.id, task=task, group_id=task.id, sample_index=0, seed=0)
        for task in tasks
    ]
    rollouts = run_episodes(
        specs,
        make_env=lambda: TextEnv(tasks=ListTasks(tasks)),
        generator=ScriptedGenerator([given["response"], example]),
        params=SamplingParams(max_new_tokens=64),
    )
    rewards = {"components": {"format": {"reward": "format", "options": {"style": "think_answer"}}}}
    with RewardComposer(read_rewards(rewards), Plugins.discover()) as composer:
        cards = composer(rollouts)
    assert cards[0].components["format"].raw == right["format"]
    earned = cards[1].components["format"].raw
    assert earned == case["right"]["known_wrong"]["format"], "whoever writes it earns it"
