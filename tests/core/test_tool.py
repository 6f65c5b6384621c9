"""Tools: schemas of typed functions, checked arguments, and what becomes of a failing call."""

import copy
import enum
import pickle
import sys
import threading
import time
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

import pytest
from pydantic import BaseModel, Field

from rlgym_llm import ToolError, UserError
from rlgym_llm.hung_threads import MOST_HUNG
from rlgym_llm.tools.deadline import _hung, call_within
from rlgym_llm.tools.schema import docstring_parts
from rlgym_llm.tools.tool import Tool, ToolCallError, tool, toolbox

sys.path.insert(0, str(Path(__file__).parent))  # for the worker processes too
import tool_functions


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    """A place."""

    x: float
    y: float = 0.0


class Tree(BaseModel):
    name: str
    children: list["Tree"] = []


def no_parameters(): ...
def one_int(n: int): ...
def defaults(a: str, b: float = 1.5, c: bool = False): ...
def optional(a: Optional[str] = None): ...  # noqa: UP045
def union(a: int | str): ...
def literal(unit: Literal["c", "f"] = "c"): ...
def lists(a: list[int], b: tuple[str, int]): ...
def mapping(a: dict[str, float]): ...
def enumeration(colour: Colour): ...
def dataclass_parameter(at: Point): ...
def annotated(n: Annotated[int, Field(ge=1, le=9, description="From 1 to 9.")]): ...
def keyword_only(*, json: str, copy: Any = None): ...
def recursive(tree: Tree): ...


POINT = {
    "type": "object",
    "description": "A place.",
    "properties": {"x": {"type": "number"}, "y": {"type": "number", "default": 0.0}},
    "required": ["x"],
    "additionalProperties": False,
}
TREE = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}, "default": []},
    },
    "required": ["name"],
}
SCHEMAS = [
    (no_parameters, {}, None),
    (one_int, {"n": {"type": "integer"}}, ["n"]),
    (
        defaults,
        {
            "a": {"type": "string"},
            "b": {"type": "number", "default": 1.5},
            "c": {"type": "boolean", "default": False},
        },
        ["a"],
    ),
    (optional, {"a": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}}, None),
    (union, {"a": {"anyOf": [{"type": "integer"}, {"type": "string"}]}}, ["a"]),
    (literal, {"unit": {"type": "string", "enum": ["c", "f"], "default": "c"}}, None),
    (
        lists,
        {
            "a": {"type": "array", "items": {"type": "integer"}},
            "b": {
                "type": "array",
                "prefixItems": [{"type": "string"}, {"type": "integer"}],
                "minItems": 2,
                "maxItems": 2,
            },
        },
        ["a", "b"],
    ),
    (mapping, {"a": {"type": "object", "additionalProperties": {"type": "number"}}}, ["a"]),
    (enumeration, {"colour": {"type": "string", "enum": ["red", "blue"]}}, ["colour"]),
    (dataclass_parameter, {"at": POINT}, ["at"]),
    (
        annotated,
        {"n": {"type": "integer", "minimum": 1, "maximum": 9, "description": "From 1 to 9."}},
        ["n"],
    ),
    (keyword_only, {"json": {"type": "string"}, "copy": {"default": None}}, ["json"]),
]


@pytest.mark.parametrize(("function", "properties", "required"), SCHEMAS)
def test_the_schema_of_a_signature(function, properties, required):
    right = {"type": "object", "properties": properties, "additionalProperties": False}
    if required is not None:
        right["required"] = required
    assert Tool(function).schema == {
        "type": "function",
        "function": {"name": function.__name__, "description": "", "parameters": right},
    }


def test_what_refers_to_itself_keeps_its_definition():
    parameters = Tool(recursive).parameters.schema
    assert parameters["properties"] == {"tree": TREE}
    assert parameters["$defs"] == {"Tree": TREE}


def test_descriptions_come_from_the_docstring():
    function = tool_functions.shout.schema["function"]
    assert function["description"] == "Makes a text loud."
    assert function["parameters"]["properties"] == {
        "text": {"type": "string", "description": "What to shout."},
        "times": {"type": "integer", "description": "How often.", "default": 1},
    }


