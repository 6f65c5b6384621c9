"""ToolEnv: calls are run and answered, errors are observations, and calls have a budget."""

import json
import pickle
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from rlgym_llm import ToolError, UserError
from rlgym_llm.generate import SamplingParams
from rlgym_llm.rollout import run_groups
from rlgym_llm.scripted_generator import ScriptedGenerator
from rlgym_llm.tasks import ListTasks
from rlgym_llm.tool_env import ToolEnv, ToolState
from rlgym_llm.tools.tool import Tool
from rlgym_llm.types import Action, FinishReason, Message, Task

sys.path.insert(0, str(Path(__file__).parent))
import tool_functions


def add(a: int, b: int = 1) -> int:
    """Adds."""
    return a + b


def divide(a: int, b: int) -> float:
    """Divides."""
    return a / b


def echo(text: str) -> str:
    """Says it again."""
    return text


def engine_down() -> str:
    """Searches."""
    raise ToolError("the search engine is down")


def strict(a: int) -> float:
    """Divides one."""
    return 1 / a


TOOLS = [add, divide, echo, engine_down, Tool(strict, on_error="fail")]


def tasks(*prompt):
    return ListTasks([Task(prompt=prompt or (Message(role="user", content="2 + 3 = ?"),))])


def make(**options):
    env = ToolEnv(**{"tools": TOOLS, "tasks": tasks(), **options})
    env.reset(seed=0)
    return env


def call(name, **arguments):
    written = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>{written}</tool_call>"


def answers(env, text):
    return [message.content for message in env.step(text)[4]["reply"]]


def test_a_call_is_answered_and_a_turn_without_one_is_final():
    env = make()
    observation, reward, terminated, truncated, info = env.step(f"I add. {call('add', a=2, b=3)}")
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert info["reply"] == (
        Message(role="tool", content="5", name="add", tool_call_id="call00000"),
    )
    assert observation[-2].content == f"I add. {call('add', a=2, b=3)}"
    assert observation[-1:] == info["reply"]
    _, _, terminated, truncated, info = env.step("#### 5")
    assert (terminated, truncated, info["reply"]) == (True, False, ())
    assert (info["num_tool_calls"], info["num_tool_errors"]) == (1, 0)


OBSERVED = [
    (call("add", a="two"), "error: argument 'a': Input should be a valid integer"),
    (call("add"), "error: argument 'a' is missing"),
    (call("ad", a=1), "error: there is no tool 'ad'; did you mean 'add'? (tools: add, divide, "),
    (call("divide", a=1, b=0), "error: ZeroDivisionError: division by zero"),
    ('<tool_call>{"name": "add"', "error: the call is not valid JSON"),
    (call("strict", a="x"), "error: argument 'a'"),  # the model's fault, not the tool's
]
FAILED = [
    (call("engine_down"), "the search engine is down"),
    (call("strict", a=0), "tool 'strict': ZeroDivisionError: division by zero"),
]


@pytest.mark.parametrize(("text", "said"), OBSERVED)
def test_what_the_model_did_wrong_is_an_observation(text, said):
    env = make()
    _, _, terminated, truncated, info = env.step(text)
    assert (terminated, truncated) == (False, False)
    assert info["reply"][0].content.startswith(said)
    assert (info["num_tool_calls"], info["num_tool_errors"]) == (1, 1)
    assert answers(env, call("add", a=1)) == ["2"]  # and the episode goes on


@pytest.mark.parametrize(("text", "said"), FAILED)
def test_what_the_tool_did_wrong_fails_the_episode(text, said):
    with pytest.raises(ToolError, match=said):
        make().step(text)


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [(text, "ok", said) for text, said in OBSERVED]
    + [(text, "tool_error", said) for text, said in FAILED],
)
def test_the_runner_blames_whom_it_should(text, status, said):
    """The model reads what went wrong and goes on, or the rollout says that a tool failed."""
    env_tasks = tasks()

    def script(context):
        return "#### 5" if "tool: error: " in context else text

    [group] = run_groups(
        [env_tasks[0]],
        group_size=1,
        seed=0,
        make_env=lambda: ToolEnv(tools=TOOLS, tasks=env_tasks, defer_scoring=True),
        generator=ScriptedGenerator(script),
        params=SamplingParams(max_new_tokens=200),
    )
    [rollout] = group.rollouts
    assert rollout.status.value == status
    first = rollout.turns[0]
    assert first.completion.text == text
    if status == "ok":
        assert first.reply[0].content.startswith(said)
        assert rollout.text == f"{text}\n#### 5"
        assert rollout.terminated
    else:
        assert said in rollout.error
        assert first.reply == ()


def test_several_calls_of_a_turn_are_answered_in_order():
    env = make()
    info = env.step(call("add", a=1) + call("add", a="x") + call("add", a=3))[4]
    assert [message.tool_call_id for message in info["reply"]] == [
        "call00000",
        "call00001",
        "call00002",
    ]
    assert [message.content[:6] for message in info["reply"]] == ["2", "error:", "4"]
    assert env.step(call("add", a=1))[4]["reply"][0].tool_call_id == "call00003"


def test_too_many_calls_of_a_turn_are_left_out():
    env = make(max_calls_per_turn=2)
    said = answers(env, "".join(call("add", a=a) for a in range(5)))
    assert said == ["1", "2\nerror: 3 more left out, at most 2 calls in a turn"]
    assert (env.state.num_calls, env.state.num_errors) == (2, 1)


