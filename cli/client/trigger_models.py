"""Triggers and their events, as the API shows them."""

from cli.client.response import ResponseModel


class TriggerInfo(ResponseModel):
    id: str
    name: str
    url: str
    signature: str
    agent: str | None = None
    prompt: str
    correlation: str | None = None
    secret: str | None = None


class EventInfo(ResponseModel):
    event_id: str
    type: str
    outcome: str
    key: str | None = None
    session_id: str | None = None
    created_at: str