def test_a_docstring_in_all_its_parts():
    docstring = """
    Adds. Well.

    More: of it.

    Args:
        a (int): First,
            with more.
        *b: Second: with a colon.

        c:
            Third.

    Returns:
        d: Not a parameter.
    """
    assert docstring_parts(docstring) == (
        "Adds. Well.\n\nMore: of it.",
        {"a": "First, with more.", "b": "Second: with a colon.", "c": "Third."},
    )
    assert docstring_parts("") == ("", {})


def hintless(a): ...
def rest(*a: int): ...
def rest_by_name(**a: int): ...
def by_place(a: int, /): ...
def unknown_hint(a: "Nowhere"): ...  # noqa: F821
def no_schema(a: threading.Thread): ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (hintless, "tool 'hintless': parameter 'a' has no type hint"),
        (rest, "variadic positional; a model gives every argument by name"),
        (rest_by_name, "variadic keyword"),
        (by_place, "positional-only"),
        (unknown_hint, "its type hints cannot be read: name 'Nowhere' is not defined"),
        (no_schema, "tool 'no_schema': a parameter has no JSON schema"),
        (lambda: None, "tool name '<lambda>' is not letters"),
    ],
)
def test_functions_that_cannot_be_tools(function, message):
    with pytest.raises(UserError, match=message):
        Tool(function)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "a b"}, "tool name 'a b'"),
        ({"name": "x" * 65}, "at most 64"),
        ({"timeout_s": 0}, "timeout_s must be above 0"),
        ({"on_error": "ignore"}, "on_error must be observe or fail"),
        ({"isolated": True, "timeout_s": None}, "isolated=True needs a timeout_s"),
    ],
)
def test_options_that_are_wrong(options, message):
    with pytest.raises(UserError, match=message):
        tool(**options)(one_int)


def test_a_local_function_cannot_be_isolated():
    def local(a: int): ...

    with pytest.raises(UserError, match="a module that other processes can import"):
        Tool(local, isolated=True)


def give(value: Any) -> Any:
    return value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is\n", "as it is\n"),
        (5, "5"),
        (None, "null"),
        ([1, "a"], '[1,"a"]'),
        ({"a": Point(1, 2)}, '{"a":{"x":1,"y":2}}'),
        (Colour.RED, '"red"'),
        (Fraction(1, 3), '"1/3"'),
        ({2.5}, "[2.5]"),
    ],
)
def test_results_become_text(value, text):
    assert Tool(give).call({"value": value}) == text


def typed(n: int = 0, x: float = 0.0, s: str = "", b: bool = False, at: Point | None = None) -> str:
    return repr((n, x, s, b, at))


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({}, (0, 0.0, "", False, None)),
        ({"n": "7", "x": "2.5", "s": 5, "b": "true"}, (7, 2.5, "5", True, None)),
        ({"n": 7.0, "x": 2}, (7, 2.0, "", False, None)),
        ({"at": {"x": 1}}, (0, 0.0, "", False, Point(1.0, 0.0))),
    ],
)
def test_arguments_are_converted_where_nothing_is_lost(given, read):
    assert Tool(typed).call(given) == repr(read)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n": 7.5}, "argument 'n': Input should be a valid integer"),
        ({"n": "seven"}, "argument 'n': Input should be a valid integer"),
        ({"s": [1]}, "argument 's': Input should be a valid string"),
        ({"m": 1}, "there is no argument 'm'"),
        ({"at": {}}, "argument 'at.x' is missing"),
        ({"n": "a", "x": "b", "s": [], "b": 7}, "; 1 more"),
    ],
)
def test_arguments_that_do_not_fit_are_told(given, message):
    with pytest.raises(ToolCallError) as caught:
        Tool(typed).call(given)
    assert message in str(caught.value)
    with pytest.raises(ToolCallError, match="argument 'n' is missing"):
        Tool(one_int).call({})


