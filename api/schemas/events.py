"""Events and notices as callers see them."""

from pydantic import BaseModel, ConfigDict, Field


class ShownNotice(BaseModel):
    """A notice of the tenant's feed as callers see it, with the fields of its own type."""

    model_config = ConfigDict(extra="allow")

    type: str
    number: int
    session_id: str | None = Field(default=None, exclude_if=lambda value: value is None)
    conversation_id: str | None = Field(default=None, exclude_if=lambda value: value is None)
    at: str


class NoticePage(BaseModel):
    items: list[ShownNotice]
    next_after: int = Field(description="pass it as `after` to get the next page")
    closed: bool = Field(default=False, description="false: the feed of a tenant has no end")