def test_calls_run_out_with_a_warning_first():
    env = make(max_calls=2)
    assert answers(env, call("add", a=1)) == ["2"]
    assert answers(env, call("add", a=2) + call("add", a=3)) == [
        "3",
        "error: no calls left, answer now",
    ]
    _, _, terminated, truncated, info = env.step(call("add", a=4))
    assert (terminated, truncated, info["reply"]) == (False, True, ())
    assert info["num_tool_calls"] == 2


def test_an_answer_after_the_warning_counts():
    env = make(max_calls=1)
    env.step(call("add", a=1))
    assert answers(env, call("add", a=1)) == ["error: no calls left, answer now"]
    assert env.step("#### 2")[2:4] == (True, False)


def test_calls_that_cannot_be_read_use_up_the_budget_too():
    env = make(max_calls=2)
    for _ in range(3):
        assert env.step("<tool_call>{")[2:4] == (False, False)
    assert env.step("<tool_call>{")[2:4] == (False, True)


def test_turns_are_bounded_where_asked():
    env = make(max_turns=2)
    assert [env.step(call("add", a=1))[2:4] for _ in range(2)] == [(False, False), (False, True)]


def test_long_results_are_cut_and_half_characters_replaced():
    env = make(max_observation_chars=5)
    assert answers(env, call("echo", text="abcdefgh")) == ["abcde... (3 characters left out)"]
    assert answers(env, call("echo", text="\ud800b")) == ["\ufffdb"]


def test_the_system_message_tells_of_the_tools():
    env = ToolEnv(tools=[add], tasks=tasks(), tool_style="pythonic")
    observation, info = env.reset(seed=0)
    system, user = observation
    assert user.content == "2 + 3 = ?"
    assert json.dumps(env.toolbox["add"].schema) in system.content
    assert system.content.endswith('[NAME(ARGUMENT="value")]')
    assert "tools" not in info
    env = ToolEnv(
        tools=[add],
        tasks=tasks(Message(role="system", content="Be kind."), Message(role="user", content="Hi")),
    )
    observation, _ = env.reset(seed=0)
    assert [message.role for message in observation] == ["system", "user"]
    assert observation[0].content.startswith("Be kind.\n\nYou can call tools:")


def test_a_template_gets_schemas_and_calls_as_data():
    env = ToolEnv(tools=[add], tasks=tasks(), tool_prompt="template")
    observation, info = env.reset(seed=0)
    assert observation == tasks()[0].prompt
    assert info["tools"] == (env.toolbox["add"].schema,)
    observation = env.step(f"I add. {call('add', a=2)}")[0]
    function = {"name": "add", "arguments": {"a": 2}}
    assert observation[1] == Message(
        role="assistant",
        content="I add.",
        tool_calls=({"id": "call00000", "type": "function", "function": function},),
    )
    broken = env.step("<tool_call>{")[0][-2]
    assert (broken.content, broken.tool_calls) == ("<tool_call>{", ())


def test_string_prompts():
    env = ToolEnv(tools=[add], tasks=ListTasks([Task(prompt="2 + 3 = ?\n")]))
    observation, _ = env.reset(seed=0)
    assert observation.startswith("You can call tools:")
    assert observation.endswith("\n\n2 + 3 = ?\n")
    with pytest.raises(UserError, match="needs prompts that are messages"):
        ToolEnv(tools=[add], tasks=ListTasks([Task(prompt="a")]), tool_prompt="template")


def test_special_tokens_are_looked_for_in_the_raw_text():
    env = make(tool_style="mistral")
    action = Action(text='add{"a": 2}', raw_text='[TOOL_CALLS]add[ARGS]{"a": 2}</s>')
    assert [message.content for message in env.step(action)[4]["reply"]] == ["3"]


def test_a_completion_that_was_cut_calls_nothing():
    env = make()
    action = Action(text=call("add", a=2), finish_reason=FinishReason.LENGTH)
    assert env.step(action)[2:4] == (False, True)
    assert env.state.num_calls == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tools": []}, "needs at least one tool"),
        ({"max_calls": 0}, "max_calls must be at least 1"),
        ({"max_calls_per_turn": 0}, "max_calls_per_turn"),
        ({"max_observation_chars": 0}, "max_observation_chars"),
        ({"tool_style": "qwen"}, "unknown tool style 'qwen'"),
        ({"tool_prompt": "user"}, "tool_prompt must be system or template"),
    ],
)
def test_options_that_are_wrong(options, message):
    with pytest.raises(UserError, match=message):
        make(**options)


@dataclass(slots=True, kw_only=True)
class Cart(ToolState):
    items: list


class Shop(ToolEnv):
    """An environment whose tool reads and changes the episode's state."""

    def start(self, task):
        return Cart(items=[])

    def run(self, tool, call):
        said = super().run(tool, call)
        self.state.items.append(said)
        return f"{len(self.state.items)} in the cart"


def test_tools_with_a_state_branch_with_the_episode():
    env = Shop(tools=[tool_functions.shout], tasks=tasks())
    env.reset(seed=0)
    assert answers(env, call("shout", text="a")) == ["1 in the cart"]
    clone, pickled, kept = env.clone(), pickle.loads(pickle.dumps(env)), env.get_state()
    assert answers(env, call("shout", text="b")) == ["2 in the cart"]
    assert answers(clone, call("shout", text="c")) == ["2 in the cart"]
    assert pickled.state.items == ["A"]
    env.set_state(kept)
    assert env.state == Cart(items=["A"], num_calls=1)
    assert env.fresh().toolbox is env.toolbox
    env.reset(seed=0)
    assert env.state.items == []
