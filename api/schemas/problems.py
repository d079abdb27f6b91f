"""The body of every refusal, as the OpenAPI document shows it."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Finding(BaseModel):
    """One error of a request; the value itself is never repeated."""

    model_config = ConfigDict(serialize_by_alias=True)

    pointer: str = Field(description="JSON pointer into the body, or the name of a parameter")
    code: str
    message: str
    allowed: list[Any] | None = Field(default=None, exclude_if=lambda value: value is None)
    place: str | None = Field(
        default=None, alias="in", exclude_if=lambda value: value is None, description="of a parameter: query or path"
    )


class Problem(BaseModel):
    """An RFC 9457 problem."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(examples=["urn:errand:problem:validation"])
    title: str
    status: int
    detail: str
    instance: str = Field(description="the id of the request, as in X-Request-Id")
    errors: list[Finding] | None = None
