"""Answers of a Conversation that it remembers, so that a repeated request gets the same one."""

from datetime import datetime

from pydantic import BaseModel

from domain.sessions.session import DeliveryMode


class SpawnAnswer(BaseModel):
    session_id: str
    error: str | None = None
    delivery: DeliveryMode = DeliveryMode.HOLD


class SpawnAnswers(BaseModel):
    answers: list[SpawnAnswer]


class Fired(BaseModel):
    session_id: str


class RememberedAnswer(BaseModel):
    answer: SpawnAnswers | Fired
    length: int  # characters, as JSON
    at: datetime | None = None  # None: unknown
