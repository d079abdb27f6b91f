"""Reruns: a session that repeats another one from one of its steps, with something changed."""

from pydantic import BaseModel, Field


class Rerun(BaseModel):
    """The session that a rerun repeats, the step from which, and the changes."""

    session_id: str
    from_step: int = Field(description="the step of the original at which it begins")
    recorded: bool = Field(default=False, description="with the answers and results of the original: no model, no tool")
    changed: list[str] = Field(default_factory=list, description="what was changed")
    layers: int = Field(default=0, description="how many of its layers of rules the original had too")
