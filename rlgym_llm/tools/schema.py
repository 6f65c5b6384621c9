"""The parameters of a typed function: their JSON schema, and arguments checked against them."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Mapping
from typing import Any, Self

import pydantic
from pydantic import BaseModel, ConfigDict, Field

from rlgym_llm.errors import UserError

__all__ = ["BadArgumentsError", "Parameters", "docstring_parts"]

_SECTION = re.compile(r"^(Args|Arguments|Parameters|Returns|Raises|Yields|Examples?|Notes?):\s*$")
_ENTRY = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")
_MOST_PROBLEMS = 3


class BadArgumentsError(ValueError):
    """The arguments do not fit the parameters; the message is for the model."""


class Parameters:
    """What a function takes by keyword.

    Args:
        function: Every parameter has a type hint and can be given by name; the descriptions stand
            in the ``Args:`` of its docstring, in Google's style.
        name: What messages call it.

    Raises UserError for a function that breaks this.

    >>> def area(width: float, height: float = 1.0) -> float: ...
    >>> Parameters(area, "area").schema["required"]
    ['width']
    """

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        described = docstring_parts(inspect.getdoc(function) or "")[1]
        try:
            hints = typing.get_type_hints(function, include_extras=True)
        except Exception as error:
            raise UserError(f"tool {name!r}: its type hints cannot be read: {error}") from error
        fields: dict[str, Any] = {}
        self._names: dict[str, str] = {}
        for number, parameter in enumerate(inspect.signature(function).parameters.values()):
            _check(parameter, hints, name)
            field: dict[str, Any] = {"alias": parameter.name}
            if parameter.default is not inspect.Parameter.empty:
                field["default"] = parameter.default
            if parameter.name in described:
                field["description"] = described[parameter.name]
            # Under names of our own, no parameter can clash with what pydantic's models have.
            self._names[f"p{number}"] = parameter.name
            fields[f"p{number}"] = (hints[parameter.name], Field(**field))
        config = ConfigDict(extra="forbid", coerce_numbers_to_str=True)
        try:
            self._model: type[BaseModel] = pydantic.create_model(name, __config__=config, **fields)
            self.schema: Mapping[str, Any] = _plain(self._model.model_json_schema())
            """JSON schema of the object that the arguments are."""
        except (pydantic.PydanticUserError, TypeError) as error:
            problem = str(error).partition("\n")[0]
            raise UserError(f"tool {name!r}: a parameter has no JSON schema: {problem}") from error

    def read(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as the function wants them; what was not given is left to its defaults.

        A value is converted where nothing is lost: ``"2"`` is 2 for an int, ``2.5`` is not. Raises
        BadArgumentsError.
        """
        try:
            read = self._model.model_validate(dict(arguments))
        except pydantic.ValidationError as error:
            raise BadArgumentsError(_problems(error)) from None
        except RecursionError:
            raise BadArgumentsError("the arguments are nested too deeply") from None
        return {self._names[one]: getattr(read, one) for one in read.model_fields_set}

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        return self


def docstring_parts(docstring: str) -> tuple[str, dict[str, str]]:
    r"""What a Google-style docstring says of the function, and of each of its parameters.

    >>> docstring_parts("Adds.\n\nExactly.\n\nArgs:\n    a: First\n        number.\n    b: Second.")
    ('Adds.\n\nExactly.', {'a': 'First number.', 'b': 'Second.'})
    """
    head: list[str] = []
    entries: dict[str, str] = {}
    section, indent, entry = "", 0, ""
    for line in inspect.cleandoc(docstring).splitlines():
        if found := _SECTION.match(line):
            section, indent, entry = found[1], 0, ""
        elif not section:
            head.append(line)
        elif section in ("Args", "Arguments", "Parameters") and line.strip():
            depth = len(line) - len(line.lstrip())
            indent = indent or depth
            if depth == indent and (named := _ENTRY.match(line.strip())):
                entry = named[1]
                entries[entry] = named[2].strip()
            elif entry:
                entries[entry] = f"{entries[entry]} {line.strip()}".strip()
    return "\n".join(head).strip(), entries


def _check(parameter: inspect.Parameter, hints: Mapping[str, Any], name: str) -> None:
    if parameter.kind not in (
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
    ):
        raise UserError(
            f"tool {name!r}: parameter {parameter.name!r} is {parameter.kind.description}; "
            "a model gives every argument by name"
        )
    if parameter.name not in hints:
        raise UserError(f"tool {name!r}: parameter {parameter.name!r} has no type hint")


def _problems(error: pydantic.ValidationError) -> str:
    parts = []
    details = error.errors(include_url=False, include_context=False, include_input=False)
    for detail in details[:_MOST_PROBLEMS]:
        where = ".".join(str(step) for step in detail["loc"]) or "arguments"
        if detail["type"] == "missing":
            parts.append(f"argument {where!r} is missing")
        elif detail["type"] == "extra_forbidden":
            parts.append(f"there is no argument {where[:60]!r}")
        else:
            parts.append(f"argument {where[:60]!r}: {detail['msg']}")
    if len(details) > _MOST_PROBLEMS:
        parts.append(f"{len(details) - _MOST_PROBLEMS} more")
    return "; ".join(parts)


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without titles, and with definitions put where they are referred to."""
    definitions = schema.pop("$defs", {})
    plain: dict[str, Any] = _inlined(schema, definitions, ())
    plain.setdefault("properties", {})
    if left := _references(plain):
        plain["$defs"] = {
            name: _inlined(definitions[name], definitions, (name,)) for name in sorted(left)
        }
    return plain


def _inlined(node: Any, definitions: Mapping[str, Any], inside: tuple[str, ...]) -> Any:
    """``node`` with each reference replaced, but for those to what it stands inside of."""
    if isinstance(node, list):
        return [_inlined(one, definitions, inside) for one in node]
    if not isinstance(node, dict):
        return node
    if (reference := node.get("$ref")) is not None:
        name = reference.rpartition("/")[2]
        if name in inside:
            return dict(node)
        rest = {key: value for key, value in node.items() if key != "$ref"}
        return _inlined({**definitions[name], **rest}, definitions, (*inside, name))
    out = {}
    for key, value in node.items():
        if key == "properties":
            out[key] = {name: _inlined(one, definitions, inside) for name, one in value.items()}
        elif key in ("default", "enum", "const", "examples"):
            out[key] = value
        elif key != "title":
            out[key] = _inlined(value, definitions, inside)
    return out


def _references(node: Any) -> set[str]:
    if isinstance(node, list):
        return set().union(*map(_references, node))
    if not isinstance(node, dict):
        return set()
    own = {node["$ref"].rpartition("/")[2]} if isinstance(node.get("$ref"), str) else set()
    return own.union(*map(_references, node.values()))
