"""The address of a conversation, its agent's settings, and the result of a reset."""

from datetime import datetime

from pydantic import BaseModel, Field

from store.resets import DroppedMessage


class ResetDone(BaseModel):
    conversation_id: str
    generation: int
    at: datetime
    dropped: list[DroppedMessage] = Field(description="messages that waited; they will not be answered")
    interrupted: list[str] = Field(description="the session of the main thread that was running")
