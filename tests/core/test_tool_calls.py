"""parse_tool_calls: what models of each family write, what is broken, and that it never raises."""

import json
import typing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlgym_llm import UserError
from rlgym_llm.tools.parse import ToolStyle, parse_tool_calls, write_tool_calls
from rlgym_llm.tools.tool_call import MOST_CALLS, ToolCall

STYLES = typing.get_args(ToolStyle)
ADD = {"a": 2, "b": [1.5, "x"]}
TEXTS = {
    "hermes": '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": [1.5, "x"]}}\n</tool_call>',
    "llama3": '<|python_tag|>{"name": "add", "parameters": {"a": 2, "b": [1.5, "x"]}}',
    "mistral": '[TOOL_CALLS] [{"name": "add", "arguments": {"a": 2, "b": [1.5, "x"]}}]',
    "deepseek": (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>"
        '{"a": 2, "b": [1.5, "x"]}<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
    ),
    "pythonic": "[add(a=2, b=[1.5, 'x'])]",
    "xml": (
        "<tool_call>\n<function=add>\n<parameter=a>\n2\n</parameter>\n<parameter=b>\n"
        '[1.5, "x"]\n</parameter>\n</function>\n</tool_call>'
    ),
    "json": '{"name": "add", "arguments": {"a": 2, "b": [1.5, "x"]}}',
}
OTHER_FORMS = [
    ("hermes", TEXTS["hermes"].removesuffix("</tool_call>")),
    ("hermes", '<tool_call>{"name": "add", "arguments": "{\\"a\\": 2, \\"b\\": [1.5, \\"x\\"]}"}'),
    ("hermes", '<tool_call>[{"function": {"name": "add", "arguments": ' + json.dumps(ADD) + "}}]"),
    ("llama3", TEXTS["llama3"].removeprefix("<|python_tag|>") + "<|eot_id|>"),
    ("llama3", '{"type": "function", "name": "add", "parameters": ' + json.dumps(ADD) + "}"),
    ("mistral", "[TOOL_CALLS]add[ARGS]" + json.dumps(ADD) + "</s>"),
    ("mistral", "[TOOL_CALLS]add" + json.dumps(ADD)),
    (
        "deepseek",
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n"
        + json.dumps(ADD)
        + "\n```<｜tool▁call▁end｜><｜end▁of▁sentence｜>",
    ),
    ("pythonic", '[\n  add(\n    a = +2,\n    b = (1.5, "x",),\n  )\n]<|eot|>'),
    ("json", "```json\n" + TEXTS["json"] + "\n```"),
    ("json", "```\n[" + TEXTS["json"] + "]\n```"),
    ("json", '{"tool_calls": [{"function": ' + TEXTS["json"] + "}]}"),
]


def arguments_of(text, style):
    _, calls = parse_tool_calls(text, style=style)
    return [(call.name, call.arguments, call.error) for call in calls]


@pytest.mark.parametrize("style", TEXTS)
def test_what_a_family_writes(style):
    outside, calls = parse_tool_calls(f"Let me see.\n\n{TEXTS[style]}", style=style)
    if style == "json":  # text before it makes it no call
        assert calls == ()
        outside, calls = parse_tool_calls(f"Let me see.\n```json\n{TEXTS[style]}\n```", style=style)
    assert outside == "Let me see."
    assert calls == (ToolCall(id="call00000", name="add", arguments=ADD),)
    assert parse_tool_calls(TEXTS[style], style=style) == ("", calls)
    assert parse_tool_calls(TEXTS[style]) == ("", calls)  # auto


@pytest.mark.parametrize(("style", "text"), OTHER_FORMS)
def test_other_forms(style, text):
    assert arguments_of(text, style) == [("add", ADD, None)]
    assert arguments_of(text, "auto") == [("add", ADD, None)]


def test_a_models_own_id_is_kept():
    text = '[TOOL_CALLS][{"name": "a", "id": "D681PevKs"}, {"name": "b"}]'
    assert [call.id for call in parse_tool_calls(text)[1]] == ["D681PevKs", "call00001"]
    text = "[TOOL_CALLS]a[CALL_ID]VvvODy9mT[ARGS]{}"
    assert [call.id for call in parse_tool_calls(text)[1]] == ["VvvODy9mT"]


