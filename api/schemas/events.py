"""A page of events."""

from typing import Any

from pydantic import BaseModel, Field


class EventPage(BaseModel):
    items: list[dict[str, Any]]
    next_after: int = Field(description="pass it as `after` to get the next page")
    closed: bool = Field(description="true: the terminal event was written, nothing follows")
