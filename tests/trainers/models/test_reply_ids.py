"""A reply's ids continue what was sampled, as the chat template would have written it.

Templates in the manner of ChatML, Qwen3, Llama 3 and Mistral, over one character tokenizer whose
special tokens are theirs: rendering and tokenizing are real, no weights are needed.
"""

from __future__ import annotations

import string
from dataclasses import dataclass, field

import pytest
from rlgym_llm_trainers.models.chat import prompt_ids, reply_ids
from rlgym_llm_trainers.models.detokenize import Detokenizer
from rlgym_llm_trainers.training.step_metrics import _drift_ratio, _failure_ratios
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from rlgym_llm.drift import extends
from rlgym_llm.errors import GeneratorError, UserError
from rlgym_llm.scores import CardStatus, ScoreCard
from rlgym_llm.types import Completion, Message, Rollout, Task, Turn

CHATML = (
    "{% for m in messages %}{% if loop.first and m.role != 'system' %}<|im_start|>system\nBe kind."
    "<|im_end|>\n{% endif %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Thinking shows in the last assistant turn only, and that turn always has a block of it.
QWEN3 = (
    "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' %}"
    "{% set said = m.content.split('</think>')[-1].lstrip('\n') %}"
    "{% if loop.last %}<think>\n\n</think>\n\n{% endif %}{{ said }}"
    "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA3 = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{{ m.content | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
# Wants turns to alternate, and a call before its result; its end of text follows answers only.
MISTRAL = (
    "{{ bos_token }}{% set ns = namespace(due='user') %}{% for m in messages %}"
    "{% if m.role == 'user' %}{% if ns.due != 'user' %}{{ raise_exception('must alternate') }}"
    "{% endif %}{% set ns.due = 'assistant' %}[INST] {{ m.content }}[/INST]"
    "{% elif m.role == 'assistant' and m.tool_calls %}[TOOL_CALLS][{% for c in m.tool_calls %}"
    '{"name": "{{ c.function.name }}", "arguments": {}, "id": "{{ c.id }}"}{% endfor %}]'
    "{{ eos_token }}{% set ns.due = 'tool' %}"
    "{% elif m.role == 'assistant' %}{% if ns.due != 'assistant' %}"
    "{{ raise_exception('must alternate') }}{% endif %} {{ m.content }}{{ eos_token }}"
    "{% set ns.due = 'user' %}"
    "{% elif m.role == 'tool' %}{% if ns.due != 'tool' %}{{ raise_exception('no call') }}"
    "{% endif %}"
    '[TOOL_RESULTS]{"content": "{{ m.content }}"}[/TOOL_RESULTS]'
    "{% set ns.due = 'assistant' %}"
    "{% else %}{{ raise_exception('unknown role ' ~ m.role) }}{% endif %}{% endfor %}"
)
SPECIAL = [
    *("<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|begin_of_text|>"),
    *("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "[INST]", "[/INST]"),
    *("[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of model: its template, and the tokens it begins and ends with."""

    template: str
    bos: str | None = None
    eos: str = "<|im_end|>"
    ends: tuple[str, ...] = field(default=())

    def tokenizer(self) -> PreTrainedTokenizerFast:
        vocabulary = {token: i for i, token in enumerate([*SPECIAL, *string.printable])}
        core = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
        core.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
        core.decoder = decoders.Fuse()
        core.add_special_tokens(SPECIAL)
        if self.bos:
            core.post_processor = processors.TemplateProcessing(
                single=f"{self.bos} $A", special_tokens=[(self.bos, vocabulary[self.bos])]
            )
        return PreTrainedTokenizerFast(
            tokenizer_object=core,
            bos_token=self.bos,
            eos_token=self.eos,
            chat_template=self.template,
        )

    def end_ids(self, tokenizer: PreTrainedTokenizerFast) -> list[int]:
        return tokenizer.convert_tokens_to_ids([*(self.ends or (self.eos,))])


KINDS = {
    "chatml": Kind(template=CHATML, ends=("<|endoftext|>", "<|im_end|>")),
    "qwen3": Kind(template=QWEN3, ends=("<|endoftext|>", "<|im_end|>")),
    "llama3": Kind(template=LLAMA3, bos="<|begin_of_text|>", eos="<|eot_id|>"),
    "mistral": Kind(template=MISTRAL, bos="<s>", eos="</s>"),
}


def message(role: str, content: str, **fields: object) -> Message:
    return Message(role=role, content=content, **fields)


def sampled_ids(tokenizer, text, end):
    return (
        *tokenizer(text, add_special_tokens=False)["input_ids"],
        tokenizer.convert_tokens_to_ids(end),
    )


def play(kind: Kind, *turns: tuple[str, str]):
    """Contexts after the prompt and after every reply, with the ids and masks of the whole."""
    tokenizer = kind.tokenizer()
    context = list(prompt_ids(tokenizer, (message("user", "2 + 3?"),), path="m"))
    mask = [False] * len(context)
    contexts = [list(context)]
    for said, answered in turns:
        sampled = sampled_ids(tokenizer, said, kind.eos)
        added = reply_ids(
            tokenizer,
            [message("user", answered)],
            eos_token_ids=kind.end_ids(tokenizer),
            path="m",
        )
        context += [*sampled, *added]
        mask += [True] * len(sampled) + [False] * len(added)
        contexts.append(list(context))
    return tokenizer, contexts, mask


@pytest.mark.parametrize("name", KINDS)
def test_the_context_is_what_the_template_renders(name):
    said = "It is 5." if name != "mistral" else " It is 5."  # where the answer brings the blank
    tokenizer, contexts, mask = play(KINDS[name], (said, "Sure?"), ("Yes.", "Why?"))
    messages = [
        {"role": "user", "content": "2 + 3?"},
        {"role": "assistant", "content": "It is 5."},
        {"role": "user", "content": "Sure?"},
    ]
    whole = tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
    assert contexts[1] == whole
    assert extends(contexts[1], contexts[2]), "what was said stays"
    num_sampled = len(said) + 1 + len("Yes.") + 1  # a token a character, and an end each
    assert sum(mask) == num_sampled


def test_thinking_that_the_template_strips_stays_in_the_context():
    kind = KINDS["qwen3"]
    thought = "<think>\nadd\n</think>\n\n5"
    tokenizer, contexts, mask = play(kind, (thought, "Sure?"))
    rendered = tokenizer.apply_chat_template(
        [
            {"role": "user", "content": "2 + 3?"},
            {"role": "assistant", "content": thought},
            {"role": "user", "content": "Sure?"},
        ],
        add_generation_prompt=True,
    )["input_ids"]
    first = contexts[0] + list(sampled_ids(tokenizer, thought, "<|im_end|>"))
    assert not extends(first, rendered), "the template does rewrite the turn"
    assert extends(first, contexts[1])
    tail = "\n<|im_start|>user\nSure?<|im_end|>\n<|im_start|>assistant\n"
    assert contexts[1][len(first) :] == tokenizer(tail)["input_ids"]
    assert sum(mask) == len(thought) + 1


def test_a_generation_prompt_that_opens_thinking_is_part_of_the_reply():
    kind = Kind(template=QWEN3.replace("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}"))
    tokenizer = kind.tokenizer()
    ids = reply_ids(
        tokenizer, [message("user", "Go on.")], eos_token_ids=kind.end_ids(tokenizer), path="m"
    )
    assert tokenizer.decode(ids).endswith("<|im_start|>assistant\n<think>\n")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("chatml", "\n<|im_start|>tool\n5<|im_end|>\n<|im_start|>assistant\n"),
        ("llama3", "<|start_header_id|>tool<|end_header_id|>\n\n5<|eot_id|>"
         "<|start_header_id|>assistant<|end_header_id|>\n\n"),
        ("mistral", '[TOOL_RESULTS]{"content": "5"}[/TOOL_RESULTS]'),
    ],
)  # fmt: skip
def test_a_tool_result_follows_its_call(name, text):
    tokenizer = KINDS[name].tokenizer()
    ids = reply_ids(
        tokenizer,
        [message("tool", "5", tool_call_id="abcdefghi")],
        eos_token_ids=KINDS[name].end_ids(tokenizer),
        path="m",
    )
    assert ids == tuple(tokenizer(text, add_special_tokens=False)["input_ids"])


def test_what_a_reply_says_is_not_mistaken_for_the_end_of_the_turn():
    # A template without an end of text behind answers: nothing of the reply may be cut.
    plain = Kind(
        template="{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    tokenizer = plain.tokenizer()
    ids = reply_ids(
        tokenizer,
        [message("user", "say <|im_end|> now")],
        eos_token_ids=plain.end_ids(tokenizer),
        path="m",
    )
    assert tokenizer.decode(ids) == "\nuser: say <|im_end|> now\nassistant: "


def test_a_reply_that_holds_the_placeholder_is_kept_whole():
    tokenizer = KINDS["chatml"].tokenizer()
    content = "sampled-turn and sampled-turn-"
    ids = reply_ids(
        tokenizer,
        [message("user", content)],
        eos_token_ids=KINDS["chatml"].end_ids(tokenizer),
        path="m",
    )
    assert (
        tokenizer.decode(ids) == f"\n<|im_start|>user\n{content}<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    ("template", "reply", "says"),
    [
        (
            MISTRAL,
            message("system", "5"),
            "a reply of system to a sampled turn: unknown role system",
        ),
        ("{{ messages[-1].content }}", message("user", "5"), "it does not show what the assistant"),
    ],
)
def test_a_template_without_a_place_for_the_reply_is_one_clear_line(template, reply, says):
    kind = Kind(template=template, bos="<s>", eos="</s>")
    tokenizer = kind.tokenizer()
    with pytest.raises(GeneratorError, match=says) as caught:
        reply_ids(tokenizer, [reply], eos_token_ids=kind.end_ids(tokenizer), path="tiny")
    assert "\n" not in str(caught.value)
    assert "tiny" in str(caught.value)


def test_tools_stand_in_the_opening_prompt_or_it_is_an_error():
    tools = ({"type": "function", "function": {"name": "add", "parameters": {}}},)
    prompt = (message("user", "2 + 3?"),)
    tokenizer = KINDS["qwen3"].tokenizer()
    shown = tokenizer.decode(prompt_ids(tokenizer, prompt, tools, path="m"))
    assert '"name": "add"' in shown
    assert '"add"' not in tokenizer.decode(prompt_ids(tokenizer, prompt, path="m"))
    with pytest.raises(UserError, match="--model m: its chat template does not show tools"):
        prompt_ids(KINDS["llama3"].tokenizer(), prompt, tools, path="m")


@pytest.mark.parametrize("name", ["llama3", "mistral"])
def test_a_prompt_begins_with_one_bos(name):
    kind = KINDS[name]
    tokenizer = kind.tokenizer()
    bos = tokenizer.bos_token_id
    for prompt in ((message("user", "hi"),), "hi", f"{kind.bos}hi"):
        ids = prompt_ids(tokenizer, prompt, path="m")
        assert (ids[0], ids.count(bos)) == (bos, 1)


def test_raw_text_keeps_the_markers_that_text_leaves_out(policy):
    tokenizer = policy.tokenizer
    tokenizer.add_special_tokens({"additional_special_tokens": ["<t>"]})
    marked = tokenizer.convert_tokens_to_ids(["<t>", "5", "<eos>"])
    detokenize = Detokenizer(tokenizer, policy.eos_token_ids)
    (text, raw), (plain, none) = detokenize([marked, marked[1:]])
    assert (text.strip(), raw.replace(" ", "")) == ("5", "<t>5")
    assert (plain, none) == ("5", None), "the closing end alone is no marker"
    assert detokenize([]) == []


def test_failures_and_drift_of_a_step_are_metrics():
    task = Task(prompt="?")

    def rollout(status, ids=(3,)):
        completion = Completion(text="ab", token_ids=ids)
        return Rollout(
            id=status,
            task=task,
            group_id="g",
            sample_index=0,
            seed=0,
            turns=(Turn(new_prompt_token_ids=(1,), completion=completion),),
            status=status,
            error=None if status == "ok" else "it failed",
        )

    rollouts = [rollout("ok"), rollout("ok", (1, 2)), rollout("timeout"), rollout("tool_error")]
    cards = [
        ScoreCard(rollout_id=one.id, reward=None, status=status, components={}, error="no score")
        for one, status in zip(
            rollouts,
            map(CardStatus, ["failed_reward", "masked", "failed_rollout", "failed_rollout"]),
            strict=True,
        )
    ]
    found = {**_failure_ratios(rollouts, cards), **_drift_ratio(rollouts, {"ab": (3,)}.__getitem__)}
    assert found == {
        "rollout/failed_ratio/environment": 0.0,
        "rollout/failed_ratio/generator": 0.0,
        "rollout/failed_ratio/reward": 0.25,
        "rollout/failed_ratio/tool": 0.25,
        "rollout/failed_ratio/timeout": 0.25,
        "rollout/retokenization_drift_ratio": 0.25,  # (1, 2) encodes to (3,)
    }