def fail(how: str) -> str:
    if how == "value":
        raise ValueError("no such city\nTraceback: ...")
    if how == "zero":
        return str(1 // 0)
    if how == "empty":
        raise RuntimeError
    if how == "exit":
        raise SystemExit(1)
    if how == "tool":
        raise ToolError("the search engine is down")
    if how == "deep":
        return fail(how)
    return object()


@pytest.mark.parametrize("timeout_s", [None, 30.0])
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("value", "no such city"),
        ("zero", "ZeroDivisionError: integer division or modulo by zero"),
        ("empty", "RuntimeError"),
        ("exit", "SystemExit: 1"),
        ("deep", "RecursionError: maximum recursion depth exceeded"),
    ],
)
def test_an_exception_is_told_or_fails_the_episode(how, message, timeout_s):
    with pytest.raises(ToolCallError) as told:
        Tool(fail, timeout_s=timeout_s).call({"how": how})
    assert str(told.value).startswith(message)
    with pytest.raises(ToolError) as failed:
        Tool(fail, timeout_s=timeout_s, on_error="fail").call({"how": how})
    assert str(failed.value).startswith(f"tool 'fail': {message}")


def test_a_tool_error_always_fails_the_episode():
    with pytest.raises(ToolError, match="the search engine is down"):
        Tool(fail).call({"how": "tool"})


def test_wrong_arguments_never_fail_the_episode():
    with pytest.raises(ToolCallError, match="missing"):
        Tool(fail, on_error="fail").call({})


def test_a_deadline_is_kept():
    done = threading.Event()

    def wait() -> str:
        done.wait(60)
        return "done"

    with pytest.raises(ToolCallError, match=r"no result within 0\.05 s"):
        Tool(wait, timeout_s=0.05).call({})
    with pytest.raises(ToolError, match=r"tool 'wait': no result within 0\.05 s"):
        Tool(wait, timeout_s=0.05, on_error="fail").call({})
    done.set()
    assert Tool(wait, timeout_s=30).call({}) == "done"


def test_so_many_calls_may_hang_and_no_more():
    done = threading.Event()
    for _ in range(MOST_HUNG):
        with pytest.raises(TimeoutError):
            call_within(done.wait, {}, 0.001, "wait")
    with pytest.raises(ToolError, match="64 calls hang in threads"):
        call_within(done.wait, {}, 0.001, "wait")
    done.set()
    while any(thread.is_alive() for thread in tuple(_hung)):
        time.sleep(0.01)
    assert call_within(done.wait, {}, 30.0, "wait") is True


@pytest.mark.parametrize("timeout_s", [None, 30.0])
def test_a_coroutine_is_awaited(timeout_s):
    async def later(a: int) -> int:
        return a + 1

    assert Tool(later, timeout_s=timeout_s).call({"a": 1}) == "2"


def test_an_isolated_tool():
    apart = tool_functions.apart
    assert apart.call({"what": "nothing"}) == "nothing"
    with pytest.raises(ToolCallError, match="no such thing"):
        apart.call({"what": "raise"})
    with pytest.raises(ToolCallError, match="no result within 1 s"):
        apart.call({"what": "sleep"})
    with pytest.raises(ToolError, match="tool 'apart': its process died"):
        apart.call({"what": "die"})
    assert apart.call({"what": "again"}) == "again"


def test_a_tool_is_still_the_function():
    assert tool_functions.shout("a", times=2) == "A A"
    assert tool_functions.shout.__doc__.startswith("Makes a text loud.")


@pytest.mark.parametrize(
    "made",
    [tool_functions.shout, tool_functions.apart, Tool(tool_functions.whisper, name="hush")],
)
def test_tools_pickle(made):
    back = pickle.loads(pickle.dumps(made))
    assert (back.name, back.schema, back.timeout_s) == (made.name, made.schema, made.timeout_s)
    assert (back is made) == (made.name != "hush")  # a decorated function is found by its name
    assert copy.deepcopy(made) is made


def test_a_toolbox_takes_functions_and_tools():
    found = toolbox([one_int, tool_functions.shout])
    assert list(found) == ["one_int", "shout"]
    with pytest.raises(UserError, match="two tools are called 'one_int'"):
        toolbox([one_int, Tool(give, name="one_int")])


def test_an_object_with_an_async_call_is_awaited_with_and_without_a_deadline():
    class Add:
        async def __call__(self, a):
            return a + 1

    assert (
        call_within(Add(), {"a": 2}, None, "add") == call_within(Add(), {"a": 2}, 5.0, "add") == 3
    )
