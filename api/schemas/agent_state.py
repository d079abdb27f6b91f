"""The address of a conversation, its agent's settings, and the result of a reset."""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field

from domain.policy.rules import Rule
from store.resets import DroppedMessage


class Descriptor(BaseModel):
    """The kind and the address of a conversation, which never change."""

    type: str = Field(description="channel, schedule, trigger, mission; task: it was started by the API")
    identity: dict[str, str] = Field(description="connector, channel_id and user_id, or the id of what it belongs to")


class HistoryMarker(BaseModel):
    kind: Literal["start", "reset"]
    at: datetime
    by: str = ""


class AgentState(BaseModel):
    """Settings that may change: the models, the agent's rules, and where its answers go."""

    agent: str
    agent_version: int
    models: list[str] = Field(description="the model, then its fallbacks")
    permissions: list[list[Rule]] = Field(description="layers: of the latest task, and of those above it")
    routing: dict[str, str | None] = Field(description="where answers are sent; empty: they are read here")
    generation: int
    markers: list[HistoryMarker] = Field(description="the context is what follows the last one")
    created_at: datetime
    updated_at: datetime


class ResetDone(BaseModel):
    conversation_id: str
    generation: int
    at: datetime
    dropped: list[DroppedMessage] = Field(description="messages that waited; they will not be answered")
    interrupted: list[str] = Field(description="the session of the main thread that was running")
