"""The bases of values that do not change once they are made."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)  # as an argument of the class, type checkers ask it of every subclass


class Closed(Frozen, extra="forbid"):
    """Also refuses fields that it does not have."""
