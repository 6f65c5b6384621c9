"""ToolEnv: an environment whose policy may call tools before it answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from rlgym_llm.env import TurnOutcome
from rlgym_llm.errors import UserError, did_you_mean
from rlgym_llm.multi_turn import MultiTurnEnv, Reply
from rlgym_llm.tools.parse import ToolStyle, check_style, parse_tool_calls
from rlgym_llm.tools.prompt import describe_tools, with_instructions
from rlgym_llm.tools.tool import Tool, ToolCallError, toolbox
from rlgym_llm.tools.tool_call import ToolCall, call_id
from rlgym_llm.types import Action, Message, Prompt, Task

__all__ = ["ToolEnv", "ToolState"]

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(slots=True, kw_only=True)
class ToolState:
    """What an episode counts. A subclass of `ToolEnv` may start one with fields of its own."""

    num_calls: int = 0
    """Calls so far, those included that failed."""
    num_errors: int = 0
    """Answers so far that told the model of an error."""
    is_warned: bool = False
    """The model knows that no calls are left."""


class ToolEnv(MultiTurnEnv[ToolState]):
    """Runs the tool calls of a turn and answers with their results; a turn without a call is final.

    A call that cannot be read, names no tool, has wrong arguments or fails is answered by
    ``error: ...`` in the place of its result, and the episode goes on. A tool that says so
    (``on_error="fail"``) or whose process is gone raises ToolError out of `step`: the episode has
    failed. Once ``max_calls`` are used up, the next call is answered by a warning, and one more
    truncates the episode. The infos of `step` hold ``num_tool_calls`` and ``num_tool_errors``.

    Args:
        tools: Typed functions, or tools made of them by `tool`.
        max_calls: Calls in an episode; None for no limit.
        max_calls_per_turn: Calls of one turn that are run; the others are left out, and told so.
        max_observation_chars: A longer result is cut.
        tool_style: How calls are written; see `parse_tool_calls`.
        tool_prompt: Who tells the model of its tools: ``"system"`` the environment, in the system
            message; ``"template"`` the chat template, which gets the schemas, and in the
            conversation the calls as ``tool_calls``.
        max_turns: As in `MultiTurnEnv`; by default ``max_calls`` alone bounds an episode.
        options: Arguments of `TextEnv`, such as ``tasks`` and ``rewards``.

    >>> from rlgym_llm.tasks import ListTasks
    >>> def add(a: int, b: int) -> int:
    ...     return a + b
    >>> question = Message(role="user", content="2 + 3 = ?")
    >>> env = ToolEnv(tools=[add], tasks=ListTasks([Task(prompt=(question,))]))
    >>> _ = env.reset()
    >>> call = '<tool_call>{"name": "add", "arguments": {"a": 2, "b": 3}}</tool_call>'
    >>> env.step(call)[4]["reply"][0].content
    '5'
    >>> env.step("5")[2], env.state.num_calls
    (True, 1)
    """

    shared: ClassVar[tuple[str, ...]] = ("toolbox",)

    def __init__(
        self,
        *,
        tools: Sequence[Callable[..., Any] | Tool],
        max_calls: int | None = 8,
        max_calls_per_turn: int = 4,
        max_observation_chars: int = 4000,
        tool_style: ToolStyle = "auto",
        tool_prompt: Literal["system", "template"] = "system",
        max_turns: int | None = None,
        **options: Any,
    ) -> None:
        check_style(tool_style)
        for name, number in (
            ("max_calls", max_calls),
            ("max_calls_per_turn", max_calls_per_turn),
            ("max_observation_chars", max_observation_chars),
        ):
            if number is not None and number < 1:
                raise UserError(f"{name} must be at least 1, got {number}")
        if tool_prompt not in ("system", "template"):
            raise UserError(f"tool_prompt must be system or template, got {tool_prompt!r}")
        super().__init__(max_turns=max_turns, **options)
        if tool_prompt == "template" and isinstance(self.tasks[0].prompt, str):
            raise UserError("tool_prompt='template' needs prompts that are messages, not a string")
        self.toolbox = toolbox(tools)
        if not self.toolbox:
            raise UserError(f"{type(self).__name__} needs at least one tool")
        self.max_calls = max_calls
        self.max_calls_per_turn = max_calls_per_turn
        self.max_observation_chars = max_observation_chars
        self.tool_style: ToolStyle = tool_style
        self.tool_prompt = tool_prompt
        if tool_prompt == "template":
            self.tools = tuple(one.schema for one in self.toolbox.values())

    def start(self, task: Task) -> ToolState:
        """Counters at zero."""
        return ToolState()

    def opening(self, task: Task) -> Prompt:
        """The task's prompt, with the tools in its system message where no template tells them."""
        if self.tool_prompt == "template":
            return task.prompt
        return with_instructions(task.prompt, self.tool_instructions())

    def tool_instructions(self) -> str:
        """What the system message says of the tools; override it for words of your own."""
        schemas = [one.schema for one in self.toolbox.values()]
        return describe_tools(schemas, style=self.tool_style)

    def final(self, action: Action) -> TurnOutcome:
        """The outcome of a turn without a call; by default the task is over."""
        return TurnOutcome(terminated=True)

    def run(self, tool: Tool, call: ToolCall) -> str:
        """The result of one call; override it for tools that need ``self.state``, say.

        Raises ToolCallError for what the model shall read, ToolError for an episode that failed.
        """
        return tool.call(call.arguments)

    def respond(self, state: ToolState, action: Action) -> Reply | TurnOutcome:
        """Runs the calls of the turn, or asks `final` where there is none."""
        text, calls = parse_tool_calls(action.raw_text or action.text, style=self.tool_style)
        if not calls:
            return self.final(action)
        taken = tuple(
            # Templates want ids that are unique in the conversation; a model's own stay.
            replace(call, id=call_id(state.num_calls + number))
            if call.id == call_id(number)
            else call
            for number, call in enumerate(calls[: self.max_calls_per_turn])
        )
        spoken = None  # to a template without tools, and where it cannot be read, it is text
        if self.tool_prompt == "template" and not any(call.error for call in calls):
            as_data = tuple(call.to_dict() for call in taken)
            spoken = Message(role="assistant", content=text, tool_calls=as_data)
        if state.is_warned:
            return Reply(truncated=True, spoken=spoken)
        answers = [self._answer(state, call) for call in taken]
        if num_left_out := len(calls) - len(taken):
            state.num_errors += 1
            note = f"\nerror: {num_left_out} more left out, at most {len(taken)} calls in a turn"
            answers[-1] = replace(answers[-1], content=answers[-1].content + note)
        return Reply(messages=tuple(answers), spoken=spoken)

    def step(self, action: str | Action) -> tuple[Prompt, float, bool, bool, dict[str, Any]]:
        """As `TextEnv.step`, with the counters in the info."""
        observation, reward, terminated, truncated, info = super().step(action)
        info["num_tool_calls"] = self.state.num_calls
        info["num_tool_errors"] = self.state.num_errors
        return observation, reward, terminated, truncated, info

    def _answer(self, state: ToolState, call: ToolCall) -> Message:
        """The tool message that answers one call."""
        if self.max_calls is not None and state.num_calls >= self.max_calls:
            state.is_warned = True
            state.num_errors += 1
            said = "error: no calls left, answer now"
        else:
            state.num_calls += 1
            try:
                said = self._cut(self._result(call))
            except ToolCallError as error:
                state.num_errors += 1
                said = self._cut(f"error: {error}")
        name = call.name if call.name in self.toolbox else None
        return Message(role="tool", content=said, name=name, tool_call_id=call.id)

    def _result(self, call: ToolCall) -> str:
        if call.error is not None:
            raise ToolCallError(call.error)
        tool = self.toolbox.get(call.name)
        if tool is None:
            hint = did_you_mean(call.name[:64], self.toolbox)
            known = ", ".join(self.toolbox)
            raise ToolCallError(f"there is no tool {call.name[:64]!r}{hint} (tools: {known})")
        return self.run(tool, call)

    def _cut(self, text: str) -> str:
        """No longer than allowed, and without half characters that no tokenizer can read."""
        text = _SURROGATE.sub("\ufffd", text)
        num_left_out = len(text) - self.max_observation_chars
        if num_left_out <= 0:
            return text
        return f"{text[: self.max_observation_chars]}... ({num_left_out} characters left out)"
