"""Typed output: the final answer of an agent with an output schema, checked against it."""

import json
import re
from typing import Any

from jsonschema.exceptions import best_match

from domain.json_object import JsonObject
from domain.json_schema import errors
from domain.sessions.step import preview

MAX_MISFITS = 3  # so many answers that do not fit the schema end the session as failed
_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n[ \t]*```", re.DOTALL)


class Misfit(ValueError):
    """An answer that does not fit the schema; the message is for the model."""


def instruction(schema: JsonObject) -> str:
    return (
        "Your final answer must be one JSON value and nothing else. It must fit this JSON schema:\n"
        f"```json\n{json.dumps(schema, ensure_ascii=False)}\n```"
    )


def typed(schema: JsonObject, text: str) -> Any:
    """The JSON value of an answer: the whole text, or its last code block."""
    value = _parsed(text)
    error = best_match(errors(schema, value))
    if error is not None:
        place = "/".join(map(str, error.absolute_path)) or "(the whole value)"
        raise Misfit(f"Your answer does not fit the output schema, at {place}: {preview(error.message, 500)}")
    return value


def retry_request(misfit: str) -> str:
    return f"{misfit}\nAnswer again: one JSON value that fits, and nothing else."


def _parsed(text: str) -> Any:
    blocks: list[str] = _FENCED.findall(text)
    problem = ""
    for candidate in (text, *blocks[-1:]):
        try:
            return json.loads(candidate, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            problem = str(error)
    raise Misfit(f"Your answer is not JSON: {preview(problem, 200)}")


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")
