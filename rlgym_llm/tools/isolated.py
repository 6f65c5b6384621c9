"""Calls a tool's function in a process of its own, which can be killed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from rlgym_llm.entry_point import load_entry_point
from rlgym_llm.errors import PluginError, ToolError, UserError
from rlgym_llm.sandbox import OutcomeStatus, Sandbox
from rlgym_llm.tools.schema import Parameters

__all__ = ["IsolatedFunction", "open_function"]


class IsolatedFunction:
    """A function of an importable module, called in a worker process.

    The call raises what went wrong in it as ValueError, TimeoutError beyond the deadline, and
    ToolError where the worker died or cannot be started.
    """

    def __init__(self, function: Callable[..., Any], name: str, timeout_s: float) -> None:
        module = getattr(function, "__module__", None)
        path = getattr(function, "__qualname__", "<")
        if module in (None, "__main__") or "<" in path:
            raise UserError(
                f"tool {name!r}: isolated=True needs a function of a module that other processes "
                "can import"
            )
        self._name = name
        self._timeout_s = timeout_s
        self._address = f"{module}:{path}"
        self._lock = threading.Lock()
        self._sandbox: Sandbox | None = None

    def __call__(self, arguments: Mapping[str, Any]) -> Any:
        """What the function returns, as JSON carries it; so are the arguments given."""
        with self._lock:
            if self._sandbox is None:
                self._sandbox = Sandbox(
                    "rlgym_llm.tools.isolated:open_function",
                    deadline_s=self._timeout_s,
                    factory_argument=self._address,
                )
        try:
            outcome = self._sandbox.call(dict(arguments))
        except (PluginError, TypeError) as error:
            raise ToolError(f"tool {self._name!r}: {error}") from error
        if outcome.status is OutcomeStatus.OK:
            return outcome.value
        if outcome.status is OutcomeStatus.ERROR:
            raise ValueError(outcome.error)
        if outcome.status is OutcomeStatus.TIMEOUT:
            raise TimeoutError(f"no result within {self._timeout_s:g} s")
        raise ToolError(f"tool {self._name!r}: its process died: {outcome.error}")


def open_function(address: str, take: Callable[[], None]) -> Callable[[dict[str, Any]], Any]:
    """In the worker: the function of ``module:path``, taking JSON's arguments as one mapping."""
    found = load_entry_point(address)
    function = getattr(found, "function", found)  # of a decorated one, the tool stands there
    parameters = Parameters(function, function.__name__)
    return lambda arguments: function(**parameters.read(arguments))
