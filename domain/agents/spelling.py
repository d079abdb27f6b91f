"""Both spellings of a field: agent files may write `stop_on_response` or, as the standard does, `stopOnResponse`."""

import re
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from domain.json_object import JsonObject

_HUMP = re.compile(r"(?<=[a-z0-9])([A-Z])")


@lru_cache(maxsize=1_024)
def snake_case(name: str) -> str:
    return _HUMP.sub(r"_\1", name).lower()


class AgentPart(BaseModel):
    """A part of an agent definition: frozen, without unknown fields, in either spelling."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _accept_other_forms(cls, value: Any) -> Any:
        return cls.normalised(_in_snake_case(cls, value)) if isinstance(value, dict) else value

    @classmethod
    def normalised(cls, fields: JsonObject) -> JsonObject:
        """Map further short or earlier forms onto the fields; parts that know some override it."""
        return fields


def _in_snake_case(part: type[BaseModel], value: JsonObject) -> JsonObject:
    fields = dict(value)
    for name in value:
        plain = snake_case(name) if isinstance(name, str) else name
        if plain != name and plain in part.model_fields:
            if plain in value:
                raise ValueError(f"{name} and {plain} are the same field; give one of them")
            fields[plain] = fields.pop(name)
    return fields
