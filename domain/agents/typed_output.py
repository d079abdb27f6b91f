"""Typed output: the final answer of an agent with an output schema, checked against it."""

import json
import re
from typing import Any

from jsonschema.exceptions import best_match

from domain.json_object import JsonObject, read_json
from domain.json_schema import errors
from domain.sessions.session import preview

MAX_MISFITS = 3  # so many answers that do not fit the schema end the session as failed
_OPENS = re.compile(r"```(?:json)?[ \t]*$")


class Misfit(ValueError):
    """An answer that does not fit the schema; the message is for the model."""


def instruction(schema: JsonObject) -> str:
    return (
        "Your final answer must be one JSON value and nothing else. It must fit this JSON schema:\n"
        f"```json\n{json.dumps(schema, ensure_ascii=False)}\n```"
    )


def parse_typed(schema: JsonObject, text: str) -> Any:
    """The JSON value of an answer: the whole text, or its last code block."""
    value = _parse(text)
    error = best_match(errors(schema, value))
    if error is not None:
        place = "/".join(map(str, error.absolute_path)) or "(the whole value)"
        raise Misfit(f"Your answer does not fit the output schema, at {place}: {preview(error.message, 500)}")
    return value


def retry_request(misfit: str) -> str:
    return f"{misfit}\nAnswer again: one JSON value that fits, and nothing else."


def _parse(text: str) -> Any:
    problem = ""
    for candidate in (text, *_last_block(text)):
        try:
            return read_json(candidate)
        except ValueError as error:
            problem = str(error)
    raise Misfit(f"Your answer is not JSON: {preview(problem, 200)}")


def _last_block(text: str) -> list[str]:
    """The last code block, if there is one. Line by line: one expression would look for an end from every beginning."""
    last: list[str] = []
    inside: list[str] | None = None
    for line in text.split("\n"):
        if inside is None:
            inside = [] if _OPENS.search(line) else None
        elif line.lstrip(" \t").startswith("```"):
            last, inside = ["\n".join(inside)], None
        else:
            inside.append(line)
    return last
