"""The tool ask_user: a question to the people behind the task; the session waits for the answer."""

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from activities.tools.tool import ASK_PEOPLE, Tool
from domain.json_object import JsonObject
from domain.json_schema import fits, schema_problems
from domain.sessions.step import Effect, preview


class Input(BaseModel):
    model_config = ConfigDict(extra="forbid")

    question: str = Field(min_length=1, max_length=5_000, description="What you need to know, with what depends on it.")
    options: list[str] = Field(default_factory=list, max_length=20, description="Answers to choose from, if any.")
    answer_schema: JsonObject | None = Field(None, description="A JSON schema that the answer must satisfy.")
    default: Any = Field(None, description="What to assume if nobody answers in time.")

    @model_validator(mode="after")
    def _usable(self) -> Self:
        schema = self.answer_schema
        if schema is None:
            return self
        if found := schema_problems("answer_schema", schema):
            raise ValueError("; ".join(f"{one.field}: {one.message}" for one in found[:5]))
        if self.default is not None and not fits(schema, self.default):
            raise ValueError("the default does not fit the answer_schema")
        return self


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