def test_llama_parts_calls_by_semicolons():
    text = (
        '<|python_tag|>{"name": "a", "parameters": {}}; {"name": "b", "parameters": {}}<|eom_id|>'
    )
    assert [call.name for call in parse_tool_calls(text)[1]] == ["a", "b"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "#### 72",
        "2 < 3 and [1, 2] are {what they are}",
        '{"answer": 5}',
        '{"name": "Ann"}',
        "[1, 2, 3]",
        "[see(3)] for more",
        "f(x) = 3",
        "```python\nprint(1)\n```",
        '```json\n{"answer": 5}\n```',
    ],
)
def test_text_without_calls_stays_as_it_is(text):
    assert parse_tool_calls(text) == (text, ())


@pytest.mark.parametrize(
    ("style", "text", "error"),
    [
        ("hermes", '<tool_call>{"name": "a"', "the call is not valid JSON"),
        ("hermes", "<tool_call>{'name': 'a'}</tool_call>", "in double quotes at character 1"),
        ("hermes", "<tool_call></tool_call>", "the call is not valid JSON"),
        ("hermes", "<tool_call>", "nothing stands there"),
        ("hermes", '<tool_call>{"name": "a"}} </tool_call>', "text stands behind the object"),
        ("hermes", "<tool_call>5</tool_call>", 'a call is an object with "name"'),
        ("hermes", '<tool_call>{"name": 5}</tool_call>', '"name" must be a string'),
        ("hermes", '<tool_call>{"name": "a", "arguments": [1]}', '"arguments" must be an object'),
        ("hermes", '<tool_call>{"name": "a", "arguments": "{"}', '"arguments" is not valid JSON'),
        ("hermes", '<tool_call>{"name": "a", "arguments": {"x": NaN}}', "NaN is not JSON"),
        ("hermes", '<tool_call>{"name": "a", "arguments": {"x": 1e999}}', "too large"),
        ("hermes", "<tool_call>" + "[" * 200 + "]" * 200, "nested too deeply"),
        ("hermes", "<tool_call>" + "[" * 100_000, "nested too deeply"),
        ("hermes", "<tool_call>" + "9" * 5000, "limit"),
        ("llama3", "<|python_tag|>print(1)", "not valid JSON"),
        ("llama3", '{"name": "a", "parameters": {', "not valid JSON"),
        ("mistral", "[TOOL_CALLS]a[ARGS]{", "not valid JSON"),
        ("mistral", "[TOOL_CALLS]", "not valid JSON"),
        ("deepseek", "<｜tool▁call▁begin｜>a", "a call is a name"),
        ("deepseek", "<｜tool▁call▁begin｜>a<｜tool▁sep｜>{", "not valid JSON"),
        ("pythonic", "[add(2)]", "write every argument as name=value"),
        ("pythonic", "[add(a=b)]", "expecting a literal value, not 'b'"),
        ("pythonic", "[add(a=1, a=2)]", "given twice"),
        ("pythonic", "[add(a=1)", "expecting ']', not the end"),
        ("pythonic", "[add(a=f'{1}')]", "no prefix 'f'"),
        ("pythonic", "[add(a={1: 2})]", "the keys of a mapping are strings"),
        ("pythonic", "[add(a=" + "[" * 200, "nested too deeply"),
        ("xml", "<function=a", "tag is not closed"),
        ("xml", "<function=a><parameter=b>2</function>", "parameter's tag is not closed"),
        ("xml", "<function=a>b</function>", "text stands between"),
        ("json", '{"name": "a", "arguments": {', "not valid JSON"),
    ],
)
def test_a_broken_call_says_what_is_wrong(style, text, error):
    _, calls = parse_tool_calls(text, style=style)
    assert len(calls) == 1
    assert error in calls[0].error


def test_a_broken_call_does_not_hide_the_next():
    text = '<tool_call>{"name": <tool_call>{"name": "b"}</tool_call> <tool_call>{</tool_call> end'
    outside, calls = parse_tool_calls(text)
    assert [(call.name, call.error is None) for call in calls] == [
        ("", False),
        ("b", True),
        ("", False),
    ]
    assert outside == "end"


def test_marks_inside_a_string_are_text():
    text = json.dumps({"name": "say", "arguments": {"x": "</tool_call><tool_call>{ [TOOL_CALLS]"}})
    _, calls = parse_tool_calls(f"<tool_call>{text}</tool_call>")
    assert [call.arguments["x"] for call in calls] == ["</tool_call><tool_call>{ [TOOL_CALLS]"]


