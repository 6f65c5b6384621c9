"""Tool and @tool: a typed Python function that a policy may call."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Self, overload

from pydantic_core import PydanticSerializationError, to_json

from rlgym_llm.entry_point import load_entry_point
from rlgym_llm.errors import RlgymError, ToolError, UserError
from rlgym_llm.tools.deadline import call_within
from rlgym_llm.tools.isolated import IsolatedFunction
from rlgym_llm.tools.schema import BadArgumentsError, Parameters, docstring_parts

__all__ = ["OnError", "Tool", "ToolCallError", "tool", "toolbox"]

OnError = Literal["observe", "fail"]
"""``observe`` tells the model what went wrong; ``fail`` ends the episode as failed."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


class ToolCallError(RlgymError):
    """A call went wrong in a way that the model may read and mend."""


class Tool:
    """A function, its JSON schema, and what bounds its calls. Made by `tool`; still callable.

    Args:
        function: Typed, and documented in Google's style; see `tool`.
        name: What models call it; the function's name by default.
        description: What it does; by default the docstring above its first section.
        timeout_s: Deadline of one call, kept by running it in a thread of its own (which goes on
            alone beyond it); None calls it right here and waits.
        on_error: What an exception in it, or a missed deadline, means.
        isolated: Calls it in a process of its own, which is killed at the deadline. The function
            stands in a module that can be imported, and its result is what JSON carries.

    Raises UserError for a function without type hints or a name that models cannot call.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        timeout_s: float | None = 10.0,
        on_error: OnError = "observe",
        isolated: bool = False,
    ) -> None:
        self.name: str = name or str(getattr(function, "__name__", ""))
        if not _NAME.fullmatch(self.name):
            raise UserError(f"tool name {self.name!r} is not letters, digits, _ and - (at most 64)")
        if on_error not in ("observe", "fail"):
            raise UserError(f"tool {self.name!r}: on_error must be observe or fail")
        if timeout_s is not None and not timeout_s > 0:
            raise UserError(f"tool {self.name!r}: timeout_s must be above 0 or None")
        if isolated and timeout_s is None:
            raise UserError(f"tool {self.name!r}: isolated=True needs a timeout_s")
        self.function = function
        self.timeout_s = timeout_s
        self.on_error = on_error
        self.isolated = isolated
        self.parameters = Parameters(function, self.name)
        if description is None:
            description = docstring_parts(inspect.getdoc(function) or "")[0]
        self.description: str = description
        self.schema: Mapping[str, Any] = {
            "type": "function",
            "function": {
                "name": self.name,
                "description": description,
                "parameters": self.parameters.schema,
            },
        }
        """The schema as chat templates and OpenAI's interface take it."""
        self.__doc__ = function.__doc__
        self._isolated: IsolatedFunction | None = None
        if isolated and timeout_s is not None:
            self._isolated = IsolatedFunction(function, self.name, timeout_s)

    def call(self, arguments: Mapping[str, Any]) -> str:
        """What the function returns, as text: a string as it is, anything else as JSON.

        Raises ToolCallError, in words for the model, for arguments that do not fit and for a
        function that fails or overruns; ToolError where that means that the episode has failed.
        """
        try:
            given = self.parameters.read(arguments)
        except BadArgumentsError as error:
            raise ToolCallError(str(error)) from None
        try:
            if self._isolated is not None:
                value = self._isolated(arguments)  # which reads them over there
            else:
                value = call_within(self.function, given, self.timeout_s, self.name)
            return _as_text(value)
        except ToolError:
            raise
        except (Exception, SystemExit) as error:
            said = _said(error)
            if self.on_error == "fail":
                raise ToolError(f"tool {self.name!r}: {said}") from error
            raise ToolCallError(said) from error

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function itself, unchecked."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # nothing in it changes

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        module = getattr(self.function, "__module__", "")
        path = getattr(self.function, "__qualname__", "")
        if _find(module, path) is self:  # a decorated function: its name now means the tool
            return _find, (module, path)
        options = {
            "name": self.name,
            "description": self.description,
            "timeout_s": self.timeout_s,
            "on_error": self.on_error,
            "isolated": self.isolated,
        }
        return _build, (self.function, options)


@overload
def tool(fn: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    fn: None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_s: float | None = 10.0,
    on_error: OnError = "observe",
    isolated: bool = False,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    fn: Callable[..., Any] | None = None, /, **options: Any
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Makes a typed function a `Tool`; used bare or with the options of `Tool`.

    >>> @tool
    ... def add(a: int, b: int = 1) -> int:
    ...     '''Adds two numbers.
    ...
    ...     Args:
    ...         a: The first.
    ...         b: The second.
    ...     '''
    ...     return a + b
    >>> add.call({"a": 2, "b": "3"}), add(2)
    ('5', 3)
    >>> add.schema["function"]["parameters"]["properties"]["b"]
    {'default': 1, 'description': 'The second.', 'type': 'integer'}
    """
    if fn is not None:
        return Tool(fn, **options)
    return lambda function: Tool(function, **options)


def toolbox(tools: Sequence[Callable[..., Any] | Tool]) -> dict[str, Tool]:
    """The tools by name; plain functions become tools. Raises UserError for a name given twice."""
    found: dict[str, Tool] = {}
    for one in tools:
        made = one if isinstance(one, Tool) else Tool(one)
        if made.name in found:
            raise UserError(f"two tools are called {made.name!r}; give one another name")
        found[made.name] = made
    return found


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return to_json(value, fallback=str).decode()
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise ValueError(f"its result cannot be written as JSON: {error}") from error


def _said(error: BaseException) -> str:
    """The exception in one line; of a plain ValueError the message says enough."""
    words = str(error).strip().partition("\n")[0]
    kind = type(error).__name__
    if not words:
        return kind
    return words if type(error) in (ValueError, TimeoutError) else f"{kind}: {words}"


def _find(module: str, path: str) -> Any:
    """The object of that name in a module; None where there is none."""
    try:
        return load_entry_point(f"{module}:{path}")
    except (ImportError, AttributeError, ValueError):
        return None


def _build(function: Callable[..., Any], options: dict[str, Any]) -> Tool:
    return Tool(function, **options)
