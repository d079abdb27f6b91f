"""The tool ask_user: a question to the people behind the task; the session waits for the answer."""

from typing import Any

from pydantic import Field

from activities.tools.tool import ASK_PEOPLE, Tool, ToolInput
from domain.json_object import JsonObject
from domain.json_schema import fits, schema_problems
from domain.sessions.session import Effect, preview


class Input(ToolInput):
    question: str = Field(min_length=1, max_length=5_000, description="What you need to know, with what depends on it.")
    options: list[str] = Field(default_factory=list, max_length=20, description="Answers to choose from, if any.")
    answer_schema: JsonObject | None = Field(None, description="A JSON schema that the answer must satisfy.")
    default: Any = Field(None, description="What to assume if nobody answers in time.")


def find_fault(asked: Input) -> str | None:
    """Why the answer schema cannot be used; no part of the model above, which is read on the event loop."""
    if (schema := asked.answer_schema) is None:
        return None
    if found := schema_problems("answer_schema", schema):
        return "; ".join(f"{one.field}: {one.message}" for one in found[:5])
    fitting = asked.default is None or fits(schema, asked.default)
    return None if fitting else "the default does not fit the answer_schema"


TOOL = Tool(
    name="ask_user",
    description=(
        "Ask the people behind the task a question and wait for the answer, which may take days. Only for what you "
        "cannot find out or decide yourself; ask for everything you need at once."
    ),
    input=Input,
    activity=ASK_PEOPLE,
    effect=Effect.IDEMPOTENT,
    kind=None,
    talks=True,
    asks=True,
    summary=lambda input: preview(input.question, 200),
)