@pytest.mark.parametrize(
    ("text", "names", "outside"),
    [
        ("<think>{call}</think>{call}", ["add"], "<think>{call}</think>"),
        ("I could {call}</think>No.", [], "I could {call}</think>No."),
        ("<think>{call}", [], "<think>{call}"),
        ("<think>\n\n</think>\n\n{call}<|im_end|>", ["add"], "<think>\n\n</think>"),
    ],
)
def test_what_is_thought_is_no_call(text, names, outside):
    text, outside = (part.replace("{call}", TEXTS["hermes"]) for part in (text, outside))
    found, calls = parse_tool_calls(text)
    assert ([call.name for call in calls], found) == (names, outside)


def test_at_most_64_calls_are_read():
    one = write_tool_calls([ToolCall(name="a")])
    outside, calls = parse_tool_calls(one * (MOST_CALLS + 2))
    assert (len(calls), outside) == (MOST_CALLS, one * 2)
    assert len(parse_tool_calls("<tool_call>" + json.dumps([{"name": "a"}] * 1000))[1]) == 64


@pytest.mark.parametrize(
    "piece", ["<tool_call>", "<function=", "[TOOL_CALLS]", "</s>", "[f(a=", " "]
)
def test_a_megabyte_of_marks_is_gone_through_once(piece):
    text = "<tool_call>" + piece * (1_000_000 // len(piece))
    outside, calls = parse_tool_calls(text)
    assert 1 <= len(calls) <= MOST_CALLS
    assert all(call.error for call in calls)
    assert len(outside) < len(text)


def test_values_of_xml_are_json_where_they_are_written_so():
    values = {"a": "007", "b": "7", "c": "1e3", "d": "true", "e": '"7"', "f": "x\ny", "g": "[1"}
    inner = "".join(f"<parameter={key}>\n{value}\n</parameter>" for key, value in values.items())
    assert arguments_of(f"<function=f>{inner}</function>", "xml")[0][1] == {
        **values,
        "b": 7,
        "d": True,
        "e": "7",
    }


def test_pythons_literals():
    text = (
        r"[f(a=-1_000, b=.5, c=1e2, d=True, e=null, g='\n\x41\u00e9\'\q', h=r'\n', i={'k': [()]})]"
    )
    assert arguments_of(text, "pythonic")[0][1] == {
        "a": -1000,
        "b": 0.5,
        "c": 100.0,
        "d": True,
        "e": None,
        "g": "\nAé'\\q",
        "h": "\\n",
        "i": {"k": [[]]},
    }


@pytest.mark.parametrize(
    "reader", [parse_tool_calls, lambda _, style: write_tool_calls([], style=style)]
)
def test_an_unknown_style_is_refused(reader):
    with pytest.raises(UserError, match="unknown tool style 'hermse'; did you mean 'hermes'"):
        reader("", style="hermse")


def values(text):
    leaf = st.none() | st.booleans() | st.integers() | text
    leaf |= st.floats(allow_nan=False, allow_infinity=False)
    return leaf | st.lists(leaf, max_size=3) | st.dictionaries(text, leaf, max_size=2)


names = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
marks = st.sampled_from(
    ["</tool_call>", "</think>", "<think>", '"', "'", "\\", "</parameter>", "\n", "<function=", "]"]
)
strings = st.lists(marks | st.text(max_size=5), max_size=4).map("".join)
calls = st.builds(
    ToolCall, name=names, arguments=st.dictionaries(names, values(strings), max_size=3)
)


@pytest.mark.parametrize("style", STYLES)
@settings(max_examples=60)
@given(asked=st.lists(calls, min_size=1, max_size=3), text=st.sampled_from(["", "I look it up."]))
def test_what_is_written_is_read_back(style, asked, text):
    written = write_tool_calls(asked, style=style)
    outside, found = parse_tool_calls(f"{text}\n{written}", style=style)
    assert outside == text
    assert [(call.name, call.arguments, call.error) for call in found] == [
        (call.name, call.arguments, None) for call in asked
    ]


PIECES = (
    *("<tool_call>", "</tool_call>", '{"name": "a", "arguments": {}}', "{", "}", "[", "]", '"'),
    *("[TOOL_CALLS]", "[ARGS]", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),
    *("<|python_tag|>", "<function=", "<parameter=", ">", "</parameter>", "</function>", "'"),
    *("```json\n", "[f(", "a=", "1", ",", ")", "\\", "\n", " ", "<think>", "</think>", "\ud800"),
    *("</s>", ";", "é"),
)


@pytest.mark.parametrize("style", STYLES)
@settings(max_examples=60)
@given(text=st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_no_text_makes_it_raise(style, text):
    outside, found = parse_tool_calls(text, style=style)
    assert len(found) <= MOST_CALLS
    if not found:
        assert text.startswith(outside)
    for call in found:
        json.dumps(call.to_dict())
        assert call.id
