"""Problems in an agent file: the file, the field, and the allowed values."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from pydantic import BaseModel, ValidationError


@dataclass(frozen=True)
class FieldProblem:
    field: str
    message: str
    allowed: tuple[str, ...] = ()

    def __str__(self) -> str:
        hint = f" (allowed: {', '.join(self.allowed)})" if self.allowed else ""
        return f"{self.field}: {self.message}{hint}"


class AgentFileError(ValueError):
    """A file in the agents folder is invalid."""

    def __init__(self, file: str, problems: Sequence[FieldProblem]) -> None:
        self.file = file
        self.problems = list(problems)
        super().__init__(f"{file}: " + "; ".join(map(str, self.problems)))


class AgentFilesError(ValueError):
    """Files in the agents folder are invalid; the message lists all problems of all of them."""

    def __init__(self, errors: Sequence[AgentFileError]) -> None:
        self.errors = list(errors)
        super().__init__("\n".join(map(str, errors)))


def problems_of(error: ValidationError, model: type[BaseModel]) -> list[FieldProblem]:
    """Convert pydantic's errors; for an unknown field, list the fields that exist."""
    found = []
    for entry in error.errors(include_url=False):
        path = [str(part) for part in entry["loc"]]
        field = ".".join(path) or "(file)"
        message = entry["msg"].removeprefix("Value error, ")
        # a check of a whole part starts its message with the field
        if not path and (named := re.match(r"(\w+): ", message)):
            field, message = named[1], message[named.end() :]
        if entry["type"] == "extra_forbidden":
            found.append(FieldProblem(field, "unknown field", _fields_at(model, path[:-1])))
        elif entry["type"] == "enum":
            found.append(FieldProblem(field, f"{entry['input']!r} is not a known value", _choices(entry["ctx"])))
        else:
            found.append(FieldProblem(field, message))
    return found


def _fields_at(model: type[BaseModel], path: list[str]) -> tuple[str, ...]:
    for part in path:
        if part not in model.model_fields:
            continue  # a place in a list, or a key
        inner = _model_in(model.model_fields[part].annotation)
        if inner is None:
            return ()
        model = inner
    return tuple(model.model_fields)


def _model_in(annotation: object) -> type[BaseModel] | None:
    """The model of a field: its type, or the item type of a list, a dict or a union."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for one in get_args(annotation) if (found := _model_in(one))), None)


def _choices(context: dict[str, object]) -> tuple[str, ...]:
    return tuple(str(context["expected"]).replace(" or ", ", ").replace("'", "").split(", "))
