"""Parse the fields of a definition, in such a way that an error in one field does not hide errors in the others."""

import json
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from agents.problems import FieldProblem, problems_of
from domain.agents.side import SideKind
from domain.agents.spelling import snake_case
from domain.json_object import JsonObject

Model = TypeVar("Model", bound=BaseModel)
NAMES = {"name", "agent"}
KINDS = {*SideKind}  # who takes the turns of a side


def validated(fields: JsonObject, model: type[Model]) -> tuple[Model | None, list[FieldProblem]]:
    """Parse a definition without its invalid fields, and list the errors in those, so that they do not hide errors in
    the rest. None if the rest would have another meaning without them."""
    try:
        # Strict JSON: "yes" is not true and "5" is not a number, but an enum may still be written as text.
        return model.model_validate_json(json.dumps(fields), strict=True), []
    except ValidationError as error:
        problems, paths = problems_of(error, model), [entry["loc"] for entry in error.errors() if entry["loc"]]
        unknown = [entry["loc"] for entry in error.errors() if entry["type"] == "extra_forbidden"]
    except (TypeError, ValueError) as error:
        return None, [FieldProblem("(front matter)", f"only JSON types are allowed: {error}")]
    rest: JsonObject = json.loads(json.dumps(fields))
    if not paths:  # the fields contradict each other
        removed = rest.pop("type", None) is not None
    else:
        removed = sum(_remove(rest, path, anything=path in unknown) for path in paths) == len(paths)
    if not removed:
        return None, problems
    definition, more = validated(rest, model)
    named = {problem.field for problem in problems}
    return definition, [*problems, *(problem for problem in more if problem.field not in named)]


def _remove(fields: JsonObject, path: tuple[int | str, ...], *, anything: bool) -> bool:
    """Remove an unknown field, or a field with a plain value without which the rest has the same meaning."""
    inner: Any = fields
    for part in path[:-1]:
        inner = _at(inner, part)
    name = (
        next((one for one in inner if snake_case(one) == snake_case(str(path[-1]))), "")
        if isinstance(inner, dict)
        else ""
    )
    decides = snake_case(name) in (NAMES if len(path) == 1 else NAMES | KINDS)
    if not name or not (anything or not (decides or isinstance(inner[name], dict | list))):
        return False
    del inner[name]
    return True


def _at(value: Any, part: int | str) -> Any:
    """A part of a definition in either spelling."""
    if isinstance(value, list) and isinstance(part, int) and part < len(value):
        return value[part]
    if isinstance(value, dict):
        return next((value[name] for name in value if snake_case(name) == part), None)
    return None
